"""``trio-broker users`` against a broker that denies by default."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kafka_wire.error_codes import ErrorCode
from trio_broker.cli import main
from trio_broker.cli.client_properties import properties_text, scram_properties
from trio_broker.client.acls import create_acls
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.security.standard_acl import StandardAcl
from trio_broker.testing.broker_thread import BrokerThread

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTINGS: dict[str, Any] = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_admin="secret";',
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


class Users:
    """The commands of the super user, and of others by what they log in with."""

    def __init__(self, servers: str, directory: Path) -> None:
        self.servers = servers
        self.directory = directory
        self.admin = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} username="admin" password="secret";',
        }

    def run(self, *words: str, given: str | None = None, properties: dict[str, str] | None = None) -> Result:
        file = self.directory / "client.properties"
        file.write_text(properties_text(properties or self.admin), encoding="ascii")
        options = ("--command-config", str(file), "--bootstrap-server", self.servers)
        return CliRunner().invoke(main, [*words, *options], input=given)

    def __call__(self, *words: str, given: str | None = None) -> str:
        result = self.run("users", *words, given=given)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refusal(self, *words: str) -> str:
        result = self.run("users", *words)
        assert result.exit_code == 1, result.output
        return result.stderr

    def produces(self, topic: str, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> str:
        """Why a user cannot write a record to ``topic``, empty if it can."""
        properties = {"security.protocol": "SASL_PLAINTEXT", **scram_properties(user, password, mechanism)}
        result = self.run("produce", topic, given="one\n", properties=properties)
        return "" if result.exit_code == 0 else result.stderr

    def login_failure(self, user: str, password: str) -> str:
        properties = {"security.protocol": "SASL_PLAINTEXT", **scram_properties(user, password, "SCRAM-SHA-512")}
        return self.run("topics", "list", properties=properties).stderr

    def listed(self) -> dict[str, tuple[list[str], list[str]]]:
        return {each["user"]: (each["mechanisms"], each["rights"]) for each in json.loads(self("list", "--json"))}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with BrokerThread(**SETTINGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def users(servers: str, tmp_path: Path) -> Users:
    return Users(servers, tmp_path)


def test_a_user_may_what_is_named_and_nothing_else(users):
    for topic in ("orders", "payments"):
        assert users.run("topics", "create", topic).exit_code == 0
    printed = users("create", "orders-app", "--may", "write:orders", "read:returns", "--group", "billing")
    first, second = printed.splitlines()
    assert first == "orders-app: created, may write:orders read:returns read:group:billing"
    password = second.removeprefix("password: ")
    assert len(password) == 24
    assert users.produces("orders", "orders-app", password) == ""
    assert "TOPIC_AUTHORIZATION_FAILED" in users.produces("payments", "orders-app", password)
    assert "SASL_AUTHENTICATION_FAILED" in users.login_failure("orders-app", password + "x")
    assert users.listed()["orders-app"] == (
        ["SCRAM-SHA-512"],
        ["read:group:billing", "read:returns", "write:orders"],
    )
    assert "exists; trio-broker users password" in users.refusal("create", "orders-app")
    changed = users("password", "orders-app", "--password-file", "-", given="chosen\n")
    assert changed == "orders-app: has another password\n"
    assert users.produces("orders", "orders-app", "chosen") == ""
    assert "no terminal to ask on" in users.refusal("delete", "orders-app")
    users("delete", "orders-app", "--execute")
    assert "orders-app" not in users.listed()
    assert "there is no user" in users.refusal("delete", "orders-app", "--execute")


def test_a_password_from_a_file_is_not_printed_and_rights_may_be_prefixes(users, tmp_path):
    (tmp_path / "password").touch(0o600)
    (tmp_path / "password").write_text("from a file\n")
    printed = users(
        "create", "reports", "--may", "read:sales-*", "--group", "*", "--transactional-id", "t", "--mechanism",
        "SCRAM-SHA-256", "--password-file", str(tmp_path / "password"), "--json",
    )  # fmt: skip
    rights = ["read:sales-*", "read:group:*", "write:transactional-id:t"]
    assert json.loads(printed) == {"user": "reports", "rights": rights}
    assert users.listed()["reports"] == (["SCRAM-SHA-256"], sorted(rights))


def test_rights_are_taken_back_where_the_password_is_refused(users, monkeypatch):
    def refuse(*_: object) -> None:
        raise Refused("user 'eve'", ErrorCode.UNACCEPTABLE_CREDENTIAL)

    monkeypatch.setattr("trio_broker.cli.users.set_password", refuse)
    refused = users.refusal("create", "eve", "--may", "write:orders", "--group", "g")
    assert "UNACCEPTABLE_CREDENTIAL" in refused
    assert "nothing was created" in refused
    assert "eve" not in users.listed()


def test_rights_of_which_one_is_refused_are_taken_back_but_for_those_that_were_there(users, monkeypatch):
    def refuse_last(client: KafkaClient, acls: Sequence[StandardAcl]) -> dict[StandardAcl, Refused | None]:
        return {**create_acls(client, acls[:-1]), acls[-1]: Refused("entry", ErrorCode.INVALID_REQUEST)}

    users("create", "mallory", "--may", "write:orders")
    monkeypatch.setattr("trio_broker.cli.users.describe_users", lambda *_: {})
    monkeypatch.setattr("trio_broker.cli.users.create_acls", refuse_last)
    refused = users.refusal("create", "mallory", "--may", "write:orders", "read:orders", "read:returns")
    monkeypatch.undo()
    assert "INVALID_REQUEST" in refused
    assert "nothing was created" in refused
    assert users.listed()["mallory"][1] == ["write:orders"]


@pytest.mark.parametrize(
    ("right", "reason"),
    [
        ("orders", "the form is OPERATION:TOPIC, as in write:orders"),
        ("produce:orders", "'produce' is none of read, write"),
    ],
)
def test_a_right_that_is_none_is_a_wrong_option(users, right, reason):
    result = users.run("users", "create", "eve", "--may", right)
    assert (result.exit_code, reason in result.stderr) == (2, True)
