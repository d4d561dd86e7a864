"""Kafka's tools for what a cluster decides against a real broker process: elections, reassignments, features, ACLs,
quotas and SCRAM users.

One JVM runs them all, in the order of ``calls``; each test judges what some of them printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.java_programs import Java
from trio_broker.testing.process import BrokerProcess

LEADERS = "LeaderElectionCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
FEATURES = "FeatureCommand"
ACLS = "AclCommand"
CONFIGS = "ConfigCommand"
METRICS = "ClientMetricsCommand"
CLUSTER = "ClusterTool"

THIS_BROKER = 1
NO_BROKER = 9


def calls(directory: Path) -> dict[str, tuple[str, ...]]:
    """A tool and its arguments, by a name for the call. Plans of reassignments lie in ``directory``."""
    topics = write_json(directory / "topics.json", {"version": 1, "topics": [{"topic": "moved"}]})
    here = write_json(directory / "here.json", plan(THIS_BROKER))
    away = write_json(directory / "away.json", plan(NO_BROKER))
    partition = ("--topic", "moved", "--partition", "0")
    group = (CONFIGS, "--entity-type", "groups", "--entity-name", "night-shift")
    logger = (CONFIGS, "--entity-type", "broker-loggers", "--entity-name", "1")
    metrics = (METRICS, "--name", "slow")
    return {
        "create": ("TopicCommand", "--create", "--topic", "moved", "--partitions", "2"),
        "elect all": (LEADERS, "--election-type", "preferred", "--all-topic-partitions"),
        "elect preferred": (LEADERS, "--election-type", "preferred", *partition),
        "elect unclean": (LEADERS, "--election-type", "unclean", *partition),
        "elect unknown": (LEADERS, "--election-type", "preferred", "--topic", "unknown", "--partition", "0"),
        "generate": (REASSIGN, "--generate", "--topics-to-move-json-file", topics, "--broker-list", str(THIS_BROKER)),
        "execute": (REASSIGN, "--execute", "--reassignment-json-file", here),
        "verify": (REASSIGN, "--verify", "--reassignment-json-file", here),
        "execute throttled": (REASSIGN, "--execute", "--reassignment-json-file", here, "--throttle", "1000000"),
        "throttled topic": (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved"),
        "verify throttled": (REASSIGN, "--verify", "--reassignment-json-file", here),
        "unthrottled topic": (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "moved"),
        "list": (REASSIGN, "--list"),
        "cancel": (REASSIGN, "--cancel", "--reassignment-json-file", here),
        "execute away": (REASSIGN, "--execute", "--reassignment-json-file", away),
        "features": (FEATURES, "describe"),
        "dry run": (FEATURES, "downgrade", "--feature", "group.version=0", "--dry-run"),
        "still on": (FEATURES, "describe"),
        "disable": (FEATURES, "disable", "--feature", "group.version"),
        "off": (FEATURES, "describe"),
        "upgrade": (FEATURES, "upgrade", "--feature", "group.version=1"),
        "on": (FEATURES, "describe"),
        "unknown level": (FEATURES, "upgrade", "--feature", "group.version=7"),
        "unknown feature": (FEATURES, "upgrade", "--feature", "share.version=1"),
        "list acls": (ACLS, "--list"),
        "add acl": (ACLS, "--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "moved"),
        "remove acls": (ACLS, "--remove", "--force", "--topic", "moved"),
        "users": (CONFIGS, "--describe", "--entity-type", "users"),
        "user": (CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "ann"),
        "user defaults": (CONFIGS, "--describe", "--entity-type", "users", "--entity-default"),
        "clients": (CONFIGS, "--describe", "--entity-type", "clients"),
        "addresses": (CONFIGS, "--describe", "--entity-type", "ips"),
        "set group": (*group, "--alter", "--add-config", "consumer.session.timeout.ms=50000"),
        "bad group setting": (*group, "--alter", "--add-config", "consumer.session.timeout.ms=5"),
        "group": (*group, "--describe"),
        "groups": (CONFIGS, "--describe", "--entity-type", "groups"),
        "unset group": (*group, "--alter", "--delete-config", "consumer.session.timeout.ms"),
        "group without": (*group, "--describe"),
        "loggers": (*logger, "--describe"),
        "set logger": (*logger, "--alter", "--add-config", "trio_broker.cluster=DEBUG"),
        "logger": (*logger, "--describe"),
        "unset logger": (*logger, "--alter", "--delete-config", "trio_broker.cluster"),
        "logger without": (*logger, "--describe"),
        "unset root logger": (*logger, "--alter", "--delete-config", "root"),
        "unknown logger level": (*logger, "--alter", "--add-config", "trio_broker.cluster=LOUD"),
        "brokers": (CONFIGS, "--describe", "--entity-type", "brokers"),
        "client metrics": (CONFIGS, "--describe", "--entity-type", "client-metrics", "--entity-name", "m"),
        "unregister another": (CLUSTER, "unregister", "--id", str(NO_BROKER)),
        "unregister": (CLUSTER, "unregister", "--id", str(THIS_BROKER)),
        "subscribe": (*metrics, "--alter", "--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=x.*"),
        "subscribe too often": (*metrics, "--alter", "--interval", "99"),
        "subscriptions": (METRICS, "--list"),
        "subscription": (*metrics, "--describe"),
        "unsubscribe": (*metrics, "--delete"),
        "no subscriptions": (METRICS, "--list"),
    }


def plan(broker_id: int) -> Any:
    partitions = [{"topic": "moved", "partition": index, "replicas": [broker_id]} for index in (0, 1)]
    return {"version": 1, "partitions": partitions}


def write_json(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


@pytest.fixture(scope="module")
def results(java: Java, tmp_path_factory: pytest.TempPathFactory, broker: BrokerProcess) -> Mapping[str, Any]:
    """The exit code of each call and what it printed, by its name."""
    wanted = calls(tmp_path_factory.mktemp("plans"))
    given = [
        {
            "tool": f"org.apache.kafka.tools.{tool}",
            "arguments": with_address(tool, arguments, broker.bootstrap_servers),
        }
        for tool, *arguments in wanted.values()
    ]
    return dict(zip(wanted, java.run("RunTools", given=given), strict=True))


def with_address(tool: str, arguments: Sequence[str], bootstrap_servers: str) -> list[str]:
    """The arguments of a tool and where it shall connect, which one of them takes behind its subcommand only."""
    address = ["--bootstrap-server", bootstrap_servers]
    return [*arguments, *address] if tool == CLUSTER else [*address, *arguments]


def outputs(results: Mapping[str, Any], *names: str, code: int = 0) -> list[str]:
    """What calls printed that ended with ``code``."""
    assert [results[name]["code"] for name in names] == [code] * len(names), [results[name] for name in names]
    return [results[name]["out"] for name in names]


# --- kafka-leader-election ---


def test_a_partition_has_its_preferred_leader_already(results: Mapping[str, Any]) -> None:
    assert (
        outputs(results, "elect preferred", "elect unclean")
        == ["Valid replica already elected for partitions moved-0\n"] * 2
    )


def test_nothing_is_left_to_elect_of_all_partitions(results: Mapping[str, Any]) -> None:
    assert outputs(results, "elect all") == [""]


def test_an_unknown_topic_has_no_leader_to_elect(results: Mapping[str, Any]) -> None:
    [printed] = outputs(results, "elect unknown", code=1)
    assert "UnknownTopicOrPartitionException: No such topic as unknown" in printed


# --- kafka-reassign-partitions ---


def test_a_reassignment_to_this_broker_is_generated_executed_and_complete(results: Mapping[str, Any]) -> None:
    generated, executed, verified = outputs(results, "generate", "execute", "verify")
    proposed = json.loads(generated.rstrip().rpartition("\n")[2])
    assert [(item["partition"], item["replicas"]) for item in proposed["partitions"]] == [(0, [1]), (1, [1])]
    assert "Successfully started partition reassignments for moved-0,moved-1" in executed
    assert "Reassignment of partition moved-0 is completed." in verified
    assert "Reassignment of partition moved-1 is completed." in verified


def test_a_throttled_reassignment_sets_its_throttles_and_takes_them_away(results: Mapping[str, Any]) -> None:
    executed, throttled, verified, after = outputs(
        results, "execute throttled", "throttled topic", "verify throttled", "unthrottled topic"
    )
    assert "throttle limit was set to 1000000 B/s" in executed
    assert "leader.replication.throttled.replicas=0:1,1:1" in throttled
    assert "Clearing broker-level throttles on broker 1" in verified
    assert "throttled" not in after


def test_no_reassignment_is_listed_or_can_be_cancelled(results: Mapping[str, Any]) -> None:
    listed, cancelled = outputs(results, "list", "cancel")
    assert listed == "No partition reassignments found.\n"
    assert "None of the specified partition reassignments are active." in cancelled


def test_there_is_no_other_broker_to_move_to(results: Mapping[str, Any]) -> None:
    [printed] = outputs(results, "execute away", code=1)
    assert f"Unknown broker id {NO_BROKER}" in printed


# --- kafka-features ---


def level(described: str) -> int:
    """The finalized level of the consumer protocol's feature."""
    [line] = [each for each in described.splitlines() if "group.version" in each]
    words = line.split()
    assert words[:2] == ["Feature:", "group.version"]
    return int(words[words.index("FinalizedVersionLevel:") + 1])


