"""``trio-broker tokens`` against a broker that has delegation tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trio_broker.cli import main
from trio_broker.cli.client_properties import properties_text
from trio_broker.cli.tokens import YEAR_10000_MS, time_text
from trio_broker.testing.broker_thread import BrokerThread

MODULES = "org.apache.kafka.common.security"
HOUR = 3600
SETTINGS: dict[str, Any] = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required user_alice="secret" user_rita="secret" user_admin="secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "delegation.token.secret.key": "of the cluster",
    "connection.failed.authentication.delay.ms": "1",
}


class Tokens:
    """The commands of users by their passwords, and of those who log in by a token."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self.directory = directory

    def run(self, mechanism: str, login: str, *words: str) -> Result:
        file = self.directory / "client.properties"
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": login}
        file.write_text(properties_text(properties), encoding="ascii")
        return CliRunner().invoke(main, [*words, "--command-config", str(file), "--bootstrap-server", self.servers])

    def of(self, user: str, *words: str) -> Result:
        login = f'{MODULES}.plain.PlainLoginModule required username="{user}" password="secret";'
        return self.run("PLAIN", login, "tokens", *words)

    def answer(self, user: str, *words: str) -> Any:
        result = self.of(user, *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def listed(self, user: str, *words: str) -> list[str]:
        return [each["token"] for each in self.answer(user, "list", *words)]

    def by_token(self, token: Any, *words: str) -> Result:
        login = f'{MODULES}.scram.ScramLoginModule required username="{token["token"]}" password="{token["password"]}"'
        return self.run("SCRAM-SHA-256", f'{login} tokenauth="true";', *words)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    with BrokerThread(**SETTINGS) as broker:
        yield Tokens(broker.bootstrap_servers, tmp_path)


def test_a_token_is_created_used_prolonged_and_ended(tokens):
    token = tokens.answer("alice", "create", "--renewer", "rita", "--lifetime", str(HOUR))
    assert (token["owner"], token["renewers"], token["expires"]) == ("alice", ["rita"], token["latest"])
    assert tokens.by_token(token, "topics", "list").exit_code == 0
    refused = tokens.by_token(token, "tokens", "create")
    assert (refused.exit_code, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused.stderr) == (1, True)
    assert tokens.listed("rita") == tokens.listed("alice", "--user", "rita") == [token["token"]]
    assert tokens.listed("alice", "--user", "bob") == []
    assert tokens.answer("rita", "renew", token["token"], "--lifetime", "60")["expires"] < token["expires"]
    assert tokens.of("alice", "expire", token["token"], "--dry-run").exit_code == 0
    ended = tokens.of("alice", "expire", token["token"], "--execute")
    assert (ended.exit_code, ended.stdout.split()[-1]) == (0, "yes")
    assert tokens.listed("alice") == []
    assert "SASL_AUTHENTICATION_FAILED" in tokens.by_token(token, "topics", "list").stderr


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, "1970-01-01T00:00:00Z"), (253_402_300_799_999, "9999-12-31T23:59:59Z"), (YEAR_10000_MS, "never")],
)
def test_an_end_beyond_all_dates_is_none(timestamp_ms, text):
    assert time_text(timestamp_ms) == text


def test_a_password_is_shown_once_and_a_token_that_is_not_seen_is_none(tokens):
    made = tokens.of("alice", "create").stdout
    token_id, password = made.splitlines()[1].split()[0], made.splitlines()[2].removeprefix("password: ")
    assert password not in tokens.of("alice", "list").stdout + json.dumps(tokens.answer("alice", "list"))
    for words in (("renew", token_id), ("expire", token_id, "--execute")):
        refused = tokens.of("rita", *words)
        assert refused.exit_code == 1
        assert refused.stderr == f"trio-broker: there is no token {token_id!r} that you may see\n"
    assert tokens.of("alice", "renew", token_id).stdout.startswith(f"{token_id}: expires 20")


def test_a_token_of_another_owner_is_asked_for_by_name(tokens):
    assert "DELEGATION_TOKEN_AUTHORIZATION_FAILED" in tokens.of("alice", "create", "--owner", "rita").stderr
    token = tokens.answer("admin", "create", "--owner", "rita")
    assert token["owner"] == "rita"
    assert tokens.listed("rita", "--user", "rita") == [token["token"]]
    refused = tokens.of("admin", "renew", token["token"])
    assert "DELEGATION_TOKEN_OWNER_MISMATCH: only its owner and its renewers may do that" in refused.stderr
