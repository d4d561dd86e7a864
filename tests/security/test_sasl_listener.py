"""A listener with a login, of a broker that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.describe_client_quotas import EntityData
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.schema import default_instance
from tests.running_broker import Connection, make_broker, running
from trio_broker.broker import Broker
from trio_broker.config.entries import ConfigScope
from trio_broker.config.errors import ConfigError
from trio_broker.network.connection import ConnectionState
from trio_broker.security.sasl.authenticators import MAX_LOGIN_BYTES

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret" user_alice="alice-secret";'
)
SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **SETTINGS) as broker:
        yield broker


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[Connection]:
    (endpoint,) = broker.bound_endpoints
    async with await trio.open_tcp_stream("127.0.0.1", endpoint.port) as stream:
        yield Connection(stream)


async def log_in(connection: Connection, token: bytes) -> ErrorCode:
    assert (await connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == ErrorCode.NONE
    return ErrorCode((await connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)).error_code)


def principals(broker: Broker) -> list[str]:
    return [str(connection.principal) for connection in broker.server.connections()]


async def test_requests_are_served_behind_a_login_and_in_the_client_s_name(broker, connection):
    assert (await connection.ask(default_instance(ApiVersionsRequest), 0)).error_code == ErrorCode.NONE
    assert principals(broker) == ["User:ANONYMOUS"]
    assert await log_in(connection, b"\0alice\0alice-secret") == ErrorCode.NONE
    assert principals(broker) == ["User:alice"]
    assert (await connection.ask(default_instance(MetadataRequest), 12)).brokers
    late = await connection.ask(SaslAuthenticateRequest(auth_bytes=b""), 2)
    assert (late.error_code, late.error_message) == (
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )


async def test_a_wrong_password_is_answered_closes_the_connection_and_is_noted_without_the_password(
    broker, connection, caplog
):
    assert await log_in(connection, b"\0alice\0hunter2") == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(EOFError):
        await connection.ask(default_instance(MetadataRequest), 12)
    await connection.stream.aclose()
    await broker.server.quotas.wait_until_none()
    (line,) = [record.getMessage() for record in caplog.records if "login failed" in record.getMessage()]
    assert "wrong password: 'alice' (PLAIN, authentication)" in line
    assert "hunter2" not in caplog.text
    (failed,) = broker.server.failed_handshakes.latest_first()
    assert (failed.cause, failed.peer_host) == ("authentication", "127.0.0.1")


@pytest.mark.parametrize("user", ["x\nERROR all is lost", "a\x1b[2J", "\u202eecila", "é" * 7_000])
async def test_a_user_s_name_can_neither_forge_a_line_of_the_log_nor_fill_it(broker, connection, caplog, user):
    assert await log_in(connection, f"\0{user}\0hunter2".encode()) == ErrorCode.SASL_AUTHENTICATION_FAILED
    await connection.stream.aclose()
    await broker.server.quotas.wait_until_none()
    (line,) = [each for each in caplog.text.splitlines() if "login failed" in each]
    assert line.isprintable()
    assert len(line) < 1000


async def test_to_come_anew_is_no_way_around_a_quota(broker, connection):
    await log_in(connection, b"\0alice\0alice-secret")
    await connection.create_topic("t")
    set_rate = AlterClientQuotasRequest.EntryData(
        entity=[EntityData(entity_type="user", entity_name="alice")],
        ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
    )
    await connection.ask(AlterClientQuotasRequest(entries=[set_rate], validate_only=False), 1)
    assert await connection.produce("t", b"more than ten bytes") == ErrorCode.NONE
    await connection.stream.aclose()
    (endpoint,) = broker.bound_endpoints
    async with await trio.open_tcp_stream("127.0.0.1", endpoint.port) as stream:
        assert await log_in(Connection(stream), b"\0alice\0alice-secret") == ErrorCode.NONE
        states = {each.info.peer_port: each.state for each in broker.server.connections()}
        assert states[stream.socket.getsockname()[1]] is ConnectionState.THROTTLED


async def test_nothing_else_is_served_before_a_login(broker, connection):
    with pytest.raises(EOFError):
        await connection.ask(default_instance(MetadataRequest), 12)
    assert broker.services.metadata_cache.image.topics == {}


async def test_a_frame_before_a_login_is_bounded(broker, connection):
    await connection.stream.send_all((MAX_LOGIN_BYTES + 1).to_bytes(4, "big"))
    assert await connection.stream.receive_some(1) == b""


async def test_a_frame_behind_a_login_may_be_as_large_as_any(broker, connection):
    await log_in(connection, b"\0alice\0alice-secret")
    (served,) = broker.server.connections()
    assert served.protocol.max_frame_bytes == broker.config.socket_server.socket_request_max_bytes


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("listener.name.clients.plain.sasl.jaas.config", 'x required user_alice="secret', "mark is missing at its end"),
        ("listener.name.clients.plain.sasl.jaas.config", "x required;", "nobody can log in by PLAIN"),
        ("sasl.enabled.mechanisms", "PLAIN,GSSAPI", "Kerberos is not offered"),
    ],
)
async def test_a_setting_by_which_nobody_could_log_in_is_refused_and_the_one_before_stays(
    broker, connection, key, value, reason
):
    await log_in(connection, b"\0alice\0alice-secret")
    code, text = await connection.alter_broker_configs("1", {key: value})
    assert (code, reason in text, "secret" in text) == (ErrorCode.INVALID_REQUEST, True, False)
    assert broker.config.dynamic(ConfigScope.BROKER) == {}
    assert await connection.alter_broker_config("1", num_io_threads="9") == ErrorCode.NONE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI: Kerberos is not offered"),
        ({"sasl.enabled.mechanisms": "PLAIN,X"}, "X: it is not offered"),
        ({"listener.name.clients.plain.sasl.jaas.config": "x required;"}, "nobody can log in by PLAIN"),
        ({"listener.name.clients.plain.sasl.jaas.config": "nonsense"}, "must be of the form"),
    ],
)
def test_a_listener_nobody_could_log_in_at_is_refused_at_the_start(tmp_path, change, reason):
    with pytest.raises(ConfigError, match=reason):
        make_broker(tmp_path, **{**SETTINGS, **change})
