"""What a file of a client says is what it was written of, whatever is in the password."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.cli.client_properties import properties_text, scram_properties
from trio_broker.common.properties import parse_properties
from trio_broker.security.private_files import write_new_private_file
from trio_broker.security.sasl.jaas import parse_jaas


@pytest.mark.parametrize("password", ["secret", 'a"b\\c', " blank ", "line\nand\ttab", "pässwörd 🔑", "a=b;c #d!"])
def test_a_password_is_read_back_as_it_was(password: str):
    text = properties_text({"first": password, **scram_properties("bob", password, "SCRAM-SHA-512")})
    assert text.isascii()
    found = {each.key: each.value for each in parse_properties(text)}
    assert found["first"] == password
    assert parse_jaas(found["sasl.jaas.config"]).options == {"username": "bob", "password": password}


def test_a_file_is_its_owner_s_alone_and_takes_the_place_of_none(tmp_path: Path):
    path = tmp_path / "bob.properties"
    write_new_private_file(path, "a=b\n")
    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, "a=b\n")
    with pytest.raises(FileExistsError):
        write_new_private_file(path, "c=d\n")
