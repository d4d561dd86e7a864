"""Kafka's own tools against a cluster of four brokers: while all run, and then while one is missing.

One JVM runs the tools of each of the two times, in the order of the calls; each test judges what some of them printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from tests.compat.cluster_clients import WAIT_SECONDS
from tests.java_programs import Java
from tests.waits import eventually
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

ASKED, STALE, MISSING = 1, 4, 3
"""The broker that the tools ask; one that has missed what the missing one has written; the missing one."""

TOPICS = "TopicCommand"
REASSIGN = "reassign.ReassignPartitionsCommand"
LEADERS = "LeaderElectionCommand"
CONFIGS = "ConfigCommand"
QUORUM = "MetadataQuorumCommand"
CLUSTER = "ClusterTool"

Calls = Mapping[str, Sequence[str]]


def plan(path: Path, replicas: Sequence[int]) -> str:
    """A file that moves both partitions of ``moved``."""
    partitions = [{"topic": "moved", "partition": index, "replicas": list(replicas)} for index in (0, 1)]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def calls_while_all_run(directory: Path) -> Calls:
    moved = plan(directory / "moved.json", (2, 1, 4))
    settings = (CONFIGS, "--entity-type")
    another = (*settings, "brokers", "--entity-name", "2")
    return {
        "create": (TOPICS, "--create", "--topic", "moved", "--replica-assignment", "1:2:3,2:3:4"),
        "too many replicas": (TOPICS, "--create", "--topic", "wide", "--replication-factor", "5"),
        "describe": (TOPICS, "--describe", "--topic", "moved"),
        "execute": (REASSIGN, "--execute", "--reassignment-json-file", moved, "--throttle", "100000000"),
        "throttled topic": (*settings, "topics", "--entity-name", "moved", "--describe"),
        "elect": (LEADERS, "--election-type", "preferred", "--all-topic-partitions"),
        "describe moved": (TOPICS, "--describe", "--topic", "moved"),
        "set broker": (*another, "--alter", "--add-config", "log.retention.ms=12345"),
        "broker": (*another, "--describe"),
        "log directories": ("LogDirsCommand", "--describe", "--topic-list", "moved"),
        "offsets": ("GetOffsetShell", "--topic", "moved"),
        "quorum": (QUORUM, "describe", "--status"),
        "unregister": (CLUSTER, "unregister", "--id", "2"),
        "verify": (REASSIGN, "--verify", "--reassignment-json-file", moved),
        "topic": (*settings, "topics", "--entity-name", "moved", "--describe"),
        "unthrottled broker": (*another, "--describe"),
    }


def calls_while_one_is_missing(directory: Path) -> Calls:
    moved = plan(directory / "to-the-missing.json", (2, 1, MISSING))
    # Or it would ask the missing broker to take its throttle away, and wait for a minute, as with any Kafka.
    quietly = ("--preserve-throttles", "--reassignment-json-file", moved)
    stale = ("--topic", "lone", "--partition", "0")
    return {
        "leaderless": (TOPICS, "--describe", "--unavailable-partitions"),
        "elect preferred": (LEADERS, "--election-type", "preferred", *stale),
        "elect unclean": (LEADERS, "--election-type", "unclean", *stale),
        "led again": (TOPICS, "--describe", "--topic", "lone"),
        "list": (REASSIGN, "--list"),
        "verify": (REASSIGN, "--verify", *quietly),
        "cancel": (REASSIGN, "--cancel", *quietly),
        "list cancelled": (REASSIGN, "--list"),
        "unregister": (CLUSTER, "unregister", "--id", str(MISSING)),
        "endpoints": (CLUSTER, "list-endpoints", "--include-fenced-brokers"),
        "delete": (TOPICS, "--delete", "--topic", "moved"),
        "topics": (TOPICS, "--list"),
    }


def run_tools(java: Java, cluster: ClusterThread, calls: Calls) -> Mapping[str, Any]:
    """The exit code of each call and what it printed, by its name."""
    address = ["--bootstrap-server", cluster.address_of(ASKED)]
    given = [
        {
            "tool": f"org.apache.kafka.tools.{tool}",
            "arguments": [*arguments, *address] if tool == CLUSTER else [*address, *arguments],
        }
        for tool, *arguments in calls.values()
    ]
    return dict(zip(calls, java.run("RunTools", given=given), strict=True))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterThread]:
    with cluster_in_thread(brokers=4) as running:
        yield running


@pytest.fixture(scope="module")
def with_all(java: Java, cluster: ClusterThread, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return run_tools(java, cluster, calls_while_all_run(tmp_path_factory.mktemp("plans")))


@pytest.fixture(scope="module")
def with_one_missing(
    java: Java, cluster: ClusterThread, with_all: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    lone = {"lone": (TOPICS, "--create", "--topic", "lone", "--replica-assignment", f"{MISSING}:{STALE}")}
    outputs(run_tools(java, cluster, lone), "lone")
    cluster.kill(STALE)
    eventually(lambda: cluster.image.topics["lone"].partitions[0].isr == (MISSING,), WAIT_SECONDS)
    cluster.kill(MISSING)
    eventually(lambda: cluster.leader_of("lone") == -1, WAIT_SECONDS)
    cluster.restart(STALE)
    reassign_to_the_missing(cluster)
    return run_tools(java, cluster, calls_while_one_is_missing(tmp_path_factory.mktemp("plans")))


def reassign_to_the_missing(cluster: ClusterThread) -> None:
    """Begin what cannot end. Kafka's tool refuses to name a broker that does not run."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.address_of(ASKED))) as admin:
        admin.alter_partition_reassignments({TopicPartition("moved", index): [2, 1, MISSING] for index in (0, 1)})


