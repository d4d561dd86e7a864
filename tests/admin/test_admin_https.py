"""The admin page of a broker by HTTPS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
import trio
from click.testing import CliRunner

from tests.running_broker import running
from trio_broker.broker import Broker
from trio_broker.cli import main
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.key_store import KeyStore
from trio_broker.security.private_files import write_private_file


def authority() -> CertificateAuthority:
    return CertificateAuthority.create("authority", datetime.now(UTC))


def write(path: Path, store: KeyStore) -> Path:
    write_private_file(path, store.key + store.chain)
    return path


def trusting(issuer: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=issuer.trusted.decode())


@pytest.fixture
def issuer() -> CertificateAuthority:
    return authority()


@pytest.fixture
async def broker(tmp_path: Path, issuer: CertificateAuthority) -> AsyncIterator[Broker]:
    key_store = write(tmp_path / "keys.pem", issuer.issue_server("broker", ["127.0.0.1"], datetime.now(UTC)))
    settings = {
        "admin.listener": "127.0.0.1:0",
        "admin.security.protocol": "SSL",
        "admin.token.file": str(tmp_path / "tokens"),
        "listener.name.admin.ssl.keystore.location": str(key_store),
    }
    async with running(tmp_path / "data", **settings) as broker:
        yield broker


async def test_the_page_is_served_by_https_to_who_has_logged_in(broker, issuer, tmp_path, caplog):
    assert broker.admin_url is not None
    assert broker.admin_url.startswith("https://127.0.0.1:")
    token = (tmp_path / "tokens").read_text().split()[1]
    async with httpx.AsyncClient(base_url=broker.admin_url, verify=trusting(issuer)) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/api/v1/topics")).status_code == 401
        origin = {"Origin": broker.admin_url.rstrip("/")}
        entered = await client.post("/login", data={"token": token, "next": "/"}, headers=origin)
        assert (entered.status_code, "secure" in entered.headers["set-cookie"].lower()) == (303, True)
        assert (await client.get("/")).status_code == 200
    assert "unencrypted" not in caplog.text


async def test_who_speaks_no_tls_or_trusts_another_one_is_not_served(broker):
    distrustful = httpx.AsyncClient(base_url=broker.admin_url, verify=trusting(authority()))
    plain = httpx.AsyncClient(base_url=broker.admin_url.replace("https:", "http:"), verify=False)
    for client in (distrustful, plain):
        async with client:
            with pytest.raises(httpx.TransportError):
                await client.get("/readyz")


async def test_renewed_keys_count_for_new_connections(broker, tmp_path):
    successor = authority()
    write(tmp_path / "keys.pem", successor.issue_server("broker", ["127.0.0.1"], datetime.now(UTC)))
    await broker._follow_keys()
    async with httpx.AsyncClient(base_url=broker.admin_url, verify=trusting(successor)) as client:
        assert (await client.get("/readyz")).status_code == 200


async def test_a_health_check_asks_by_https(broker):
    asked = await trio.to_thread.run_sync(CliRunner().invoke, main, ["ready", "--admin", broker.admin_url.rstrip("/")])
    assert (asked.exit_code, asked.output) == (0, "ready\n")
