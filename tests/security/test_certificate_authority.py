"""What an authority issues is accepted by OpenSSL in its strictest mode, for those that it was issued for."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.key_store import KeyStore
from trio_broker.security.private_files import write_private_file

NOW = datetime.now(UTC)


def shake_hands(authority: CertificateAuthority, server: KeyStore, client: KeyStore, host: str, tmp_path: Path) -> None:
    """Raise ssl.SSLError unless both sides accept each other."""
    contexts = []
    for protocol, store in ((ssl.PROTOCOL_TLS_CLIENT, client), (ssl.PROTOCOL_TLS_SERVER, server)):
        context = ssl.SSLContext(protocol)
        write_private_file(tmp_path / "store.pem", store.pem)
        context.load_cert_chain(tmp_path / "store.pem")
        context.load_verify_locations(cadata=authority.trusted.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        contexts.append(context)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        contexts[0].wrap_bio(to_client, to_server, server_hostname=host),
        contexts[1].wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(2):
        for side in list(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not sides, "the handshake is not finished"


def test_what_is_issued_is_accepted_for_its_hosts_and_uses(tmp_path):
    authority = CertificateAuthority.create("authority", NOW)
    server = authority.issue_server("broker", ["localhost", "127.0.0.1", "::1"], NOW)
    client = authority.issue_client("alice", NOW)
    for host in ("localhost", "127.0.0.1", "::1"):
        shake_hands(authority, server, client, host, tmp_path)
    shake_hands(authority, server, server, "localhost", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(authority, server, client, "other", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(authority, client, client, "localhost", tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        shake_hands(CertificateAuthority.create("authority", NOW), server, client, "localhost", tmp_path)


def test_an_authority_that_was_kept_goes_on(tmp_path):
    kept = CertificateAuthority.create("authority", NOW, days=1).key_store
    authority = CertificateAuthority.of(kept, NOW)
    server = authority.issue_server("broker", ["localhost"], NOW)
    shake_hands(authority, server, server, "localhost", tmp_path)
    with pytest.raises(ValueError, match="is valid from"):
        CertificateAuthority.of(kept, NOW + timedelta(days=2))
    with pytest.raises(ValueError, match="is not that of the certificate"):
        CertificateAuthority.of(KeyStore(server.key, kept.chain), NOW)
    assert "PRIVATE KEY" not in repr(kept) + repr(authority)


def test_a_private_file_is_readable_by_its_owner_alone_and_replaced_as_a_whole(tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with path.open("rb") as old:
        write_private_file(path, b"new")
        assert old.read() == b"old"
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
