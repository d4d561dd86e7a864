"""Kafka's tool for delegation tokens, and its clients that log in by one, or by a token of another authority, over TLS.

One JVM runs them all. Of the delegation tokens, one is the tool's own; the other is there before, so that calls can
name it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.java_programs import Java
from tests.security.oauth_tokens import AUDIENCE, ISSUER, claims_at, key_named, key_set, signed
from trio_broker.cluster.delegation_token_control import NewToken, token_hmac
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.testing.broker_thread import BrokerThread
from trio_broker.testing.client_settings import MECHANISM, USER

TOKENS = "DelegationTokenCommand"
SECRET_KEY = "of the cluster"
KEY = key_named("a")
OWNER = KafkaPrincipal(USER_TYPE, USER)


def hmac_text(token_id: str) -> str:
    return b64encode(token_hmac(SECRET_KEY, token_id)).decode()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(KEY))
    settings: dict[str, Any] = {
        "sasl.enabled.mechanisms": f"{MECHANISM.value},OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "delegation.token.secret.key": SECRET_KEY,
    }
    with BrokerThread(security="scram+tls", **settings) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture(scope="module")
def token_id(broker: BrokerThread) -> str:
    """A token of alice."""
    wanted = NewToken(OWNER, OWNER, (), max_lifetime_ms=-1)
    return broker.call(broker.broker.services.controller.create_delegation_token, wanted).token_id


@pytest.fixture(scope="module")
def results(
    java: Java, tmp_path_factory: pytest.TempPathFactory, broker: BrokerThread, token_id: str
) -> Mapping[str, Any]:
    """The exit code of each call and what it printed, by its name."""
    directory = tmp_path_factory.mktemp("clients")
    by_password = broker.client_settings.java
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{token_id}" password="{hmac_text(token_id)}" tokenauth="true";'
    )
    alice = properties(directory / "alice", by_password)
    by_token = properties(directory / "token", {**by_password, "sasl.jaas.config": login})
    by_other = {
        name: oauth_client(directory, name, by_password, signed(claims_at(broker.clock.now_ms(), aud=audience), KEY))
        for name, audience in (("good", AUDIENCE), ("wrong", "elsewhere"))
    }
    named = ("--hmac", hmac_text(token_id))
    owner = ("--owner-principal", str(OWNER))
    create = ("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:rita")
    topic = ("--topic", "orders")
    calls: dict[str, tuple[str, ...]] = {
        "create": (TOKENS, alice, *create),
        "describe": (TOKENS, alice, "--describe", *owner),
        "renew": (TOKENS, alice, "--renew", "--renew-time-period", "-1", *named),
        "produce": ("ConsoleProducer", by_token, *topic),
        "consume": ("consumer.ConsoleConsumer", by_token, *topic, "--from-beginning", "--max-messages", "2"),
        "create by token": (TOKENS, by_token, *create),
        "describe by another's token": (TOKENS, by_other["good"], "--describe", *owner),
        "describe by a wrong token": (TOKENS, by_other["wrong"], "--describe", *owner),
        "expire": (TOKENS, alice, "--expire", "--expiry-time-period", "-1", *named),
        "describe after": (TOKENS, alice, "--describe", *owner),
        "renew after": (TOKENS, alice, "--renew", "--renew-time-period", "-1", *named),
        "log in after": (TOKENS, by_token, "--describe", *owner),
    }
    given = [
        {
            "tool": f"org.apache.kafka.tools.{tool}",
            "arguments": [
                *("--bootstrap-server", broker.bootstrap_servers, "--command-config", config),
                *arguments,
            ],
            "input": "one\ntwo\n",
        }
        for tool, config, *arguments in calls.values()
    ]
    with pytest.MonkeyPatch.context() as environment:
        # Without them the client takes no token from a file.
        files = list(directory.glob("*.jwt"))
        allowed = {"urls": [each.as_uri() for each in files], "files": map(str, files)}
        options = (
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{kind}={','.join(each)}" for kind, each in allowed.items()
        )
        environment.setenv("JDK_JAVA_OPTIONS", " ".join(options))
        return dict(zip(calls, java.run("RunTools", given=given), strict=True))


def oauth_client(directory: Path, name: str, settings: Mapping[str, str], token: str) -> str:
    """The properties of a client that has ``token`` from a file."""
    file = directory / f"{name}.jwt"
    file.write_text(token)
    package = "org.apache.kafka.common.security.oauthbearer"
    own = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.jwt.retriever.class": f"{package}.FileJwtRetriever",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    return properties(directory / name, {**settings, **own})


def properties(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def outputs(results: Mapping[str, Any], *names: str) -> list[str]:
    """What calls printed that succeeded."""
    assert [results[name]["code"] for name in names] == [0] * len(names), [results[name] for name in names]
    return [results[name]["out"] for name in names]


def refusal(results: Mapping[str, Any], name: str) -> str:
    assert results[name]["code"] == 1, results[name]
    return str(results[name]["err"])


def test_the_tool_creates_and_describes_prolongs_and_ends_tokens(results: Mapping[str, Any], token_id: str) -> None:
    created, described, _, _, left = outputs(results, "create", "describe", "renew", "expire", "describe after")
    found = re.search("tokenId : (.*)", created)
    assert found is not None
    own = found[1]
    assert own != token_id
    row = rf"{own} +{re.escape(hmac_text(own))} +User:alice +User:alice +\[User:rita\] "
    for printed in (created, described, left):
        assert re.search(row, printed), printed
    assert f"{token_id} {hmac_text(token_id)}" in described
    assert token_id not in left
    assert "DelegationTokenNotFoundException" in refusal(results, "renew after")


def test_clients_log_in_by_a_token_until_it_ends(results: Mapping[str, Any]) -> None:
    _, read = outputs(results, "produce", "consume")
    assert read == "one\ntwo\n"
    assert "SaslAuthenticationException: Authentication failed" in refusal(results, "log in after")


def test_a_client_logs_in_by_a_token_of_another_authority(results: Mapping[str, Any]) -> None:
    [described] = outputs(results, "describe by another's token")
    assert "Total number of tokens : 2" in described
    assert 'SaslAuthenticationException: {"status":"invalid_token"}' in refusal(results, "describe by a wrong token")


def test_a_client_with_a_token_creates_no_other(results: Mapping[str, Any]) -> None:
    assert "and on delegation token authenticated channels" in refusal(results, "create by token")
