"""``trio-broker topics | configs | groups`` as a user meets them, against our broker and against Kafka itself.

The commands run in the process of the tests, because a start takes far longer than any of them;
``test_docs_commands.py`` starts each as a process of its own. Where Java and Kafka's jars are, what ``groups
reset-offsets`` plans is compared with what Kafka's own kafka-consumer-groups plans.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.compat.command_line import CommandLine
from tests.compat.kafka_process import KafkaProcess
from tests.java_programs import Java
from tests.waits import flushed, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
FIRST_TIMESTAMP_MS = 1_700_000_000_000
"""Of the first record of each partition; the others follow a second apart."""

RECORDS = 10

SHORT_TIMES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
}
"""So that a member has its partitions at once, and not with a heartbeat after five seconds."""


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.soak)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "ours":
        with BrokerProcess(directory, SHORT_TIMES | {"log.durability": "page-cache"}, has_admin=False) as ours:
            yield ours
    else:
        with KafkaProcess(directory, SHORT_TIMES) as kafka:
            yield kafka


@pytest.fixture
def command(cluster: BrokerProcess | KafkaProcess) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture
def filled(command: CommandLine, topic: str) -> str:
    """A topic of three partitions, the first two with ten records each."""
    command("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=-1")  # the timestamps are old
    producer = Producer({"bootstrap.servers": command.bootstrap_servers})
    for partition in (0, 1):
        for number in range(RECORDS):
            timestamp_ms = FIRST_TIMESTAMP_MS + 1000 * number
            producer.produce(topic, b"%d" % number, partition=partition, timestamp=timestamp_ms)
    assert flushed(producer, SECONDS)
    return topic


@contextmanager
def member(command: CommandLine, group: str, topic: str, **settings: str) -> Iterator[Consumer]:
    """A consumer that has read and committed everything."""
    consumer = Consumer(
        {
            "bootstrap.servers": command.bootstrap_servers,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        for _ in range(2 * RECORDS):
            message = within(consumer.poll, SECONDS)
            assert message is not None, f"nothing came in {SECONDS} s"
            assert message.error() is None, message.error()
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


# Topics and configs


def test_a_topic_from_its_creation_to_its_end(command: CommandLine, topic: str) -> None:
    command("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=100000")
    assert "TOPIC_ALREADY_EXISTS" in command.refusal("topics", "create", topic)
    assert command("topics", "create", topic, "--if-not-exists") == f"{topic}: exists\n"

    [listed] = [each for each in command.json("topics", "list") if each["name"] == topic]
    assert (listed["partition_count"], listed["replication_factor"], listed["internal"]) == (2, 1, False)
    [described] = command.json("topics", "describe", topic)
    assert described["topic_id"] == listed["topic_id"]
    assert described["configs"]["retention.ms"] == "100000"
    assert [(each["partition"], each["leader"], each["latest_offset"]) for each in described["partitions"]] == [
        (0, 1, 0),
        (1, 1, 0),
    ]

    command("topics", "alter", topic, "--partitions", "5", "--execute")
    assert "INVALID_PARTITIONS" in command.refusal("topics", "alter", topic, "--partitions", "4", "--execute")
    assert len(command.json("topics", "describe", topic)[0]["partitions"]) == 5

    assert "nothing was changed" in command.refusal("topics", "delete", topic)
    assert command("topics", "delete", topic, "--yes") == f"{topic}: deleted\n"
    assert "UNKNOWN_TOPIC_OR_PARTITION" in command.refusal("topics", "describe", topic)


def test_a_check_creates_and_changes_nothing(command: CommandLine, topic: str) -> None:
    assert command("topics", "create", topic, "--dry-run") == f"{topic}: would be created\n"
    assert "INVALID_CONFIG" in command.refusal("topics", "create", topic, "--config", "retention.ms=x", "--dry-run")
    command("topics", "create", topic, "--partitions", "1")
    command("topics", "alter", topic, "--partitions", "2", "--dry-run")
    command("configs", "alter", "--topic", topic, "--set", "retention.ms=5", "--dry-run")
    [described] = command.json("topics", "describe", topic)
    assert len(described["partitions"]) == 1
    assert "retention.ms" not in described["configs"]


def changed(command: CommandLine, *resource: str) -> dict[str, str]:
    return {each["key"]: each["value"] for each in command.json("configs", "describe", *resource)}


def test_settings_of_a_topic_are_set_and_reset(command: CommandLine, topic: str) -> None:
    command("topics", "create", topic)
    before = changed(command, "--topic", topic)
    command("configs", "alter", "--topic", topic, "--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    assert changed(command, "--topic", topic) == {
        **before,
        "cleanup.policy": "delete,compact",
        "retention.ms": "5",
    }
    assert [topic, "retention.ms", "5"] in [
        [each["name"], each["key"], each["value"]] for each in command.json("configs", "list")
    ]
    arguments = ("--delete", "retention.ms", "--subtract", "cleanup.policy=delete")
    command("configs", "alter", "--topic", topic, *arguments)
    assert changed(command, "--topic", topic) == {**before, "cleanup.policy": "compact"}
    assert "INVALID_CONFIG" in command.refusal("configs", "alter", "--topic", topic, "--set", "retention.ms=soon")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in command.refusal("configs", "describe", "--topic", "nothing")


def test_settings_of_brokers_are_set_and_reset(command: CommandLine) -> None:
    command("configs", "alter", "--broker", "1", "--set", "log.cleaner.threads=2")
    command("configs", "alter", "--all-brokers", "--set", "log.cleaner.threads=1")
    assert changed(command, "--broker", "1")["log.cleaner.threads"] == "2"
    assert changed(command, "--all-brokers")["log.cleaner.threads"] == "1"
    described = command.json("configs", "describe", "--broker", "1", "--all")
    [node_id] = [each for each in described if each["key"] == "node.id"]
    assert (node_id["value"], node_id["read_only"]) == ("1", True)
    for resource in (["--broker", "1"], ["--all-brokers"]):
        command("configs", "alter", *resource, "--delete", "log.cleaner.threads")
        assert "log.cleaner.threads" not in changed(command, *resource)
    assert "BROKER_NOT_AVAILABLE" in command.refusal("configs", "describe", "--broker", "99")


# Groups


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_described_and_protected(command: CommandLine, filled: str, protocol: str) -> None:
    group = f"{filled}-{protocol}"
    with member(command, group, filled, **{"group.protocol": protocol}):
        [listed] = [each for each in command.json("groups", "list", "--type", protocol) if each["group"] == group]
        assert (listed["type"], listed["state"], listed["protocol_type"]) == (protocol, "Stable", "consumer")
        stable = command.json("groups", "list", "--state", "Stable", "--state", "Empty")
        assert group in [each["group"] for each in stable]

        [described] = command.json("groups", "describe", group)
        assert (described["type"], described["state"]) == (protocol, "Stable")
        assert (described["epoch"] is None) == (protocol == "classic")
        assert described["coordinator"]["address"] == command.bootstrap_servers
        [reader] = described["members"]
        assert (reader["client"], reader["host"], reader["protocol"]) == ("reader", "127.0.0.1", protocol)
        assert reader["subscribed_topics"] == [filled]
        assert reader["assigned"] == [{"topic": filled, "partition": partition} for partition in range(3)]
        lags = [
            (each["partition"], each["committed_offset"], each["log_end_offset"], each["lag"], each["member"])
            for each in described["partitions"]
        ]
        name = reader["member"]
        assert lags == [(0, 10, 10, 0, name), (1, 10, 10, 0, name), (2, None, 0, None, name)]

        arguments = [group, "--topic", filled, "--to-earliest", "--execute"]
        assert "NON_EMPTY_GROUP: it is Stable" in command.refusal("groups", "reset-offsets", *arguments)
        assert "NON_EMPTY_GROUP" in command.refusal("groups", "delete", group, "--execute")
        arguments = [group, "--topic", filled, "--execute"]
        completed = command.run("groups", "delete-offsets", *arguments)
        assert completed.exit_code == 1
        assert completed.stderr.count("GROUP_SUBSCRIBED_TO_TOPIC") == 2
    assert command.offsets(group) == {(filled, 0): 10, (filled, 1): 10}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_goes_on_where_it_was_put(command: CommandLine, filled: str, protocol: str) -> None:
    group = f"{filled}-{protocol}"
    settings = {"group.protocol": protocol}
    with member(command, group, filled, **settings):
        pass
    moved = command.json("groups", "reset-offsets", group, "--all-topics", "--shift-by", "-4", "--dry-run")
    assert moved["dry_run"]
    assert [(each["new_offset"], each["change"]) for each in moved["partitions"]] == [(6, -4), (6, -4)]
    assert set(command.offsets(group).values()) == {10}
    command("groups", "reset-offsets", group, "--topic", f"{filled}:1", "--to-offset", "3", "--execute")
    assert command.offsets(group) == {(filled, 0): 10, (filled, 1): 3}

    consumer = Consumer(
        {"bootstrap.servers": command.bootstrap_servers, "group.id": group, "enable.auto.commit": False, **settings}
    )
    consumer.subscribe([filled])
    messages = [within(consumer.poll, SECONDS) for _ in range(7)]
    consumer.close()
    assert [(each.partition(), each.offset()) for each in messages if each is not None] == [
        (1, offset) for offset in range(3, 10)
    ]


def test_offsets_and_groups_are_deleted(command: CommandLine, filled: str) -> None:
    group = f"{filled}-group"
    command("groups", "reset-offsets", group, "--topic", filled, "--to-latest", "--execute")
    assert command.offsets(group) == {(filled, 0): 10, (filled, 1): 10, (filled, 2): 0}

    command("groups", "delete-offsets", group, "--topic", f"{filled}:0,2", "--dry-run")
    assert len(command.offsets(group)) == 3
    command("groups", "delete-offsets", group, "--topic", f"{filled}:0,2", "--execute")
    assert command.offsets(group) == {(filled, 1): 10}

    command("groups", "delete", group, "--dry-run")
    assert command.json("groups", "describe", group)[0]["state"] == "Empty"
    command("groups", "delete", group, "--execute")
    assert "GROUP_ID_NOT_FOUND" in command.refusal("groups", "describe", group)
    assert "GROUP_ID_NOT_FOUND" in command.refusal("groups", "delete", group, "--execute")
    assert group not in [each["group"] for each in command.json("groups", "list")]


def test_the_sum_of_each_groups_lag_is_listed(command: CommandLine, filled: str) -> None:
    group = f"{filled}-group"
    command("groups", "reset-offsets", group, "--topic", filled, "--to-offset", "7", "--execute")
    [total] = [each for each in command.json("groups", "lag") if each["group"] == group]
    assert total == {
        "group": group,
        "state": "Empty",
        "partition_count": 3,
        "partitions_without_lag": 0,
        "lag": 6,
    }


def test_a_group_without_a_name_is_refused(command: CommandLine) -> None:
    assert "INVALID_GROUP_ID" in command.refusal("groups", "describe", "")


# Beside Kafka's own tool


def moment(seconds: float) -> str:
    """So long after the first record, as both tools read it."""
    when = time.gmtime(FIRST_TIMESTAMP_MS / 1000 + seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", when) + ".000"


WAYS: list[list[str]] = [
    ["--to-earliest"],
    ["--to-latest"],
    ["--to-current"],
    ["--to-offset", "0"],
    ["--to-offset", "5"],
    ["--to-offset", "999"],
    ["--to-datetime", moment(-100)],
    ["--to-datetime", moment(0)],
    ["--to-datetime", moment(4)],
    ["--to-datetime", moment(9)],
    ["--to-datetime", moment(10)],
    ["--to-datetime", moment(4).removesuffix(".000") + ".001+00:00"],
    ["--by-duration", "PT1S"],
    ["--by-duration", "P20000D"],
    ["--by-duration", "P1DT2H3M4S"],
    ["--shift-by", "2"],
    ["--shift-by", "-2"],
    ["--shift-by", "1000"],
    ["--shift-by", "-1000"],
]

GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CSV_LINE = re.compile(r"^[\w.-]+,\d+,\d+$", re.MULTILINE)


def kafkas_plans(java: Java, command: CommandLine, group: str, choices: list[list[str]]) -> list[list[str]]:
    """What kafka-consumer-groups --reset-offsets --export prints for each choice of options, in one JVM."""
    fixed = ("--bootstrap-server", command.bootstrap_servers, "--group", group, "--reset-offsets", "--export")
    steps = [{"tool": GROUP_TOOL, "arguments": [*fixed, "--dry-run", *options], "input": ""} for options in choices]
    return [sorted(CSV_LINE.findall(result["out"])) for result in java.run("RunTools", given=steps)]


def test_plans_are_those_of_kafkas_own_tool(java: Java, command: CommandLine, filled: str, tmp_path: Path) -> None:
    group = f"{filled}-group"
    start = tmp_path / "start.csv"
    start.write_text(f"{filled},0,3\n{filled},1,8\n")
    command("groups", "reset-offsets", group, "--from-file", str(start), "--execute")
    beyond = tmp_path / "beyond.csv"
    beyond.write_text(f"{filled},0,7\n{filled},1,80\n{filled},2,0\n")

    choices = [["--all-topics", *way] for way in WAYS]
    choices += [["--topic", f"{filled}:1", *way] for way in WAYS]
    choices += [["--topic", filled, *way] for way in WAYS if way[0] != "--shift-by"]
    choices += [["--from-file", str(beyond)], ["--from-file", str(start)]]
    for options, theirs in zip(choices, kafkas_plans(java, command, group, choices), strict=True):
        ours = command("groups", "reset-offsets", group, *options, "--export")
        assert sorted(ours.splitlines()) == theirs, options
        assert theirs, options


def test_kafkas_own_tool_tells_the_same_lag(java: Java, command: CommandLine, filled: str) -> None:
    group = f"{filled}-group"
    command("groups", "reset-offsets", group, "--topic", filled, "--to-offset", "4", "--execute")
    arguments = ["--bootstrap-server", command.bootstrap_servers, "--describe", "--group", group]
    [result] = java.run("RunTools", given=[{"tool": GROUP_TOOL, "arguments": arguments, "input": ""}])

    rows = [line.split()[:6] for line in result["out"].splitlines() if line.startswith(group)]
    ours = [
        [str(each[key]) for key in ("group", "topic", "partition", "committed_offset", "log_end_offset", "lag")]
        for each in command.json("groups", "lag", group)
    ]
    assert sorted(rows) == sorted(ours)
    assert len(ours) == 3
