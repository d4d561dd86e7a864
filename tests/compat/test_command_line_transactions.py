"""``trio-broker transactions`` as a user meets it, against our broker and against Kafka itself.

One transaction is left open by librdkafka, one hangs in a log. The tests of a cluster run in the order of the file.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from tests.compat.command_line import CommandLine
from tests.compat.kafka_process import KafkaProcess
from tests.consumed_messages import consumed
from tests.waits import flushed
from trio_broker.testing.process import BrokerProcess

SECONDS = 30
AGE_MS = 3_600_000
"""An hour: longer than ``transaction.max.timeout.ms``, and far shorter than any retention."""

OPEN_ID = "billing 'till"
"""A transactional id that a shell has to quote."""


@pytest.fixture(scope="module", params=["ours", pytest.param("kafka", marks=pytest.mark.soak)])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A cluster with two topics."""
    directory = tmp_path_factory.mktemp("cluster")
    process: BrokerProcess | KafkaProcess
    if request.param == "ours":
        process = BrokerProcess(directory, overrides={"log.durability": "page-cache"}, has_admin=False)
    else:
        process = KafkaProcess(directory)
    with process:
        CommandLine(process.bootstrap_servers)("topics", "create", "hung", "t", "--partitions", "2")
        yield process


@pytest.fixture(scope="module", autouse=True)
def hanging_producer_id(cluster: BrokerProcess | KafkaProcess) -> int:
    """The id of a producer that has a transaction open in ``hung-1``, an hour old, of which no coordinator knows: the
    topic of the coordinators' states was deleted.
    """
    servers, command = cluster.bootstrap_servers, CommandLine(cluster.bootstrap_servers)
    writer = Producer({"bootstrap.servers": servers})
    writer.produce("hung", b"before", partition=1)
    assert flushed(writer, SECONDS)
    lost = Producer({"bootstrap.servers": servers, "transactional.id": "lost"})
    lost.init_transactions(SECONDS)
    lost.begin_transaction()
    lost.produce("hung", b"hanging", partition=1, timestamp=time.time_ns() // 1_000_000 - AGE_MS)
    assert flushed(lost, SECONDS)
    [row] = command.json("transactions", "list")
    command("topics", "delete", "__transaction_state", "--execute")
    producer_id: int = row["producer_id"]
    return producer_id


@pytest.fixture(scope="module")
def command(cluster: BrokerProcess | KafkaProcess) -> CommandLine:
    return CommandLine(cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def producer(cluster: BrokerProcess | KafkaProcess) -> Producer:
    """A producer with an open transaction, which has written one record into ``t-0``."""
    made = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": OPEN_ID})
    made.init_transactions(SECONDS)
    made.begin_transaction()
    made.produce("t", b"open", partition=0)
    flushed(made, SECONDS)
    return made


def committed_values(servers: str, topic: str, partition: int) -> list[bytes | None]:
    """What a reader of what is committed gets up to the end of the partition."""
    return [each.value() for each in consumed(servers, [(topic, partition)], isolation_level="read_committed")]


def test_an_open_transaction_is_listed_and_described(command: CommandLine, producer: Producer):
    [listed] = command.json("transactions", "list", "--state", "Ongoing", "--id-pattern", "billing.*")
    assert (listed["transactional_id"], listed["state"]) == (OPEN_ID, "Ongoing")
    assert command.json("transactions", "list", "--producer-id", str(listed["producer_id"])) == [listed]
    assert command.json("transactions", "list", "--duration-filter", "3600000") == []
    [document] = command.json("transactions", "describe", OPEN_ID)
    assert document["partitions"] == [{"topic": "t", "partition": 0}]
    assert (document["producer_id"], document["timeout_ms"]) == (listed["producer_id"], 60_000)
    assert document["duration_ms"] >= 0


def test_the_partition_names_its_producers(command: CommandLine, producer: Producer):
    [row] = command.json("transactions", "describe-producers", "t:0,1")
    [document] = command.json("transactions", "describe", OPEN_ID)
    assert (row["partition"], row["start_offset"], row["producer_id"]) == (0, 0, document["producer_id"])
    assert row["producer_epoch"] == document["producer_epoch"]


def test_only_the_hanging_transaction_is_found(command: CommandLine, producer: Producer, hanging_producer_id: int):
    """With no age at all asked for, the open one is a candidate, too, whose coordinator knows it."""
    for age in ("15", "0"):
        [row] = command.json("transactions", "find-hanging", "--max-transaction-timeout", age)
        assert (row["topic"], row["partition"], row["start_offset"]) == ("hung", 1, 1)
        assert (row["producer_id"], row["producer_epoch"]) == (hanging_producer_id, 0)
        assert row["duration_minutes"] >= 60
    assert command.json("transactions", "find-hanging", "hung:0", "t") == []


def test_a_transaction_that_its_coordinator_knows_gets_no_marker(command: CommandLine, producer: Producer):
    place = ("--partition", "t:0", "--start-offset", "0", "--execute")
    refusal = command.refusal("transactions", "abort", *place)
    assert refusal.endswith("""trio-broker transactions abort 'billing '"'"'till' aborts it everywhere""")


def test_the_hanging_transaction_is_aborted_and_its_readers_go_on(
    command: CommandLine, cluster: BrokerProcess | KafkaProcess, hanging_producer_id: int
):
    place = ("--partition", "hung:1", "--start-offset", "1")
    assert command.refusal("transactions", "abort", *place).startswith("nothing was changed")
    done = command.json("transactions", "abort", *place, "--execute")
    assert (done["aborted"], done["producer_id"]) == (True, hanging_producer_id)
    assert command.json("transactions", "find-hanging") == []
    assert committed_values(cluster.bootstrap_servers, "hung", 1) == [b"before"]
    again = command.refusal("transactions", "abort", *place, "--execute")
    assert again == "partition hung-1: no open transaction begins at offset 1"


def test_the_open_transaction_is_aborted_and_its_producer_fenced(
    command: CommandLine, cluster: BrokerProcess | KafkaProcess, producer: Producer
):
    done = command.json("transactions", "abort", OPEN_ID, "--execute")
    assert (done["aborted"], done["state"]) == (True, "CompleteAbort")
    with pytest.raises(KafkaException):
        producer.commit_transaction(SECONDS)
    assert committed_values(cluster.bootstrap_servers, "t", 0) == []
    assert command.refusal("transactions", "abort", OPEN_ID, "--execute").endswith("it is CompleteAbort")
