"""The Java client, producer, consumer and Admin, against a real broker process.

The programs are ``ClientSteps`` and ``AdminSteps`` of ``tests/compat/java``; each test judges one thing they saw.
"""

from __future__ import annotations

import httpx
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.consumed_messages import consumed
from tests.java_programs import Java, Steps
from tests.waits import flushed, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS_OF_A_CODEC = 500
FIRST_TIMESTAMP_MS = 1_700_000_000_000


def read_all(broker: BrokerProcess, topic: str) -> dict[int, list[Message]]:
    """Everything in a topic with a partition for each codec, by partition, as librdkafka sees it."""
    messages: dict[int, list[Message]] = {partition: [] for partition in range(len(CODECS))}
    for message in consumed(broker.bootstrap_servers, [(topic, partition) for partition in messages]):
        partition = message.partition()
        assert partition is not None
        messages[partition].append(message)
    return messages


# The producer and the consumer


@pytest.fixture(scope="module")
def has_admin() -> bool:
    return True


@pytest.fixture(scope="module")
def client_steps(java: Java, broker: BrokerProcess) -> Steps:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    within(admin.create_topics([NewTopic("foreign", len(CODECS), 1)])["foreign"].result, SECONDS)
    for partition, codec in enumerate(CODECS):
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 50})
        for number in range(RECORDS_OF_A_CODEC):
            producer.produce("foreign", f"{codec} {number}", partition=partition)
        assert flushed(producer, SECONDS)
    return Steps(java.run("ClientSteps", broker.bootstrap_servers, "foreign"))


def test_java_reads_what_librdkafka_wrote_in_every_codec(client_steps: Steps) -> None:
    assert client_steps.result("read foreign") == {
        str(partition): [f"{codec} {number}" for number in range(RECORDS_OF_A_CODEC)]
        for partition, codec in enumerate(CODECS)
    }


def test_librdkafka_reads_what_java_wrote_in_every_codec(client_steps: Steps, broker: BrokerProcess) -> None:
    offsets = list(range(RECORDS_OF_A_CODEC))
    assert client_steps.result("codecs") == dict.fromkeys(CODECS, offsets)
    for messages in read_all(broker, "java-codecs").values():
        assert [message.offset() for message in messages] == offsets
        assert [message.value() for message in messages] == [b"line %d " % number * 20 for number in offsets]


def test_java_gets_nulls_headers_and_timestamps_back(client_steps: Steps) -> None:
    records = client_steps.result("odd records")

    assert [(record["offset"], record["key"], record["value"]) for record in records] == [
        (0, "tombstone", None),
        (1, None, "value"),
        (2, None, None),
        (3, "", ""),
    ]
    assert records[1]["timestamp"] == FIRST_TIMESTAMP_MS + 123
    assert records[1]["headers"] == [["h", "1"], ["h", "2"], ["null", None], ["ключ", "值"]]


def test_java_gets_a_megabyte_back(client_steps: Steps) -> None:
    result = client_steps.result("megabyte")
    assert result["sent"] == result["read"]


def test_java_refuses_a_record_that_is_too_large(client_steps: Steps) -> None:
    assert client_steps.error("too large") == "RecordTooLargeException"


def test_java_blames_the_records_without_a_key_and_no_other(client_steps: Steps) -> None:
    result = client_steps.result("bad records")
    without_key = "Compacted topic cannot accept message without key in topic partition java-compacted-0"
    assert [result[1], result[3]] == [without_key] * 2
    assert all("part of a batch which had one more more invalid records" in result[index] for index in (0, 2, 4))


def test_java_and_librdkafka_put_equal_keys_into_equal_partitions(client_steps: Steps, broker: BrokerProcess) -> None:
    homes = client_steps.result("keys")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
    found: dict[bytes | str | None, int | None] = {}
    for number in range(len(homes)):
        producer.produce(
            "java-keys",
            b"v",
            b"key-%d" % number,
            on_delivery=lambda error, message: found.update({message.key(): message.partition()}),
        )
    assert flushed(producer, SECONDS)

    assert found == {b"key-%d" % number: partition for number, partition in enumerate(homes)}
    assert len(set(homes)) == 8


def test_java_producer_with_every_kind_of_acknowledgement(client_steps: Steps) -> None:
    assert client_steps.result("acks") == {"0": [-1], "1": [1], "all": [2], "read": ["0", "1", "all"]}


def test_java_producer_and_consumer_see_the_same_append_time(client_steps: Steps) -> None:
    assert client_steps.result("append time") == {"type": "LogAppendTime", "same": True, "now": True}


def test_java_consumer_finds_offsets_by_time(client_steps: Steps) -> None:
    assert client_steps.result("offset lookups") == {
        "beginning": 0,
        "end": 10,
        "between": 5,
        "exact": 4,
        "after all": None,
    }


def test_java_consumer_seeks(client_steps: Steps) -> None:
    assert client_steps.result("seek") == {
        "forward": ["7", "8", "9"],
        "back": [str(number) for number in range(2, 10)],
        "end": 10,
    }
    assert client_steps.error("seek past the end") == "OffsetOutOfRangeException"


