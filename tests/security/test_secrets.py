"""No secret that a broker is given, or gives out, is seen where it should not be.

Each secret here begins with the same mark, and so does each that is wrong: the broker may show it to nobody, whatever
is asked and whatever goes wrong.
"""

from __future__ import annotations

import base64
import gc
import logging
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from starlette.routing import Route

from broker_admin.app import create_app
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.sasl.mechanisms import SaslCredentials
from kafka_wire.sasl.scram import ScramMechanism
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import CHANGE_HEADERS
from tests.running_broker import Connection, admin_client, make_broker
from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from trio_broker.broker import Broker
from trio_broker.cli.declarations import GivenTexts, read_declarations
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.config.broker_config import BrokerConfig

MARK = "hush-hush"
OF_PLAIN, OF_SCRAM, OF_BOB, OF_DAVE, OF_KEY, OF_STORE, OF_TOKENS = (f"{MARK}-{number}" for number in range(7))
ADMIN, VIEWER = f"{MARK}-the-token-of-admins", f"{MARK}-the-token-of-viewers"
CHANGED = f"{MARK}-changed"
WRONG = f"{MARK}-wrong"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password={0} user_admin={0};"
MODULE = "listener.name.clients.plain.sasl.jaas.config"
DECLARED = """
[users.bob]
password_file = "{}"
mechanism = "SCRAM-SHA-256"
[users.dave]
password_env = "DAVE"
"""
ETCD = {"metadata.store": "etcd://x:1", "metadata.store.user": "a", "metadata.store.password": MARK}
SALT = b"salt"
NAMES = {"topic": "orders", "group_id": "billing", "transactional_id": "billing", "partition": "0", "broker_id": "1"}
CLIENTS_LOGGERS = ("httpx", "httpcore", "hpack")
"""Of the test's own client."""


def settings_in(directory: Path, ca: trustme.CA) -> dict[str, str]:
    """Settings with a secret wherever one may stand."""
    certificate = ca.issue_cert("localhost")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(OF_KEY.encode())
    )
    chain = b"".join(each.bytes() for each in certificate.cert_chain_pems)
    files = {
        "broker.pem": key + chain,
        "tokens": f"admin {ADMIN}\nviewer {VIEWER}\n".encode(),
        "keys": key_set(key_named("1")),
        "bob": OF_BOB.encode(),
        "declared.toml": DECLARED.format(directory / "bob").encode(),
    }
    for name, content in files.items():
        (directory / name).touch(mode=0o600)
        (directory / name).write_bytes(content)
    return {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
        MODULE: JAAS.format(OF_PLAIN),
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.key.password": OF_KEY,
        "ssl.keystore.password": OF_STORE,
        "ssl.truststore.password": OF_STORE,
        "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": OF_TOKENS,
        "admin.listener": "127.0.0.1:0",
        "admin.token.file": str(directory / "tokens"),
        "alerts.webhook.authorization": f"Bearer {MARK}",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }


@attrs.define
class Remembering(Connection):
    """Adds its messages to ``kept``, so that they are among the objects that are looked at."""

    kept: list[Any] = attrs.field(kw_only=True)

    async def ask(self, request: Any, version: int) -> Any:
        answer = await super().ask(request, version)
        self.kept += [request, answer]
        return answer


@attrs.define
class Peer:
    """What a client of the broker does; ``secrets`` gets what the broker gives out, and what is made on the way."""

    broker: Broker
    context: ssl.SSLContext
    secrets: set[bytes]
    messages: list[Any] = attrs.field(factory=list)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        (endpoint,) = self.broker.bound_endpoints
        async with await trio.open_tcp_stream("127.0.0.1", endpoint.port) as plain:
            yield Remembering(trio.SSLStream(plain, self.context, server_hostname="localhost"), kept=self.messages)

    async def log_in(self, connection: Connection, mechanism: str, user: str, secret: str) -> int:
        """Log in; returns the error code."""
        client = SaslCredentials(mechanism, user, secret).client(os.urandom)
        assert (await connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1)).error_code == 0
        token: bytes | None = client.first_token()
        code = 0
        while token is not None and code == 0:
            answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            code = answer.error_code
            token = client.evaluate(answer.auth_bytes) if code == 0 else None
        return code

    async def work(self) -> None:
        """Log in by each mechanism, rightly and wrongly, and send what has secrets in it, right and wrong."""
        async with self.connected() as admin:
            assert await self.log_in(admin, "PLAIN", "admin", OF_PLAIN) == 0
            await admin.create_topic("orders")
            await self._set_password(admin)
            await self._use_token(admin)
            assert await admin.alter_broker_config("1", **{MODULE: JAAS.format(CHANGED)}) == 0
            for name in ("ssl.keystore.password", "no.such.password"):
                await admin.alter_broker_config("1", **{name: CHANGED})
            refused = await admin.alter_broker_config("1", **{MODULE: f'x "{WRONG}'})
            assert refused == ErrorCode.INVALID_REQUEST
        now = claims_at(self.broker.clock.now_ms())
        bearer, unknown = signed(now, key_named("1")), signed(now, key_named("2"))
        self.secrets |= {bearer.encode(), unknown.encode()}
        for mechanism, user, secret, is_right in (
            ("PLAIN", "admin", CHANGED, True),
            ("PLAIN", "admin", WRONG, False),
            ("SCRAM-SHA-256", "bob", OF_BOB, True),
            ("SCRAM-SHA-256", "carol", OF_SCRAM, True),
            ("SCRAM-SHA-256", "carol", WRONG, False),
            ("OAUTHBEARER", "alice", bearer, True),
            ("OAUTHBEARER", "alice", unknown, False),
            ("OAUTHBEARER", "alice", WRONG, False),
        ):
            async with self.connected() as connection:
                code = await self.log_in(connection, mechanism, user, secret)
            assert (code == 0) == is_right, (mechanism, secret)

    async def _set_password(self, admin: Connection) -> None:
        mechanism = ScramMechanism.SHA_256
        for password, iterations, code in ((OF_SCRAM, 4096, 0), (WRONG, 1, ErrorCode.UNACCEPTABLE_CREDENTIAL)):
            salted = mechanism.salted_password(password, SALT, iterations)
            self.secrets.add(salted)
            wanted = ScramCredentialUpsertion(
                name="carol", mechanism=mechanism.number, iterations=iterations, salt=SALT, salted_password=salted
            )
            answer = await admin.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted]), 0)
            assert answer.results[0].error_code == code

    async def _use_token(self, admin: Connection) -> None:
        made = await admin.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert made.error_code == 0
        self.secrets |= {made.hmac, base64.b64encode(made.hmac)}
        for hmac in (made.hmac, WRONG.encode()):
            await admin.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
            await admin.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=60_000), 2)
        assert (await admin.ask(DescribeDelegationTokenRequest(owners=None), 3)).tokens


