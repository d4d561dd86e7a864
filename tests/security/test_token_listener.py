"""Logins by tokens, at a broker that runs: who the client is then, and for how long."""

from __future__ import annotations

import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.sasl.mechanisms import OAuthBearerSaslClient, PlainSaslClient, SaslClient, ScramSaslClient
from kafka_wire.schema import default_instance
from tests.running_broker import Connection, connected, running
from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from tests.security.sasl_conversation import SHA_256
from tests.security.tls_files import write_key_store
from tests.waits import eventually
from trio_broker.broker import Broker
from trio_broker.cluster.delegation_token_control import NewToken, token_records
from trio_broker.network.jwks_endpoint import FILE_SECONDS
from trio_broker.runtime.clock import ManualClock
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.testing.broker_thread import BrokerThread

HOUR_MS = 3_600_000
MINUTE = 60.0
SECONDS = 30.0
SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    ),
    "delegation.token.secret.key": "of the cluster",
    "connections.max.idle.ms": "-1",
    "connection.failed.authentication.delay.ms": "1",
}
CREATE = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=HOUR_MS)
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def broker(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    async with running(tmp_path, clock=clock, **SETTINGS) as broker:
        yield broker


@pytest.fixture
async def connection(broker: Broker) -> AsyncIterator[Connection]:
    async with connected(broker) as connection:
        yield connection


@pytest.fixture
async def token(broker: Broker) -> tuple[str, str]:
    """Id and password of a token of alice for an hour."""
    async with connected(broker) as connection:
        await log_in(connection, PlainSaslClient("alice", "alice-secret"))
        made = await connection.ask(CREATE, 2)
    assert made.error_code == ErrorCode.NONE
    return made.token_id, b64encode(made.hmac).decode()


def by_token(token_id: str, password: str) -> ScramSaslClient:
    return ScramSaslClient(SHA_256, token_id, password, "client", is_token=True)


async def log_in(connection: Connection, client: SaslClient) -> Any:
    """The answer to the last token."""
    assert (await connection.ask(SaslHandshakeRequest(mechanism=client.mechanism), 1)).error_code == ErrorCode.NONE
    challenge: bytes | None = None
    while (token := client.first_token() if challenge is None else client.evaluate(challenge)) is not None:
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        challenge = bytes(answer.auth_bytes)
        if answer.error_code or not challenge:
            break
    return answer


async def is_served(connection: Connection) -> bool:
    try:
        await connection.ask(default_instance(MetadataRequest), 12)
    except EOFError:
        return False
    return True


async def test_a_client_with_a_token_is_its_owner_and_has_no_other_token(broker, connection, token):
    answer = await log_in(connection, by_token(*token))
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, HOUR_MS)
    (served,) = [each.principal for each in broker.server.connections()]
    assert (str(served), served.token_authenticated) == ("User:alice", True)
    assert await is_served(connection)
    assert (await connection.ask(CREATE, 2)).error_code == NOT_ALLOWED


async def test_its_session_ends_with_the_token_however_often_it_logs_in(broker, connection, token, clock):
    await log_in(connection, by_token(*token))
    clock.advance(59 * MINUTE)
    assert (await log_in(connection, by_token(*token))).session_lifetime_ms == MINUTE * 1000
    assert (await connection.ask(CREATE, 2)).error_code == NOT_ALLOWED
    clock.advance(MINUTE)
    assert await is_served(connection)
    clock.advance(0.001)
    async with connected(broker) as late:
        assert (await log_in(late, by_token(*token))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not await is_served(connection)


async def test_a_session_is_not_renewed_by_a_token_that_is_over(connection, token, clock):
    await log_in(connection, by_token(*token))
    clock.advance(61 * MINUTE)
    assert (await log_in(connection, by_token(*token))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not await is_served(connection)


async def test_a_token_that_is_ended_lets_nobody_in_any_more_and_its_sessions_go_on(broker, connection, token, clock):
    await log_in(connection, by_token(*token))
    async with connected(broker) as owner:
        await log_in(owner, PlainSaslClient("alice", "alice-secret"))
        end = ExpireDelegationTokenRequest(hmac=b64decode(token[1]), expiry_time_period_ms=-1)
        assert (await owner.ask(end, 2)).error_code == ErrorCode.NONE
    async with connected(broker) as late:
        assert (await log_in(late, by_token(*token))).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await is_served(connection)
    clock.advance(61 * MINUTE)
    assert not await is_served(connection)


async def test_a_client_without_a_login_has_no_tokens_but_a_certificate_is_one(tmp_path):
    authority = trustme.CA()
    authorities = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(authorities)
    settings = {
        "listeners": "OPEN://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "OPEN:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": str(write_key_store(tmp_path / "key.pem", authority.issue_cert("localhost"))),
        "ssl.truststore.location": str(authorities),
        "ssl.client.auth": "requested",
        "delegation.token.secret.key": "of the cluster",
    }
    anonymous = ssl.create_default_context(cafile=str(authorities))
    alice = ssl.create_default_context(cafile=str(authorities))
    authority.issue_cert("alice@example.com", common_name="alice").configure_cert(alice)
    async with running(tmp_path / "data", **settings) as broker:
        _, tls = broker.bound_endpoints
        async with connected(broker) as connection:
            assert (await connection.ask(CREATE, 2)).error_code == NOT_ALLOWED
        for context, code in ((anonymous, NOT_ALLOWED), (alice, ErrorCode.NONE)):
            async with await trio.open_tcp_stream("127.0.0.1", tls.port) as plain:
                connection = Connection(trio.SSLStream(plain, context, server_hostname="localhost"))
                assert (await connection.ask(CREATE, 2)).error_code == code


def test_the_broker_removes_tokens_that_are_over_at_its_interval():
    alice = KafkaPrincipal("User", "alice")
    with BrokerThread(delegation_token_secret_key="of the cluster") as thread:
        services = thread.broker.services

        def tokens() -> set[str]:
            return set(token_records(services.metadata_cache.image))

        short, long = (
            thread.call(services.controller.create_delegation_token, NewToken(alice, alice, (), lifetime_ms)).token_id
            for lifetime_ms in (HOUR_MS // 2, 2 * HOUR_MS)
        )
        thread.advance_clock(59 * MINUTE)
        assert tokens() == {short, long}
        thread.advance_clock(MINUTE)
        eventually(lambda: tokens() == {long}, SECONDS)


def test_a_renewed_file_of_keys_counts_within_seconds(tmp_path):
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(key_named("a")))
    settings = {
        **{name: SETTINGS[name] for name in ("listeners", "listener.security.protocol.map")},
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": file.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }

    async def is_let_in(broker: Broker, kid: str) -> bool:
        client = OAuthBearerSaslClient(signed(claims_at(broker.clock.now_ms()), key_named(kid)))
        async with connected(broker) as connection:
            code: int = (await log_in(connection, client)).error_code
            return code == ErrorCode.NONE

    with BrokerThread(**settings) as thread:
        assert [thread.call(is_let_in, thread.broker, kid) for kid in "ab"] == [True, False]
        file.write_bytes(key_set(key_named("b")))
        thread.advance_clock(FILE_SECONDS)
        eventually(lambda: thread.call(is_let_in, thread.broker, "b"), SECONDS)
        assert not thread.call(is_let_in, thread.broker, "a")