def test_java_fetch_session_pauses_resumes_and_loses_partitions(client_steps: Steps) -> None:
    assert client_steps.result("a session that changes") == {
        "all": ["first 0", "first 1", "first 2"],
        "paused": ["second 0", "second 2"],
        "resumed": ["second 1"],
        "alone": ["first 2", "second 2"],
    }


def test_java_producer_and_consumer_outlive_a_topic_that_comes_back_with_another_id(client_steps: Steps) -> None:
    assert client_steps.result("recreated topic") == {
        "before": [0, 1, 2],
        "old": ["old", "old", "old"],
        "after": [0],
        "new": ["new"],
    }


def test_java_producer_makes_a_topic_and_a_consumer_need_not(client_steps: Steps) -> None:
    assert client_steps.result("auto create") == 0
    assert client_steps.result("unknown topic") == 0


# The Admin client


@pytest.fixture(scope="module")
def admin_steps(java: Java, broker: BrokerProcess) -> Steps:
    return Steps(java.run("AdminSteps", broker.bootstrap_servers))


def test_java_admin_describes_the_cluster(admin_steps: Steps, broker: BrokerProcess) -> None:
    result = admin_steps.result("describe cluster")
    node = httpx.get(f"{broker.admin_url}api/v1/brokers/1").json()

    assert result == {"nodes": 1, "cluster": node["cluster_id"], "controller": 1, "port": broker.port}


def test_java_admin_creates_describes_lists_and_deletes_a_topic(admin_steps: Steps) -> None:
    assert admin_steps.result("create") == {"partitions": 3, "replicas": 1, "id": True, "retention": "3600000"}
    assert admin_steps.result("describe") == {
        "name": "java-admin",
        "internal": False,
        "partitions": [{"partition": partition, "leader": 1, "replicas": 1, "isr": 1} for partition in range(3)],
    }
    assert admin_steps.result("describe by id") == "java-admin"
    assert admin_steps.result("create but only validate") is None
    assert "java-admin" in admin_steps.result("list")
    assert "java-imagined" not in admin_steps.result("list")
    assert admin_steps.result("create partitions") == 5
    assert admin_steps.result("delete") is False


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("create again", "TopicExistsException"),
        ("create with too many replicas", "InvalidReplicationFactorException"),
        ("create with a bad value", "InvalidConfigurationException"),
        ("create with an unknown key", "InvalidConfigurationException"),
        ("create with a bad name", "InvalidTopicException"),
        ("create without partitions", "InvalidPartitionsException"),
        ("create fewer partitions", "InvalidPartitionsException"),
        ("describe nothing", "UnknownTopicOrPartitionException"),
        ("alter to a bad value", "InvalidConfigurationException"),
        ("alter a read-only key", "InvalidRequestException"),
        ("send without a key to a compacted topic", "InvalidRecordException"),
        ("delete records past the end", "OffsetOutOfRangeException"),
        ("delete again", "UnknownTopicOrPartitionException"),
    ],
)
def test_java_admin_gets_the_exception_that_kafka_would_give(admin_steps: Steps, step: str, error: str) -> None:
    assert admin_steps.error(step) == error


def test_java_admin_reads_and_changes_topic_configs(admin_steps: Steps) -> None:
    result = admin_steps.result("describe topic configs")

    assert result["retention.ms"] == {
        "value": "3600000",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "default": False,
        "readOnly": False,
        "sensitive": False,
        "type": "LONG",
        "documented": True,
        "synonyms": ["retention.ms=3600000"],
    }
    assert (result["segment.bytes"]["source"], result["segment.bytes"]["type"]) == ("DEFAULT_CONFIG", "INT")
    assert (result["cleanup.policy"]["value"], result["cleanup.policy"]["type"]) == ("delete", "LIST")
    assert admin_steps.result("alter topic configs") == {
        "segment.ms": "600000",
        "cleanup.policy": "delete,compact",
        "retention.ms": "604800000",
        "source": "DEFAULT_CONFIG",
    }


def test_java_admin_changes_the_number_of_io_threads_of_a_running_broker(
    admin_steps: Steps, broker: BrokerProcess
) -> None:
    before = admin_steps.result("describe broker configs")
    after = admin_steps.result("alter broker configs")

    assert before["num.io.threads"]["value"] == "8"
    assert before["log.dirs"]["readOnly"]
    assert (after["value"], after["source"]) == ("5", "DYNAMIC_BROKER_CONFIG")
    assert admin_steps.result("validate a broker change") is None
    assert httpx.get(f"{broker.admin_url}api/v1/brokers/1/threads").json()["io"]["size"] == 5


def test_java_admin_lists_offsets_of_every_kind(admin_steps: Steps) -> None:
    """Offset, timestamp and leader epoch; the third of five records is the newest, and nothing is tiered."""
    assert admin_steps.result("list offsets") == {
        "earliest": [0, -1, 0],
        "earliest local": [0, -1, 0],
        "latest": [5, -1, 0],
        "latest tiered": [-1, -1, -1],
        "max timestamp": [2, FIRST_TIMESTAMP_MS + 9000, 0],
        "by time": [1, FIRST_TIMESTAMP_MS + 5000, 0],
        "after all": [-1, -1, -1],
    }


def test_java_admin_deletes_records(admin_steps: Steps) -> None:
    assert admin_steps.result("delete records") == [2, 2]