def outputs(results: Mapping[str, Any], *names: str, code: int = 0) -> list[str]:
    """What calls printed that ended with ``code``."""
    assert [results[name]["code"] for name in names] == [code] * len(names), [results[name] for name in names]
    return [results[name]["out"] for name in names]


# --- while all brokers run ---


def test_a_topic_is_described_with_the_replicas_it_was_given(with_all: Mapping[str, Any]) -> None:
    [described] = outputs(with_all, "describe")
    assert "Leader: 1\tReplicas: 1,2,3\tIsr: 1,2,3" in described
    assert "Leader: 2\tReplicas: 2,3,4\tIsr: 2,3,4" in described


def test_more_replicas_than_brokers_are_refused(with_all: Mapping[str, Any]) -> None:
    [refused] = outputs(with_all, "too many replicas", code=1)
    assert "replication factor 5 is more than the 4 broker(s)" in refused


def test_replicas_move_and_the_preferred_ones_lead(with_all: Mapping[str, Any]) -> None:
    executed, _, described = outputs(with_all, "execute", "elect", "describe moved")
    assert "Successfully started partition reassignments for moved-0,moved-1" in executed
    assert described.count("Replicas: 2,1,4") == 2


def test_a_throttle_lasts_until_the_replicas_have_moved(with_all: Mapping[str, Any]) -> None:
    executed, throttled, during = outputs(with_all, "execute", "throttled topic", "broker")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in executed
    assert "leader.replication.throttled.replicas=0:1,0:2,0:3,1:2,1:3,1:4" in throttled
    assert "follower.replication.throttled.replicas=0:4,1:1" in throttled
    assert "leader.replication.throttled.rate=100000000" in during
    verified, after, unthrottled = outputs(with_all, "verify", "topic", "unthrottled broker")
    assert "Reassignment of partition moved-0 is completed." in verified
    assert ("throttled" in after, "throttled.rate=100000000" in unthrottled) == (False, False)


def test_a_broker_is_configured_by_way_of_another(with_all: Mapping[str, Any]) -> None:
    outputs(with_all, "set broker")
    [described] = outputs(with_all, "broker")
    assert "log.retention.ms=12345" in described


def test_each_broker_tells_its_log_directories(with_all: Mapping[str, Any]) -> None:
    [printed] = outputs(with_all, "log directories")
    assert "Received log directory information from brokers 1,2,3,4" in printed


def test_the_end_of_each_partition_is_asked_of_its_leader(with_all: Mapping[str, Any]) -> None:
    assert outputs(with_all, "offsets") == ["moved:0:0\nmoved:1:0\n"]


def test_the_quorum_has_a_leader(with_all: Mapping[str, Any]) -> None:
    [printed] = outputs(with_all, "quorum")
    assert "LeaderId:" in printed
    assert "HighWatermark:" in printed


def test_a_broker_that_runs_is_not_unregistered(with_all: Mapping[str, Any]) -> None:
    outputs(with_all, "unregister", code=1)
    assert "broker 2 is running: stop it first" in with_all["unregister"]["err"]


# --- while one is missing ---


def test_what_only_a_stale_replica_has_is_led_after_an_unclean_election(with_one_missing: Mapping[str, Any]) -> None:
    leaderless, elected, led = outputs(with_one_missing, "leaderless", "elect unclean", "led again")
    assert "Topic: lone\tPartition: 0\tLeader: none" in leaderless
    assert "Successfully completed leader election (UNCLEAN) for partitions lone-0" in elected
    assert f"Leader: {STALE}\t" in led


def test_the_missing_replica_is_not_elected_as_the_preferred_one(with_one_missing: Mapping[str, Any]) -> None:
    [printed] = outputs(with_one_missing, "elect preferred", code=1)
    assert "PreferredLeaderNotAvailableException" in printed + with_one_missing["elect preferred"]["err"]


def test_a_reassignment_to_the_missing_broker_stays_under_way_until_it_is_cancelled(
    with_one_missing: Mapping[str, Any],
) -> None:
    listed, verified, cancelled, left = outputs(with_one_missing, "list", "verify", "cancel", "list cancelled")
    assert f"adding: {MISSING}" in listed
    assert "Reassignment of partition moved-0 is still in progress." in verified
    assert "Successfully cancelled partition reassignments for: moved-0,moved-1" in cancelled
    assert left == "No partition reassignments found.\n"


def test_the_missing_broker_is_unregistered(with_one_missing: Mapping[str, Any]) -> None:
    printed, endpoints = outputs(with_one_missing, "unregister", "endpoints")
    assert f"Broker {MISSING} is no longer registered." in printed
    assert [line.split()[0] for line in endpoints.splitlines()[1:]] == ["1", "2", "4"]


def test_a_topic_is_deleted_while_a_broker_is_missing(with_one_missing: Mapping[str, Any]) -> None:
    _, topics = outputs(with_one_missing, "delete", "topics")
    assert topics == "lone\n"
