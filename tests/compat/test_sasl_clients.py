"""Clients that were not written here log in, and say what their users know when they cannot."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import aiokafka.abc
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from trio_broker.testing.broker_thread import BrokerThread

pytestmark = pytest.mark.compat

PROTOCOLS = "OPEN:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right";'
SETTINGS: dict[str, Any] = {
    "listeners": "OPEN://127.0.0.1:0,CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": PROTOCOLS,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
}
LOGINS = [("PLAIN", "alice"), ("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "carol")]
SECONDS = 10.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[str]:
    """The address of the listener with a login; bob and carol got their passwords by the other one."""
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(key_named("a")))
    with BrokerThread(**SETTINGS, sasl_oauthbearer_jwks_endpoint_url=keys.as_uri()) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for user, mechanism in (("bob", ScramMechanism.SCRAM_SHA_256), ("carol", ScramMechanism.SCRAM_SHA_512)):
            change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), b"right", b"salt")
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(SECONDS)
        (clients,) = [each for each in broker.broker.bound_endpoints if each.listener_name == "CLIENTS"]
        yield f"127.0.0.1:{clients.port}"


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_confluent_kafka_logs_in_and_says_that_authentication_failed(servers, mechanism, user):
    errors: list[Any] = []
    settings = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "error_cb": errors.append,
        "logger": logging.getLogger("librdkafka"),
    }
    assert AdminClient({**settings, "sasl.password": "right"}).list_topics(timeout=SECONDS).brokers
    assert errors == []
    refused = AdminClient({**settings, "sasl.password": "wrong"})
    while not any(error.name() == "_AUTHENTICATION" for error in errors):
        assert refused.poll(SECONDS), errors


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_kafka_python_logs_in(servers, mechanism, user, caplog):
    settings = {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
    }
    producer = KafkaProducer(**settings, sasl_plain_password="right")
    assert producer.send("written", b"x").get(SECONDS).offset >= 0
    producer.close()
    assert "SaslAuthenticationFailed" not in caplog.text


@pytest.mark.parametrize(("mechanism", "user"), LOGINS)
def test_aiokafka_logs_in(servers, mechanism, user):
    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password="right",
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("written", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(write()) >= 0


def token(seconds: int = 3600) -> str:
    now_ms = time.time_ns() // 1_000_000
    return signed(claims_at(now_ms, exp=now_ms // 1000 + seconds), key_named("a"))


def test_confluent_kafka_logs_in_by_a_token_and_says_that_one_is_refused(servers):
    errors: list[Any] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "error_cb": errors.append,
        "logger": logging.getLogger("librdkafka"),
    }
    good = Producer({**settings, "oauth_cb": lambda _: (token(), time.time() + 3600)})
    written: list[Any] = []
    good.produce("written", b"x", on_delivery=lambda error, message: written.append(error))
    good.flush(SECONDS)
    assert (written, errors) == ([None], [])
    refused = Producer({**settings, "oauth_cb": lambda _: (token(-3600), time.time() + 3600)})
    while not any("invalid_token" in error.str() for error in errors):
        assert refused.poll(SECONDS), errors


def test_kafka_python_logs_in_by_a_token(servers):
    class Tokens(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    producer = KafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    assert producer.send("written", b"x").get(SECONDS).offset >= 0
    producer.close()


def test_aiokafka_logs_in_by_a_token(servers):
    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("written", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(write()) >= 0
