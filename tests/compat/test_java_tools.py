"""Kafka's command line tools against a real broker process, and its dump tool and log loading against our files.

``RunTools`` of ``tests/compat/java`` runs several tools in one JVM; ``OpenLog`` opens directories as Kafka does.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.consumed_messages import consumed
from tests.java_programs import Java
from tests.waits import flushed, within
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.dump import dump
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

WRITTEN_RECORDS = 500
VALUE_BYTES = 650
EMPTY_BYTES = 200
"""At the end of each value, for the codecs to gain from."""

SEGMENT_BYTES = 150_000
"""Below what compression leaves of a partition, so that each has a full segment and a second one."""

BATCH_BYTES = 3000
"""Less than ``index.interval.bytes``, so that the indexes are sparse."""

ADDED_RECORDS = 100


# The command line tools


def test_kafka_command_line_tools_work_against_the_broker(java: Java, broker: BrokerProcess) -> None:
    """kafka-topics, -configs, -get-offsets, -console-producer, -console-consumer, -producer-perf-test."""
    server = ("--bootstrap-server", broker.bootstrap_servers)

    def tool(name: str, *arguments: str, text: str = "") -> dict[str, Any]:
        package = "" if "." in name else "org.apache.kafka.tools."
        return {"tool": package + name, "arguments": [*server, *arguments], "input": text}

    topic = ("--topic", "tools")
    configs = ("ConfigCommand", "--entity-type", "topics", "--entity-name", "tools")
    results = java.run(
        "RunTools",
        given=[
            tool("TopicCommand", "--create", *topic, "--partitions", "2", "--config", "retention.ms=100000"),
            tool("TopicCommand", "--create", *topic),
            tool("TopicCommand", "--describe", *topic),
            tool("ConsoleProducer", *topic, "--reader-property", "parse.key=true", text="k\t1\nk\t2\nk\t3\n"),
            tool("GetOffsetShell", *topic),
            tool("ConsoleProducer", "--topic", "lines", text="one\ntwo\nthree\n"),
            tool(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--topic", "lines", "--partition", "0", "--offset", "earliest", "--max-messages", "3"),
            ),
            tool(
                "ProducerPerformance",
                *("--topic", "perf", "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
            ),
            tool("GetOffsetShell", "--topic", "perf"),
            tool(*configs, "--alter", "--add-config", "segment.ms=700000", "--delete-config", "retention.ms"),
            tool(*configs, "--describe"),
            tool("TopicCommand", "--delete", *topic),
        ],
    )
    codes = [one["code"] for one in results]
    printed = [one["out"] for one in results]

    assert codes == [0, 1, *[0] * 10], results
    assert printed[0] == "Created topic tools.\n"
    assert "already exists" in printed[1]
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,retention.ms=100000" in printed[2]
    assert sorted(line[-1] for line in printed[4].splitlines()) == ["0", "3"]
    assert printed[6] == "one\ntwo\nthree\n"
    assert "2000 records sent" in printed[7]
    assert printed[8] == "perf:0:2000\n"
    assert "segment.ms=700000" in printed[10]
    assert "retention.ms" not in printed[10]


# The files


@attrs.frozen
class DataDirectories:
    """Copies of one broker's data directory."""

    stopped: Path
    killed: Path

    def partitions(self, directory: Path) -> list[Path]:
        return [directory / f"written-{partition}" for partition in range(len(CODECS))]


def create_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    within(admin.create_topics([NewTopic("written", len(CODECS), 1)])["written"].result, SECONDS)


def write(broker: BrokerProcess, seed: int, count: int) -> None:
    """Fill a partition for each codec with small batches of an idempotent producer, times almost in order."""
    chance = random.Random(seed)
    now_ms = int(time.time() * 1000)
    producers = []
    for partition, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "compression.codec": codec,
                "batch.size": BATCH_BYTES,
                "linger.ms": 5,
            }
        )
        for number in range(count):
            producer.produce(
                "written",
                chance.randbytes(VALUE_BYTES - EMPTY_BYTES) + bytes(EMPTY_BYTES),
                b"%d" % number,
                partition=partition,
                timestamp=now_ms - 10 * (count - number) - chance.randrange(1000),
            )
        producers.append(producer)
    # After all of them, since each waits half a second for its producer id.
    for producer in producers:
        assert flushed(producer, SECONDS)


