"""Files with secrets are refused where others may read them, by each that reads one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_admin.tokens import read_or_make_tokens
from trio_broker.cli.passwords import read_password
from trio_broker.cli.secure_directory import read_key_store
from trio_broker.cluster.etcd.opening import ssl_context_of
from trio_broker.config.metadata_store_config import MetadataStoreConfig
from trio_broker.config.ssl_config import SslConfig
from trio_broker.security.key_store import key_store
from trio_broker.security.private_files import read_private_file

READERS: dict[str, Callable[[Path], Any]] = {
    "admin.token.file": read_or_make_tokens,
    "metadata.store.certificate.file": lambda path: ssl_context_of(
        MetadataStoreConfig(metadata_store="etcds://x:1", metadata_store_certificate_file=str(path))
    ),
    "password_file": lambda path: read_password(str(path)),
    "ssl.keystore.location": lambda path: key_store(SslConfig(ssl_keystore_location=str(path))),
    "the authority of --secure": read_key_store,
}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, reader: str, mode: int) -> None:
    path = tmp_path / "secret"
    path.write_text("a secret")
    path.chmod(mode)
    with pytest.raises(Exception, match=rf"others may read it \(mode {mode:o}\): chmod 600"):
        READERS[reader](path)


def test_a_file_of_its_owner_alone_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(0o600)
    (tmp_path / "secret").write_bytes(b"a secret")
    assert read_private_file(tmp_path / "secret") == b"a secret"
