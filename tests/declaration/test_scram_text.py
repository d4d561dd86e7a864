"""A user of SCRAM in the form of Kafka's tool, and how a mistake in it is reported."""

from __future__ import annotations

import pytest

from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.declaration.declaration import DeclaredCredential
from trio_broker.declaration.scram_text import parse_scram


def parse(text: str) -> DeclaredCredential:
    return parse_scram(text, "--add-scram", lambda path: f"in {path}")


@pytest.mark.parametrize(
    ("text", "mechanism", "password", "iterations"),
    [
        ("SCRAM-SHA-512=[name=admin,password-file=/run/p]", ScramMechanism.SHA_512, "in /run/p", 4096),
        ('SCRAM-SHA-256=[iterations=8192,name="admin",password="a=b"]', ScramMechanism.SHA_256, "a=b", 8192),
    ],
)
def test_a_user_is_read_as_kafka_s_tool_reads_it(text, mechanism, password, iterations):
    found = parse(text)
    assert found == DeclaredCredential(
        name="admin", mechanism=mechanism, password=password, iterations=iterations, origin="--add-scram"
    )
    assert password not in repr(found)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("admin", "the form is SCRAM-SHA-512="),
        ("PLAIN=[name=admin,password=secret]", "the form is"),
        ("SCRAM-SHA-512=[password=secret]", "it names no user"),
        ("SCRAM-SHA-512=[name=admin]", "user 'admin': it needs either password-file or password"),
        ("SCRAM-SHA-512=[name=admin,password=secret,password-file=f]", "user 'admin': it needs either"),
        ("SCRAM-SHA-512=[name=admin,passwort=secret]", "did you mean password?"),
        ("SCRAM-SHA-512=[name=admin,password=a,secret]", "none has a comma"),
        ("SCRAM-SHA-512=[name=admin,name=bob,password=secret]", "name is named twice"),
        ("SCRAM-SHA-512=[name=admin,password=secret,iterations=4095]", "iterations has to be from 4096 to 16384"),
    ],
)
def test_a_mistake_is_one_line_without_the_password(text, reason):
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refusal:
        parse(text)
    assert reason in str(refusal.value)
    assert "secret" not in str(refusal.value)