def read_offsets(broker: BrokerProcess) -> dict[int, list[int]]:
    """The offsets that a consumer gets to see, by partition."""
    offsets: dict[int, list[int]] = {partition: [] for partition in range(len(CODECS))}
    for message in consumed(broker.bootstrap_servers, [("written", partition) for partition in offsets]):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        offsets[partition].append(offset)
    return offsets


@pytest.fixture(scope="module")
def data(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataDirectories]:
    """What a broker leaves after a clean stop, and later after a kill −9."""
    directory = tmp_path_factory.mktemp("data")
    directories = DataDirectories(stopped=directory / "stopped", killed=directory / "killed")
    overrides = {"log.durability": "page-cache", "internal.segment.bytes": str(SEGMENT_BYTES)}
    broker = BrokerProcess(directory / "broker", overrides=overrides, has_admin=False)
    try:
        broker.start()
        create_topic(broker)
        write(broker, 1, WRITTEN_RECORDS)
        broker.stop()
        shutil.copytree(broker.data_directory, directories.stopped)
        broker.start()
        write(broker, 2, ADDED_RECORDS)
    finally:
        broker.kill()
    shutil.copytree(broker.data_directory, directories.killed)
    yield directories
    shutil.rmtree(directory)


@attrs.frozen
class Dumps:
    deep: dict[str, Any]
    indexes_and_snapshots: dict[str, Any]
    verified: dict[str, Any]
    checked: dict[str, Any]
    metadata: dict[str, Any]
    index_files: int


@pytest.fixture(scope="module")
def dumps(java: Java, data: DataDirectories) -> Dumps:
    """What kafka-dump-log says about the stopped broker's files."""
    files = [file for directory in data.partitions(data.stopped) for file in sorted(directory.glob("0*"))]
    indexes = [file for file in files if file.suffix in (".index", ".timeindex")]

    def dump(chosen: list[Path], *options: str) -> dict[str, Any]:
        arguments = [*options, "--files", ",".join(map(str, chosen))]
        return {"tool": "org.apache.kafka.tools.DumpLogSegments", "arguments": arguments}

    results = java.run(
        "RunTools",
        given=[
            dump([file for file in files if file.suffix == ".log"], "--deep-iteration"),
            dump([file for file in files if file.suffix != ".log"]),
            dump(indexes, "--verify-index-only"),
            dump(indexes, "--index-sanity-check"),
            dump(sorted((data.stopped / "__cluster_metadata-0").glob("*.log")), "--cluster-metadata-decoder"),
        ],
    )
    assert [one["code"] for one in results] == [0] * 5, results
    deep, indexes_and_snapshots, verified, checked, metadata = results
    return Dumps(deep, indexes_and_snapshots, verified, checked, metadata, index_files=len(indexes))


def test_dump_log_finds_every_batch_valid_in_every_codec(dumps: Dumps, data: DataDirectories) -> None:
    out = dumps.deep["out"]
    segments = [segment for directory in data.partitions(data.stopped) for segment in directory.glob("*.log")]

    assert len(segments) > len(CODECS), "each partition was to have a second segment"
    assert "isvalid: false" not in out
    assert "invalid bytes" not in out
    assert set(re.findall(r"compresscodec: (\w+) .* isvalid: true", out)) == set(CODECS)
    assert len(re.findall(r"^\| offset: ", out, re.MULTILINE)) == WRITTEN_RECORDS * len(CODECS)


def test_dump_log_reads_the_indexes_of_a_running_broker(java: Java, data: DataDirectories) -> None:
    """They have entries and nothing behind them, which Kafka's tool reads as well as its own; a kill leaves them so."""
    files = [
        file
        for directory in data.partitions(data.killed)
        for file in sorted(directory.glob("0*"))
        if file.suffix in (".index", ".timeindex") and any(file.read_bytes()[:12])
    ]
    assert files
    assert all(any(file.read_bytes()[-12:]) for file in files)
    given = [
        {
            "tool": "org.apache.kafka.tools.DumpLogSegments",
            "arguments": [*options, "--files", ",".join(map(str, files))],
        }
        for options in ((), ("--verify-index-only",))
    ]
    for result in java.run("RunTools", given=given):
        assert (result["code"], result["err"]) == (0, "")