def test_the_consumer_protocol_is_switched_off_and_on_again(results: Mapping[str, Any]) -> None:
    disabled, upgraded = outputs(results, "disable", "upgrade")
    assert (disabled, upgraded) == ("group.version was disabled.\n", "group.version was upgraded to 1.\n")
    assert [level(described) for described in outputs(results, "features", "off", "on")] == [1, 0, 1]


def test_a_dry_run_says_what_could_be_done_and_does_nothing(results: Mapping[str, Any]) -> None:
    dry_run, described = outputs(results, "dry run", "still on")
    assert dry_run == "group.version can be downgraded to 0.\n"
    assert level(described) == 1


def test_levels_and_features_that_are_not_known_are_refused(results: Mapping[str, Any]) -> None:
    unknown_level, unknown_feature = outputs(results, "unknown level", "unknown feature", code=1)
    assert "Local controller 1 only supports versions 0-1" in unknown_level
    assert "Local controller 1 does not support this feature." in unknown_feature


# --- kafka-acls and kafka-configs ---


def test_without_an_authorizer_there_are_no_acls(results: Mapping[str, Any]) -> None:
    for printed in outputs(results, "list acls", "add acl", "remove acls", code=1):
        assert "SecurityDisabledException: No Authorizer is configured" in printed


def test_no_user_client_or_address_has_settings_of_its_own(results: Mapping[str, Any]) -> None:
    """The first two ask for quotas and for SCRAM credentials."""
    names = ("users", "user", "user defaults", "clients", "addresses")
    assert outputs(results, *names) == [""] * len(names)
    assert [results[name]["err"] for name in names] == [""] * len(names)


