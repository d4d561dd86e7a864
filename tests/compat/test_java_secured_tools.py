"""Kafka's tools over TLS with a login, by ``--command-config``, against a broker that asks for rights.

One JVM runs them all. The administrator makes a user and gives it rights, with which the user's own tools work, and
without which they say what Kafka's say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.compat.secured_clients import SecuredBroker, secured_broker
from tests.java_programs import Java

pytestmark = pytest.mark.soak
"""A JVM of their own, and a tool that asks until its time is over."""

CONSUMER = "consumer.ConsoleConsumer"
GROUPS = "consumer.group.ConsumerGroupCommand"
ACLS, CONFIGS, TOPICS, PRODUCER = "AclCommand", "ConfigCommand", "TopicCommand", "ConsoleProducer"
OFFSETS = "GetOffsetShell"

BOB = ("--entity-type", "users", "--entity-name", "bob")
SECRET = "SCRAM-SHA-512=[iterations=4096,password=bob-secret]"
MAY_WRITE = ("--allow-principal", "User:bob", "--producer", "--topic", "made")
MAY_READ = ("--allow-principal", "User:bob", "--consumer", "--topic", "made", "--group", "readers")
READ = (CONSUMER, "--topic", "made", "--group", "readers", "--from-beginning", "--max-messages", "2")

CALLS: Mapping[str, tuple[str, ...]] = {
    "create": ("admin", TOPICS, "--create", "--topic", "made"),
    "create user": ("admin", CONFIGS, "--alter", *BOB, "--add-config", SECRET),
    "set quota": ("admin", CONFIGS, "--alter", *BOB, "--add-config", "producer_byte_rate=1000000"),
    "user": ("admin", CONFIGS, "--describe", *BOB),
    "refused topics": ("bob", TOPICS, "--list"),
    "refused describe": ("bob", TOPICS, "--describe", "--topic", "made"),
    "refused write": ("bob", PRODUCER, "--topic", "made"),
    "refused acls": ("bob", ACLS, "--list"),
    "refused configs": ("bob", CONFIGS, "--alter", *BOB, "--add-config", SECRET),
    "refused create": ("bob", TOPICS, "--create", "--topic", "other"),
    "may write": ("admin", ACLS, "--add", *MAY_WRITE),
    "write": ("bob", PRODUCER, "--topic", "made"),
    "refused read": ("bob", *READ, "--timeout-ms", "10000"),
    "may read": ("admin", ACLS, "--add", *MAY_READ),
    "read": ("bob", *READ, "--timeout-ms", "30000"),
    "topics": ("bob", TOPICS, "--list"),
    "groups": ("bob", GROUPS, "--list"),
    "group": ("bob", GROUPS, "--describe", "--group", "readers"),
    "refused group": ("bob", GROUPS, "--describe", "--group", "others"),
    "acls": ("admin", ACLS, "--list", "--principal", "User:bob"),
    "may not write": ("admin", ACLS, "--remove", "--force", *MAY_WRITE),
    "acls after": ("admin", ACLS, "--list", "--topic", "made"),
    "write again": ("bob", PRODUCER, "--topic", "made"),
    "offsets": ("admin", OFFSETS, "--topic", "made"),
    "unset quota": ("admin", CONFIGS, "--alter", *BOB, "--delete-config", "producer_byte_rate"),
    "remove user": ("admin", CONFIGS, "--alter", *BOB, "--delete-config", "SCRAM-SHA-512"),
    "no user": ("admin", CONFIGS, "--describe", *BOB),
    "locked out": ("bob", TOPICS, "--list"),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker


@pytest.fixture(scope="module")
def results(java: Java, secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    directory = tmp_path_factory.mktemp("properties")
    bob = secured.case("SCRAM-SHA-512", user="bob", password="bob-secret")
    for name, login in (("admin", secured.admin), ("bob", bob)):
        (directory / name).write_text("".join(f"{key}={value}\n" for key, value in login.java.items()))
    given = [
        {
            "tool": f"org.apache.kafka.tools.{tool}",
            "arguments": [
                *("--bootstrap-server", secured.servers("LOGIN"), "--command-config", str(directory / user), *arguments)
            ],
            "input": "one\ntwo\n",
        }
        for user, tool, *arguments in CALLS.values()
    ]
    return dict(zip(CALLS, java.run("RunTools", given=given), strict=True))


def printed(results: Mapping[str, Any], name: str, code: int = 0) -> str:
    """What a call printed that ended with ``code``."""
    assert results[name]["code"] == code, results[name]
    return str(results[name]["out"] + results[name]["err"])


def test_the_administrator_makes_a_user_with_a_quota_and_removes_both(results: Mapping[str, Any]) -> None:
    assert printed(results, "create") == "Created topic made.\n"
    for name in ("create user", "set quota", "unset quota", "remove user"):
        assert printed(results, name) == "Completed updating config for user bob.\n"
    assert printed(results, "user").splitlines() == [
        "Quota configs for user-principal 'bob' are producer_byte_rate=1000000.0",
        "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-512=iterations=4096",
    ]
    assert "bob" not in printed(results, "no user")
    assert "Authentication failed during authentication due to invalid credentials" in printed(results, "locked out", 1)


def test_a_user_without_rights_reads_which_one_is_missing(results: Mapping[str, Any]) -> None:
    assert printed(results, "refused topics").strip() == ""
    assert "Topic 'made' does not exist as expected" in printed(results, "refused describe", 1)
    assert "ClusterAuthorizationException: not authorized: DESCRIBE on CLUSTER" in printed(results, "refused acls", 1)
    assert "ClusterAuthorizationException: not authorized: ALTER on CLUSTER" in printed(results, "refused configs", 1)
    assert "not authorized: CREATE on TOPIC" in printed(results, "refused create", 1)
    assert "GroupAuthorizationException" in printed(results, "refused group")
    assert "Processed a total of 0 messages" in printed(results, "refused read")


def test_entries_are_added_listed_and_removed_and_count_at_once(results: Mapping[str, Any]) -> None:
    """Two records were written while that was allowed, none before and none after."""
    for name in ("may write", "may read"):
        assert "Adding ACLs for resource" in printed(results, name)
    assert printed(results, "read").startswith("one\ntwo\n")
    assert printed(results, "topics").split() == ["made"]
    assert printed(results, "groups").split() == ["readers"]
    assert "readers         made            0          2               2" in printed(results, "group")
    listed = printed(results, "acls")
    assert [listed.count(f"operation={each}, permissionType=ALLOW") for each in ("DESCRIBE", "WRITE", "CREATE")] == [
        1
    ] * 3
    assert listed.count("operation=READ, permissionType=ALLOW") == 2
    printed(results, "may not write")
    assert printed(results, "acls after").count("permissionType=ALLOW") == 1
    assert printed(results, "offsets") == "made:0:2\n"