def test_dump_log_finds_no_gap_between_offsets(dumps: Dumps) -> None:
    """The tool takes −1 for the offset before any segment, so it remarks on the first record of all but the first."""
    jumps = re.findall(r"^  (-?\d+) is followed by", dumps.deep["err"], re.MULTILINE)
    assert set(jumps) == {"-1"}


def test_dump_log_finds_the_indexes_in_agreement_with_the_log(dumps: Dumps) -> None:
    assert dumps.indexes_and_snapshots["err"] == ""
    assert len(re.findall(r"^offset: \d+ position: \d+$", dumps.indexes_and_snapshots["out"], re.MULTILINE)) > 100
    assert len(re.findall(r"^timestamp: \d+ offset: \d+$", dumps.indexes_and_snapshots["out"], re.MULTILINE)) > 100
    assert dumps.verified["err"] == ""
    assert dumps.checked["out"].count("passed sanity check") == dumps.index_files


def test_dump_log_reads_the_producer_snapshots(dumps: Dumps) -> None:
    last = rf"lastSequence: {WRITTEN_RECORDS - 1} lastOffset: {WRITTEN_RECORDS - 1} "
    found = re.findall(
        rf"^producerId: (\d+) producerEpoch: 0 .* {last}", dumps.indexes_and_snapshots["out"], re.MULTILINE
    )
    assert len(set(found)) == len(CODECS)


def test_dump_log_decodes_the_metadata_log(dumps: Dumps) -> None:
    payloads = [json.loads(text) for text in re.findall(r"payload: (\{.*\})$", dumps.metadata["out"], re.MULTILINE)]
    types = [payload["type"] for payload in payloads]
    topics = [payload["data"]["name"] for payload in payloads if payload["type"] == "TOPIC_RECORD"]

    assert dumps.metadata["err"] == ""
    assert "isvalid: false" not in dumps.metadata["out"]
    assert "LeaderChange" in dumps.metadata["out"]
    assert topics == ["written"]
    assert types.count("PARTITION_RECORD") == len(CODECS)
    assert "REGISTER_BROKER_RECORD" in types
    assert "PRODUCER_IDS_RECORD" in types


def test_our_dump_decodes_the_metadata_log_as_kafkas_does(dumps: Dumps, data: DataDirectories) -> None:
    """Kafka leaves out tagged fields that have their defaults; all that it prints is the same."""
    expected = [json.loads(text) for text in re.findall(r"payload: (\{.*\})$", dumps.metadata["out"], re.MULTILINE)]
    lines = [
        line
        for path in sorted((data.stopped / "__cluster_metadata-0").glob("*.log"))
        for line in dump(RealDisk(), path, print_records=True)
    ]
    printed = [json.loads(match[1]) for line in lines if (match := re.search(r"payload: (\{.*\})$", line))]
    assert [(each["type"], each["version"]) for each in printed] == [
        (each["type"], each["version"]) for each in expected
    ]
    for ours, kafkas in zip(printed, expected, strict=True):
        assert {name: ours["data"][name] for name in kafkas["data"]} == kafkas["data"]


