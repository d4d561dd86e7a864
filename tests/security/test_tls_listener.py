"""A listener with TLS, of a broker that runs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trustme

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.schema import default_instance
from tests.running_broker import Connection, make_broker, running, until
from tests.security.tls_files import write_key_store
from trio_broker.broker import Broker
from trio_broker.config.entries import ConfigScope
from trio_broker.config.errors import ConfigError

CA = trustme.CA()


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[tuple[Connection, bytes]]:
    """A connection under TLS, and the certificate that it was shown."""
    (endpoint,) = broker.bound_endpoints
    context = ssl.create_default_context()
    CA.configure_trust(context)
    async with await trio.open_tcp_stream("127.0.0.1", endpoint.port) as plain:
        stream = trio.SSLStream(plain, context, server_hostname="localhost")
        await stream.do_handshake()
        yield Connection(stream), stream.getpeercert(binary_form=True)


async def test_a_renewed_file_counts_for_new_connections_and_a_bad_one_for_none(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("trio_broker.broker.KEYS_INTERVAL_MS", 10)
    caplog.set_level("INFO")
    path = write_key_store(tmp_path / "key.pem", CA.issue_cert("localhost"))
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(path)}
    async with running(tmp_path / "data", **settings) as broker, connected(broker) as (connection, first):
        assert (await connection.ask(default_instance(MetadataRequest), 12)).brokers
        path.write_bytes(b"nonsense")
        await until(lambda: "the keys and certificates before stay in use" in caplog.text)
        async with connected(broker) as (_, shown):
            assert shown == first
        write_key_store(path, CA.issue_cert("localhost"))
        await until(lambda: "new keys and certificates are in use" in caplog.text)
        async with connected(broker) as (_, shown):
            assert shown != first
        assert (await connection.ask(default_instance(MetadataRequest), 12)).brokers


async def test_a_setting_by_which_no_key_can_be_had_is_refused_and_the_one_before_stays(tmp_path):
    key = "listener.name.ssl.ssl.keystore.location"
    path = write_key_store(tmp_path / "key.pem", CA.issue_cert("localhost"))
    other = write_key_store(tmp_path / "other.pem", CA.issue_cert("localhost"))
    bad = tmp_path / "bad.pem"
    bad.write_bytes(path.read_bytes())
    bad.chmod(0o644)
    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(path)}
    async with running(tmp_path / "data", **settings) as broker, connected(broker) as (connection, _):
        for refused, reason in (
            (str(bad), "others may read"),
            ("/none", "No such file"),
            ("/dev/zero", "no regular"),
        ):
            code, text = await connection.alter_broker_configs("1", {key: refused})
            assert (code, reason in text) == (ErrorCode.INVALID_REQUEST, True), text
            assert key not in broker.config.dynamic(ConfigScope.BROKER)
        assert await connection.alter_broker_configs("1", {key: str(other)}) == (ErrorCode.NONE, "")
        path.write_bytes(b"nonsense")
        assert await connection.alter_broker_configs("1", {"num.io.threads": "9"}) == (ErrorCode.NONE, "")


def test_a_listener_without_a_key_is_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"^listener SSL: ssl\.keystore\.location is not set.*$"):
        make_broker(tmp_path, listeners="SSL://127.0.0.1:0")
