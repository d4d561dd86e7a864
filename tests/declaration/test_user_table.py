"""What a file declares of users, and how a mistake in it is reported."""

from __future__ import annotations

import pytest

from kafka_wire.acl import AclOperation, PatternType, ResourceType
from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.cli.declarations import GivenTexts, read_declarations
from trio_broker.declaration.declaration import DeclarationError, DeclaredUser
from trio_broker.declaration.declaration_file import read_declaration
from trio_broker.declaration.rights_text import GrantedRight
from trio_broker.declaration.user_table import Secrets

SECRETS = Secrets(lambda path: f"in {path}", lambda name: f"of {name}")


def read(text: str) -> tuple[DeclaredUser, ...]:
    return read_declaration("cluster.toml", text.encode(), SECRETS).users


def test_a_user_has_a_password_rights_and_quotas():
    [user] = read(
        "[users.orders-app]\npassword_file = '/run/p'\nmechanism = 'SCRAM-SHA-256'\n"
        "may = ['write:orders', 'read:returns-*']\ngroups = ['billing']\ntransactional_ids = ['t']\n"
        "[users.orders-app.quotas]\nproducer_byte_rate = 1_000\n"
    )
    assert user.rights == (
        GrantedRight(AclOperation.WRITE, ResourceType.TOPIC, "orders"),
        GrantedRight(AclOperation.READ, ResourceType.TOPIC, "returns-", PatternType.PREFIXED),
        GrantedRight(AclOperation.READ, ResourceType.GROUP, "billing"),
        GrantedRight(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"),
    )
    assert user.quotas == {"producer_byte_rate": 1000.0}
    assert user.credential is not None
    assert (user.credential.password, user.credential.mechanism) == ("in /run/p", ScramMechanism.SHA_256)
    assert "in /run/p" not in repr(user)


def test_a_password_may_come_from_a_variable_or_be_none_of_this_file():
    [one, other] = read("[users.one]\npassword_env = 'P'\n[users.'CN=other']\nmay = ['read:*']\n")
    assert one.credential is not None
    assert one.credential.password == "of P"
    assert other.credential is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("users = 1", "users has to be a table of tables, by their names"),
        ("[users.a]\npassword = 'secret'", "unknown key 'password'; did you mean password_env?"),
        ("[users.a]\npassword_file = 'f'\npassword_env = 'P'", "it needs either password_file or password_env"),
        ("[users.a]\npassword_file = 1", "password_file has to be a text"),
        ("[users.a]\nmechanism = 'PLAIN'", "mechanism has to be one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("[users.a]\nmay = 'write:orders'", "may has to be a list of texts"),
        ("[users.a]\nmay = ['orders']", "may: 'orders': the form is OPERATION:TOPIC"),
        ("[users.a]\nmay_not = ['orders']", "may_not: 'orders': the form is OPERATION:TOPIC"),
        ("[users.'*']\nquotas = {producer_byte_rate = 1}", "it is everybody, with rights alone; quotas of all are"),
        ("[users.a.quotas]\nproducer_byte_rate = true", "producer_byte_rate has to be a number above 0"),
        ("[users.a.quotas]\nproduce_byte_rate = 1", "unknown quota 'produce_byte_rate'; did you mean producer_"),
    ],
)
def test_a_mistake_is_one_line_without_a_password(text, reason):
    with pytest.raises(DeclarationError) as refusal:
        read(text)
    [line] = refusal.value.reasons
    assert reason in line
    assert "secret" not in line


def test_a_password_that_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("NO_SUCH", raising=False)
    file = tmp_path / "cluster.toml"
    file.write_text("[users.a]\npassword_file = '/nowhere'\n[users.b]\npassword_env = 'NO_SUCH'\n")
    with pytest.raises(DeclarationError) as refusal:
        read_declarations(file, GivenTexts((), ""))
    assert [each.partition("user ")[2] for each in refusal.value.reasons] == [
        "'a': /nowhere: No such file or directory",
        "'b': the variable NO_SUCH is not set",
    ]
