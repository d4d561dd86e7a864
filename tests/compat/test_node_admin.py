"""What Kafka's tools and kafka-python see of one node: log directories, producers, the quorum, what has settings.

The tools run through ``RunTools`` of ``tests/compat/java``, all in one JVM.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition, TopicPartitionReplica
from kafka.admin import NewTopic

from tests.java_programs import Java
from tests.waits import eventually, flushed
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
TOPIC = "measured"
PARTITIONS = 3
RECORDS = 100


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("node")
    return [directory / "one", directory / "two"]


@pytest.fixture(scope="module")
def broker(log_dirs: list[Path]) -> Iterator[BrokerProcess]:
    """A broker with two log directories and a topic whose first partition has records."""
    # ``--data-dir`` becomes ``log.dirs``, which is a list.
    data_directory = Path(",".join(map(str, log_dirs)))
    with BrokerProcess(data_directory, overrides={"log.durability": "page-cache"}, has_admin=False) as process:
        admin = KafkaAdminClient(bootstrap_servers=process.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        admin.close()
        producer = KafkaProducer(bootstrap_servers=process.bootstrap_servers)
        for number in range(RECORDS):
            producer.send(TOPIC, b"value %d" % number, partition=0)
        flushed(producer, SECONDS)
        producer.close()
        yield process


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def home_of(log_dirs: list[Path], partition: int) -> Path:
    """The log directory that a partition of the topic lies in."""
    [home] = [directory for directory in log_dirs if (directory / f"{TOPIC}-{partition}").is_dir()]
    return home


def reassignment(file: Path, *log_dirs: Path) -> str:
    """Write into ``file`` what kafka-reassign-partitions shall do: partition by partition, the directory to be in."""
    partitions = [
        {"topic": TOPIC, "partition": index, "replicas": [1], "log_dirs": [str(directory)]}
        for index, directory in enumerate(log_dirs)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


@pytest.fixture(scope="module")
def printed(
    java: Java, broker: BrokerProcess, log_dirs: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, Any]]:
    """What each tool said, by a name for the call."""
    directory = tmp_path_factory.mktemp("reassignments")
    stay = reassignment(directory / "stay.json", home_of(log_dirs, 0))
    [elsewhere] = {*log_dirs} - {home_of(log_dirs, 0)}
    move = reassignment(directory / "move.json", elsewhere)
    reassign, throttle = ("reassign.ReassignPartitionsCommand",), ("--replica-alter-log-dirs-throttle", "100000000")
    runs = {
        "log dirs of one topic": ("LogDirsCommand", "--describe", "--topic-list", TOPIC),
        "log dirs": ("LogDirsCommand", "--describe"),
        "producers": ("TransactionsCommand", "describe-producers", "--topic", TOPIC, "--partition", "0"),
        "quorum status": ("MetadataQuorumCommand", "describe", "--status"),
        "quorum replication": ("MetadataQuorumCommand", "describe", "--replication"),
        "client metrics": ("ClientMetricsCommand", "--list"),
        "settings of client metrics": ("ConfigCommand", "--describe", "--entity-type", "client-metrics"),
        "settings of groups": ("ConfigCommand", "--describe", "--entity-type", "groups"),
        "stay": (*reassign, "--execute", "--reassignment-json-file", stay),
        "verify": (*reassign, "--verify", "--reassignment-json-file", stay),
        "move": (*reassign, "--execute", "--reassignment-json-file", move, *throttle),
    }
    result = java.run(
        "RunTools",
        given=[
            {
                "tool": f"org.apache.kafka.tools.{tool}",
                "arguments": ["--bootstrap-server", broker.bootstrap_servers, *arguments],
            }
            for tool, *arguments in runs.values()
        ],
    )
    eventually((elsewhere / f"{TOPIC}-0").is_dir, SECONDS, "the replica has moved")
    return dict(zip(runs, result, strict=True))


def log_file_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.log"))


@pytest.mark.parametrize("name", ["log dirs of one topic", "log dirs"])
def test_kafka_log_dirs_prints_what_lies_on_the_disk(
    printed: dict[str, dict[str, Any]], log_dirs: list[Path], name: str
) -> None:
    result = printed[name]
    assert result["code"] == 0, result
    [line] = [line for line in result["out"].splitlines() if line.startswith("{")]
    [node] = json.loads(line)["brokers"]
    assert {directory["logDir"] for directory in node["logDirs"]} == set(map(str, log_dirs))
    sizes = {}
    for directory in node["logDirs"]:
        assert directory["error"] is None
        for replica in directory["partitions"]:
            assert (replica["offsetLag"], replica["isFuture"]) == (0, False)
            # Its files may have moved since, as they were.
            home = home_of(log_dirs, int(replica["partition"].rpartition("-")[2]))
            assert replica["size"] == log_file_bytes(home / replica["partition"])
            sizes[replica["partition"]] = replica["size"]
    assert set(sizes) == {f"{TOPIC}-{index}" for index in range(PARTITIONS)}
    assert sizes[f"{TOPIC}-0"] > RECORDS * len("value 0")


def test_kafka_python_describes_log_dirs_with_the_room_on_their_volumes(
    admin: KafkaAdminClient, log_dirs: list[Path]
) -> None:
    [node] = admin.describe_log_dirs()
    usage = shutil.disk_usage(log_dirs[0])

    assert [directory["log_dir"] for directory in node["log_dirs"]] == list(map(str, log_dirs))
    for directory in node["log_dirs"]:
        assert directory["error_code"] == 0
        assert directory["total_bytes"] == usage.total
        assert 0 < directory["usable_bytes"] < usage.total


def test_kafka_transactions_describes_the_producers_of_a_partition(printed: dict[str, dict[str, Any]]) -> None:
    result = printed["producers"]
    assert result["code"] == 0, result
    titles, values = (line.split() for line in result["out"].splitlines() if line)
    producer = dict(zip(titles, values, strict=True))

    assert int(producer["ProducerId"]) >= 0
    assert producer["ProducerEpoch"] == "0"
    assert producer["LatestCoordinatorEpoch"] == "-1"
    assert producer["LastSequence"] == str(RECORDS - 1)
    assert producer["CurrentTransactionStartOffset"] == "None"
    assert abs(int(producer["LastTimestamp"]) / 1000 - time.time()) < 3600


def test_kafka_python_describes_the_producers_of_a_partition(admin: KafkaAdminClient) -> None:
    written, empty = (TopicPartition(TOPIC, index) for index in range(2))
    result = admin.describe_producers([written, empty])
    [producer] = result[written].active_producers

    assert (producer.producer_epoch, producer.last_sequence) == (0, RECORDS - 1)
    assert (producer.coordinator_epoch, producer.current_transaction_start_offset) == (-1, -1)
    assert result[empty].active_producers == []


def test_kafka_metadata_quorum_describes_a_quorum_of_one(
    printed: dict[str, dict[str, Any]], broker: BrokerProcess, log_dirs: list[Path]
) -> None:
    result = printed["quorum status"]
    assert result["code"] == 0, result
    status = dict(line.split(":", 1) for line in result["out"].splitlines() if line)
    [voter] = json.loads(status["CurrentVoters"])
    properties = (log_dirs[0] / "meta.properties").read_text()

    assert f"cluster.id={status['ClusterId'].strip()}\n" in properties
    assert f"directory.id={voter['directoryId']}\n" in properties
    assert (status["LeaderId"].strip(), status["LeaderEpoch"].strip()) == ("1", "1")
    assert (voter["id"], voter["endpoints"]) == (1, [f"PLAINTEXT://{broker.bootstrap_servers}"])
    assert status["CurrentObservers"].strip() == "[]"
    assert status["MaxFollowerLag"].strip() == "0"


def test_kafka_metadata_quorum_describes_how_far_the_leader_has_come(printed: dict[str, dict[str, Any]]) -> None:
    result = printed["quorum replication"]
    assert result["code"] == 0, result
    titles, values = (line.split() for line in result["out"].splitlines() if line)
    replica = dict(zip(titles, values, strict=True))
    high_watermark = re.search(r"^HighWatermark: +(\d+)$", printed["quorum status"]["out"], re.MULTILINE)

    assert (replica["NodeId"], replica["Lag"], replica["Status"]) == ("1", "0", "Leader")
    assert high_watermark is not None
    assert int(replica["LogEndOffset"]) >= int(high_watermark[1]) > PARTITIONS


def test_kafka_python_describes_the_quorum(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    result = admin.describe_metadata_quorum()
    [topic] = result["topics"]
    [quorum] = topic["partitions"]

    assert (topic["topic_name"], quorum["partition_index"], quorum["error"]) == ("__cluster_metadata", 0, None)
    assert quorum["leader_id"] == 1
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [1]
    [node] = result["nodes"]
    assert [listener["port"] for listener in node["listeners"]] == [broker.port]


@pytest.mark.parametrize("name", ["client metrics", "settings of client metrics", "settings of groups"])
def test_kafka_configs_and_kafka_client_metrics_find_nothing_where_nothing_is_set(
    printed: dict[str, dict[str, Any]], name: str
) -> None:
    result = printed[name]
    assert (result["code"], result["out"].strip(), result["err"]) == (0, "", "")


def test_kafka_python_lists_what_has_settings(admin: KafkaAdminClient) -> None:
    assert admin.list_config_resources() == {"topic": [TOPIC], "broker": ["1"], "broker_logger": ["1"]}


def test_kafka_reassign_partitions_is_content_with_a_replica_that_is_in_its_directory(
    printed: dict[str, dict[str, Any]],
) -> None:
    assert printed["stay"]["code"] == 0, printed["stay"]
    assert f"Reassignment of replica {TOPIC}-0-1 completed successfully." in printed["verify"]["out"]


def test_kafka_reassign_partitions_moves_a_replica_to_another_directory(printed: dict[str, dict[str, Any]]) -> None:
    assert printed["move"]["code"] == 0, printed["move"]
    assert "Successfully started moving log directory to " in printed["move"]["out"]


def test_kafka_python_gets_an_answer_of_its_own_for_each_replica(admin: KafkaAdminClient, log_dirs: list[Path]) -> None:
    [elsewhere] = {*log_dirs} - {home_of(log_dirs, 1)}
    result = admin.alter_replica_log_dirs(
        {
            TopicPartitionReplica(TOPIC, 0, 1): str(home_of(log_dirs, 0)),
            TopicPartitionReplica(TOPIC, 1, 1): str(elsewhere),
            TopicPartitionReplica(TOPIC, 2, 1): "/nowhere",
            TopicPartitionReplica("nothing", 0, 1): str(elsewhere),
        }
    )
    assert {(replica.topic, replica.partition): error.__name__ for replica, error in result.items()} == {
        (TOPIC, 0): "NoError",
        (TOPIC, 1): "NoError",
        (TOPIC, 2): "LogDirNotFoundError",
        ("nothing", 0): "UnknownTopicOrPartitionError",
    }