# --- kafka-configs ---


def test_a_group_has_settings_of_its_own(results: Mapping[str, Any]) -> None:
    completed, described, groups = outputs(results, "set group", "group", "groups")
    assert "Completed updating config for group night-shift." in completed
    assert "consumer.session.timeout.ms=50000" in described
    assert "night-shift" in groups


def test_a_group_setting_outside_the_brokers_bounds_is_refused(results: Mapping[str, Any]) -> None:
    outputs(results, "bad group setting", code=1)
    [described] = outputs(results, "group")
    assert "consumer.session.timeout.ms=50000" in described


def test_a_group_setting_can_be_taken_away(results: Mapping[str, Any]) -> None:
    _, described = outputs(results, "unset group", "group without")
    assert "consumer.session.timeout.ms" not in described


def test_a_level_of_a_logger_is_set_and_taken_away_again(results: Mapping[str, Any]) -> None:
    _, described, _, without = outputs(results, "set logger", "logger", "unset logger", "logger without")
    assert "trio_broker.cluster=DEBUG" in described
    assert "trio_broker.cluster.controller=DEBUG" in described
    assert "trio_broker.cluster=DEBUG" not in without
    assert "the root logger always has a level of its own" in results["unset root logger"]["err"]
    assert "the level must be one of TRACE, DEBUG" in results["unknown logger level"]["err"]


def test_loggers_brokers_and_client_metrics_are_described(results: Mapping[str, Any]) -> None:
    loggers, brokers, metrics = outputs(results, "loggers", "brokers", "client metrics")
    assert "trio_broker" in loggers
    assert "Default configs for brokers in the cluster are:" in brokers
    assert "'m' doesn't exist" in metrics


def test_subscriptions_to_client_metrics_are_made_listed_described_and_deleted(results: Mapping[str, Any]) -> None:
    _, listed, described, _, listed_after = outputs(
        results, "subscribe", "subscriptions", "subscription", "unsubscribe", "no subscriptions"
    )
    assert listed.splitlines()[-1] == "slow"
    settings = {line.strip() for line in described.splitlines()}
    assert settings >= {"interval.ms=1000", "metrics=a.,b.", "match=client_id=x.*"}
    assert "slow" not in listed_after
    assert "interval must be between 100 and 3600000" in str(results["subscribe too often"])


# --- kafka-cluster ---


def test_the_only_broker_cannot_be_unregistered_and_another_is_not_registered(results: Mapping[str, Any]) -> None:
    assert "Broker ID 9 is not currently registered" in str(results["unregister another"])
    assert "broker 1 is the whole cluster" in str(results["unregister"])