def addresses() -> Iterator[str]:
    """Everything that can be read of the admin app, pages and API."""
    for route in create_app(FakeBroker().view).routes:
        if (
            isinstance(route, Route)
            and "GET" in (route.methods or ())
            and not route.path.endswith(("/events", "/tail"))
        ):
            path = route.path
            for name, value in NAMES.items():
                path = path.replace(f"{{{name}}}", value)
            for key in ("ssl.key.password", MODULE):
                yield path.replace("{key}", key)
            yield path.replace("orders", "__cluster_metadata")


async def answers(http: httpx.AsyncClient) -> AsyncIterator[tuple[httpx.Response, str]]:
    """Each answer of the admin app to what may be read, and to what is wrong, with its text."""
    for token in (WRONG, ADMIN, VIEWER):
        for address in dict.fromkeys(addresses()) if token == ADMIN else ["/api/v1/brokers/1"]:
            async with http.stream("GET", address, headers={"Authorization": f"Bearer {token}"}) as answer:
                is_stream = "event-stream" in answer.headers.get("content-type", "")
                yield answer, "" if is_stream else (await answer.aread()).decode()
    for basic in (("admin", CHANGED), ("admin", WRONG), ("bob", OF_BOB)):
        answer = await http.get("/api/v1/users", auth=basic)
        yield answer, answer.text
    headers = {**CHANGE_HEADERS, "Authorization": f"Bearer {ADMIN}"}
    for value in (CHANGED, {"a": WRONG}):
        answer = await http.patch("/api/v1/config", headers=headers, json={"ssl.truststore.password": value})
        yield answer, answer.text
    for form in ({"token": WRONG}, {"user": "admin", "password": WRONG}):
        answer = await http.post("/login", data=form)
        yield answer, answer.text


def found_in(text: str, secrets: set[bytes]) -> list[str]:
    """The secrets in a text, however it shows bytes."""
    shown = {form for each in secrets for form in (each.decode("latin-1"), repr(each)[2:-1], each.hex())}
    return [each for each in shown if each in text]


def texts_of_objects() -> Iterator[tuple[str, str]]:
    """How each object of the broker's that has a text of its own would be logged."""
    # A broker of another test may have set what there was aside.
    gc.unfreeze()
    for each in gc.get_objects():
        if attrs.has(type(each)) and not type(each).__module__.startswith("tests"):
            try:
                yield type(each).__qualname__, repr(each)
            except AttributeError:
                continue  # not complete yet


async def test_nothing_shows_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("DAVE", OF_DAVE)
    ca, context = trustme.CA(), ssl.create_default_context()
    ca.configure_trust(context)
    data = tmp_path / "data"
    broker = make_broker(data, clock=None, **settings_in(tmp_path, ca))
    broker.declaration = read_declarations(tmp_path / "declared.toml", GivenTexts((), ""))
    secrets, etcd = {MARK.encode()}, BrokerConfig(ETCD)
    shown: list[tuple[str, str]] = []
    statuses = set()
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        peer = Peer(broker, context, secrets)
        await peer.work()
        async with admin_client(broker) as http:
            async for answer, text in answers(http):
                statuses.add(answer.status_code)
                shown.append((str(answer.url), text))
        shown += [*texts_of_objects(), ("metadata.store", f"{etcd} {etcd.metadata_store}")]
        broker.stop()
    of_the_broker = [each for each in caplog.records if not each.name.startswith(CLIENTS_LOGGERS)]
    shown += [(record.name, logging.Formatter().format(record)) for record in of_the_broker]
    assert {"SaslAuthenticateRequest", "MetadataImage"} <= {name for name, _ in shown}
    assert {200, 401, 403} <= statuses
    assert "DEBUG" in {record.levelname for record in of_the_broker}
    assert [(name, found) for name, text in shown if (found := found_in(text, secrets))] == []
    # As in Kafka: a password that is set while the broker runs is a value of the metadata.
    files = {path for path in data.rglob("*") if path.is_file() and any(map(path.read_bytes().__contains__, secrets))}
    assert {path.parent.name for path in files} == {"__cluster_metadata-0"}
