"""Groups as Java's Admin client and Kafka's own tools see and change them, and the workers of Kafka Connect.

``GroupAdminSteps`` of ``tests/compat/java`` finds the same with our broker as with Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.java_programs import Java, Steps
from tests.waits import flushed
from trio_broker.testing.process import BrokerProcess

SECONDS = 30


@pytest.fixture(scope="module")
def broker(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "log.durability": "page-cache",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with BrokerProcess(tmp_path_factory.mktemp("administered"), overrides=settings, has_admin=False) as process:
        yield process


@pytest.fixture(scope="module")
def steps(java: Java, broker: BrokerProcess) -> Steps:
    return Steps(java.run("GroupAdminSteps", broker.bootstrap_servers))


def listing(type_: str, *, protocol: str = "consumer", state: str = "Stable", simple: bool = False) -> dict[str, Any]:
    return {"type": type_, "protocol": protocol, "state": state, "simple": simple}


def member(partitions: int, *, modern: bool = False) -> dict[str, Any]:
    """What is described of a member: those of KIP-848 also tell their target, epoch, and that they speak it."""
    return {
        "client": "member",
        "host": "/127.0.0.1",
        "partitions": partitions,
        "target": True if modern else None,
        "epoch": modern,
        "upgraded": True if modern else None,
    }


def description(
    type_: str, state: str, assignor: str, *, simple: bool = False, epochs: bool = False, **members: dict[str, Any]
) -> dict[str, Any]:
    """``epochs``: whether those of group and assignment are reported and equal. ``loose`` is a dynamic member."""
    return {
        "type": type_,
        "state": state,
        "simple": simple,
        "assignor": assignor,
        "coordinator": 1,
        "epochs": epochs,
        "members": {name.replace("loose", "-"): each for name, each in members.items()},
    }


def test_java_lists_a_classic_group_by_type_and_state(steps: Steps) -> None:
    assert steps.result("share")
    assert steps.result("list classic") == listing("Classic")
    assert steps.result("list by type") == listing("Classic")
    assert steps.result("list by another type") is None
    assert steps.result("list by state") == listing("Classic")
    assert steps.result("list by another state") is None


def test_java_describes_a_classic_group(steps: Steps) -> None:
    assert steps.result("describe classic") == description(
        "Classic", "Stable", "range", fixed=member(1), loose=member(1)
    )


def test_java_lists_offsets_with_their_metadata(steps: Steps) -> None:
    assert steps.result("offsets") == {"0": [3, "by hand"], "1": [4, ""]}
    assert steps.result("some offsets") == {"1": [4, ""], "7": None}


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("alter while there are members", "UnknownMemberIdException"),
        ("delete while there are members", "GroupNotEmptyException"),
        ("delete offsets of what is subscribed to", "GroupSubscribedToTopicException"),
        ("remove a member that is not there", "UnknownMemberIdException"),
        ("delete again", "GroupIdNotFoundException"),
        ("describe nothing", "GroupIdNotFoundException"),
        ("alter while there are consumers", "UnknownMemberIdException"),
        ("delete while there are consumers", "GroupNotEmptyException"),
        ("delete offsets of what consumers are subscribed to", "GroupSubscribedToTopicException"),
    ],
)
def test_java_gets_the_exception_that_kafka_would_give_about_a_group(steps: Steps, step: str, error: str) -> None:
    assert steps.error(step) == error


def test_java_removes_a_static_member_and_then_everybody_and_they_may_come_back(steps: Steps) -> None:
    assert steps.result("remove a static member") == description("Classic", "Stable", "range", loose=member(2))
    assert steps.result("remove everybody") == description("Classic", "Empty", "")
    assert steps.result("a removed member comes back")


def test_java_alters_and_deletes_offsets_and_then_the_group(steps: Steps) -> None:
    assert steps.result("alter") == {"0": [1, "altered"], "1": [4, ""]}
    assert steps.result("delete offsets") == {"1": [4, ""]}
    assert steps.result("delete") is None
    assert steps.result("offsets of nothing") == {}


def test_java_administers_a_group_of_kip_848(steps: Steps) -> None:
    assert steps.result("share as consumers")
    assert steps.result("list consumers") == listing("Consumer")
    assert steps.result("describe consumers") == description(
        "Consumer", "Stable", "uniform", epochs=True, fixed=member(1, modern=True), loose=member(1, modern=True)
    )
    empty = steps.result("describe a consumer group without members")
    assert (empty["state"], empty["members"]) == ("Empty", {})
    assert steps.result("alter offsets of a consumer group") == {"0": [1, "altered"]}
    assert steps.result("delete offsets of a consumer group") == {}
    assert steps.result("delete a consumer group") is None


def test_java_makes_a_group_of_nothing_but_offsets(steps: Steps) -> None:
    assert steps.result("alter offsets of no group") == {"0": [5, "altered"]}
    assert steps.result("list simple") == listing("Classic", protocol="", state="Empty", simple=True)
    assert steps.result("describe simple") == description("Classic", "Empty", "", simple=True)


@pytest.mark.parametrize(("protocol", "data"), [("eager", "default"), ("sessioned", "sessioned")])
def test_workers_of_kafka_connect_share_their_connectors_and_tasks(steps: Steps, protocol: str, data: str) -> None:
    """Their protocol type is their own, and so is what they tell each other: to the broker it is bytes."""
    assert steps.result(f"connect {protocol}") == {
        "listed": listing("Classic", protocol="connect"),
        "consumers": None,
        "protocol": "connect",
        "data": data,
        "members": 2,
    }


# The command line tools


def columns(printed: str, *names: str) -> list[tuple[str, ...]]:
    """The named columns of a table that kafka-consumer-groups printed, without its header."""
    header, *lines = [line.split() for line in printed.splitlines() if line.strip()]
    return [tuple(line[header.index(name)] for name in names) for line in lines]


def test_kafka_consumer_groups_and_the_console_consumer_work_with_groups(java: Java, broker: BrokerProcess) -> None:
    """kafka-console-consumer --group, kafka-groups, and kafka-consumer-groups with all that it can do."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(5):
        producer.produce("lagging", b"line %d" % number, partition=0)
    assert flushed(producer, SECONDS)
    server = ("--bootstrap-server", broker.bootstrap_servers)

    def tool(name: str, *arguments: str) -> dict[str, Any]:
        return {"tool": f"org.apache.kafka.tools.{name}", "arguments": [*server, *arguments]}

    def read(count: int, *properties: str) -> dict[str, Any]:
        settings = [argument for each in properties for argument in ("--command-property", each)]
        topic = ("--topic", "lagging", "--from-beginning", "--max-messages", str(count))
        return tool("consumer.ConsoleConsumer", *topic, "--group", "readers", *settings)

    def groups(*arguments: str) -> dict[str, Any]:
        return tool("consumer.group.ConsumerGroupCommand", *arguments)

    this = ("--group", "readers")
    results = java.run(
        "RunTools",
        given=[
            read(2),
            groups("--describe", *this),
            read(2, "group.protocol=consumer"),
            groups("--describe", *this, "--offsets"),
            groups("--describe", *this, "--state"),
            groups("--describe", *this, "--members"),
            groups("--list", "--state"),
            tool("GroupsCommand", "--list"),
            groups("--reset-offsets", *this, "--topic", "lagging", "--shift-by", "-1", "--dry-run"),
            groups("--describe", *this),
            groups("--reset-offsets", *this, "--topic", "lagging", "--to-earliest", "--execute"),
            groups("--describe", *this),
            groups("--delete-offsets", *this, "--topic", "lagging"),
            groups("--delete", *this),
            groups("--list"),
        ],
    )
    printed = [one["out"] for one in results]
    lag = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")

    assert [one["code"] for one in results] == [0] * 15, results
    assert printed[0] == "line 0\nline 1\n"
    assert columns(printed[1], *lag) == [("0", "2", "5", "3")]
    assert printed[2] == "line 2\nline 3\n"
    assert columns(printed[3], *lag) == [("0", "4", "5", "1")]
    assert "Empty" in printed[4]
    assert "has no active members" in printed[5] + results[5]["err"]
    assert ("readers", "Empty") in columns(printed[6], "GROUP", "STATE")
    assert ["readers", "Consumer", "consumer"] in [line.split() for line in printed[7].splitlines()]
    assert columns(printed[8], "PARTITION", "NEW-OFFSET") == [("0", "3")]
    assert columns(printed[9], *lag) == [("0", "4", "5", "1")]
    assert columns(printed[10], "PARTITION", "NEW-OFFSET") == [("0", "0")]
    assert columns(printed[11], *lag) == [("0", "0", "5", "5")]
    assert "successful" in printed[13]
    assert "readers" not in printed[14].split()