@pytest.fixture(scope="module")
def group_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only segment of ``__consumer_offsets`` after members of both protocols came, committed, and left, and a group
    was deleted."""
    directory = tmp_path_factory.mktemp("groups")
    overrides = {
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
    }
    with BrokerProcess(directory, overrides=overrides, has_admin=False) as broker:
        create_topic(broker)
        for group_id, protocol in (("of old", "classic"), ("of new", "consumer"), ("deleted", "classic")):
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id, "group.protocol": protocol}
            )
            consumer.subscribe(["written"])
            while not consumer.assignment():
                consumer.poll(0.05)
            consumer.commit(offsets=[TopicPartition("written", 0, 0, metadata="é")], asynchronous=False)
            consumer.close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        within(admin.delete_consumer_groups(["deleted"])["deleted"].result, SECONDS)
        assert broker.stop() == 0
    [log] = (directory / "__consumer_offsets-0").glob("*.log")
    return log


def test_our_dump_decodes_the_records_of_groups_as_kafkas_does(java: Java, group_log: Path) -> None:
    """Kafka leaves out what the version does not have, and decodes what members of classic groups sent, of which ours
    prints the bytes; all else that it prints is the same."""
    arguments = ["--offsets-decoder", "--files", str(group_log)]
    [result] = java.run("RunTools", given=[{"tool": "org.apache.kafka.tools.DumpLogSegments", "arguments": arguments}])
    ours, kafkas = (
        [
            (match["key"], match["payload"])
            for line in lines
            if (match := re.search(r" key: (?P<key>\{.*\}) payload: (?P<payload>.*)$", line))
        ]
        for lines in (dump(RealDisk(), group_log, print_records=True), result["out"].splitlines())
    )
    assert len(kafkas) == len(re.findall(r"^\| offset: ", result["out"], re.MULTILINE))
    assert {json.loads(key)["type"] for key, _ in kafkas} >= {"1", "2", "3", "8"}
    assert any(payload == "<DELETE>" for _, payload in kafkas)
    assert [key for key, _ in ours] == [key for key, _ in kafkas]
    for (key, printed), (_, expected) in zip(ours, kafkas, strict=True):
        if "<DELETE>" in (printed, expected):
            assert printed == expected, key
        else:
            assert_contains(json.loads(printed), json.loads(expected))


def assert_contains(printed: Any, expected: Any) -> None:
    """That all of ``expected`` is in ``printed``, but for what Kafka decodes further."""
    if isinstance(expected, dict):
        for name in expected.keys() - {"subscription", "assignment"}:
            assert_contains(printed[name], expected[name])
    elif isinstance(expected, list):
        assert len(printed) == len(expected)
        for ours, kafkas in zip(printed, expected, strict=True):
            assert_contains(ours, kafkas)
    else:
        assert printed == expected


def index_bytes(directory: Path) -> dict[str, bytes]:
    """Their entries: Kafka 4.4 leaves the zeros behind those of the last segment."""
    return {file.name: file.read_bytes().rstrip(b"\0") for file in sorted(directory.glob("*index"))}


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path, str], Path]:
    return lambda directory, name: Path(shutil.copytree(directory, tmp_path / name))


def test_kafka_opens_what_a_stopped_broker_left_and_would_have_written_the_same_indexes(
    java: Java, data: DataDirectories, copied: Callable[[Path, str], Path]
) -> None:
    """The second time it finds no index, and so tells by the ones it builds what it would have written itself."""
    as_left = data.partitions(copied(data.stopped, "as-left"))
    without_indexes = data.partitions(copied(data.stopped, "without-indexes"))
    written = [index_bytes(directory) for directory in as_left]
    for directory in without_indexes:
        for file in directory.glob("*index"):
            file.unlink()
    results = java.run(
        "OpenLog",
        *(argument for directory in as_left for argument in ("clean", str(directory))),
        *(argument for directory in without_indexes for argument in ("unclean", str(directory))),
    )

    for one in results:
        facts = one["result"]
        assert (facts["start"], facts["end"], facts["records"]) == (0, WRITTEN_RECORDS, WRITTEN_RECORDS)
        assert facts["consecutive"]
        assert list(facts["lastSequences"].values()) == [WRITTEN_RECORDS - 1]
    assert [index_bytes(directory) for directory in as_left] == written
    assert [index_bytes(directory) for directory in without_indexes] == written


def test_kafka_recovers_what_a_killed_broker_left_and_the_broker_goes_on_with_it(
    java: Java, data: DataDirectories, copied: Callable[[Path, str], Path]
) -> None:
    directory = copied(data.killed, "killed")
    partitions = data.partitions(directory)
    count = WRITTEN_RECORDS + ADDED_RECORDS
    results = java.run("OpenLog", *(argument for partition in partitions for argument in ("unclean", str(partition))))
    for one in results:
        facts = one["result"]
        assert (facts["end"], facts["records"], facts["valueBytes"]) == (count, count, VALUE_BYTES * count)
        assert facts["consecutive"]
        assert sorted(facts["lastSequences"].values()) == [ADDED_RECORDS - 1, WRITTEN_RECORDS - 1]

    with BrokerProcess(directory, overrides={"log.durability": "page-cache"}, has_admin=False) as broker:
        assert read_offsets(broker) == {partition: list(range(count)) for partition in range(len(CODECS))}
