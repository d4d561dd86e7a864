"""``trio-broker import-kafka``: ours opens what a real Kafka has left, and a real Kafka opens that again.

A Kafka with two data directories lives twice, so that leader epochs have a history. Then ours takes its directories
over in place, on the same port: a producer and a consumer that began with Kafka go on with ours, and do not notice.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from tests.compat.kafka_process import KafkaProcess
from tests.consumed_messages import consumed
from tests.fork_server import run_command
from tests.waits import flushed, scaled, within
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

SECONDS = 30.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ORDERS, TRANSFERS, ACCOUNTS, EVERY_SETTING = "orders", "transfers", "accounts", "every-setting"
TOPICS = {
    ORDERS: NewTopic(ORDERS, 3, 1, config={"retention.ms": "123456789000", "segment.bytes": "1048576"}),
    TRANSFERS: NewTopic(TRANSFERS, 2, 1, config={"compression.type": "zstd", "max.message.bytes": "2000000"}),
    ACCOUNTS: NewTopic(
        ACCOUNTS, 1, 1, config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    ),
}
GROUPS = {"classic-readers": "classic", "consumer-readers": "consumer", "movers": "classic"}
DELETED_BEFORE = 7
OWN_SETTING: Any = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
"""The source of a setting that a topic has itself."""

LAST_BY_KAFKA, FIRST_BY_OURS = b"last by Kafka", b"first by ours"
"""Sent by one producer and read by one consumer, both of which live on while the broker becomes another."""

VALUE_BYTES = 5000
"""Incompressible, so that partitions of ``orders`` have more than one segment."""

KAFKA_SETTINGS = {
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "3",
}
"""With snapshots of the metadata, a cleaner that comes at once, and less to make than twice 50 partitions more."""


@attrs.frozen
class Held:
    """What clients see of a broker, without the internal topics."""

    cluster_id: str | None
    topic_ids: Mapping[str, str]
    configs: Mapping[str, Mapping[str, str | None]]
    uncommitted: frozenset[Any]
    committed: frozenset[Any]
    groups: Mapping[str, Mapping[tuple[str, int], int]]


@attrs.frozen
class Taken:
    """The directories that Kafka left, what was seen, and two clients that were not closed."""

    directories: tuple[Path, Path]
    port: int
    held: Held
    producer: Producer
    consumers: tuple[Consumer, ...]
    in_transaction: Producer
    refused_while_running: str
    epochs: Mapping[str, str]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_command(arguments, 60)


def require_undamaged(directories: tuple[Path, Path]) -> None:
    done = CliRunner().invoke(main, ["fsck", *map(str, directories)])
    assert (done.exit_code, done.stderr) == (0, ""), done.output


def require_success(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, ""), done


# --- What a Kafka is given ---


def fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([*TOPICS.values(), NewTopic("deleted", 1, 1)]).values():
        within(future.result, SECONDS)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "compression.type": codec})
        for number in range(200):
            value = Random(number).randbytes(VALUE_BYTES)
            producer.produce(ORDERS, key=f"{codec}-{number}", value=value, partition=number % 3)
        for number in range(20):
            producer.produce(ACCOUNTS, key=f"account-{number % 3}", value=f"{codec} {number}", partition=0)
        assert flushed(producer, SECONDS)
    defaults = configs_of(admin, ORDERS)
    settings = {name: entry.value for name, entry in defaults.items() if entry.value is not None}
    within(admin.create_topics([NewTopic(EVERY_SETTING, 1, 1, config=settings)])[EVERY_SETTING].result, SECONDS)
    admin.delete_records([TopicPartition(ORDERS, 0, DELETED_BEFORE)])
    within(admin.create_partitions([NewPartitions(TRANSFERS, 3)])[TRANSFERS].result, SECONDS)
    change = ConfigEntry("retention.bytes", "1000000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, ORDERS, incremental_configs=[change])
    within(admin.incremental_alter_configs([resource])[resource].result, SECONDS)


def write_transactions(servers: str) -> None:
    """Two that end, one each way, and with them an offset each."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "mover"})
    producer.init_transactions(SECONDS)
    mover = Consumer({"bootstrap.servers": servers, "group.id": "movers"})
    metadata = mover.consumer_group_metadata()
    for committed in (True, False):
        producer.begin_transaction()
        for number in range(9):
            producer.produce(TRANSFERS, f"{committed} {number}", partition=number % 3)
        position = TopicPartition(ORDERS, 0, 20 if committed else 99)
        producer.send_offsets_to_transaction([position], metadata, SECONDS)
        # Or librdkafka would not have sent what is aborted.
        assert flushed(producer, SECONDS)
        (producer.commit_transaction if committed else producer.abort_transaction)(SECONDS)
    mover.close()


def new_consumer(servers: str, group: str, protocol: str = "classic") -> Consumer:
    settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol}
    return Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": "false"})


def commit_offsets(servers: str) -> None:
    for group, protocol in GROUPS.items():
        if group != "movers":
            consumer = new_consumer(servers, group, protocol)
            consumer.subscribe([ORDERS])
            message = within(consumer.poll, SECONDS)
            assert message is not None
            assert message.error() is None
            consumer.commit(asynchronous=False)
            consumer.close()


def send(producer: Producer, value: bytes) -> set[Any]:
    """Write ``value`` to each partition of ``orders``; returns partitions and offsets."""
    sent: set[Any] = set()

    def keep(error: KafkaError | None, message: Any) -> None:
        assert error is None
        sent.add((message.partition(), message.offset()))

    for index in range(3):
        producer.produce(ORDERS, value, partition=index, on_delivery=keep)
    assert flushed(producer, SECONDS)
    return sent


def next_values(consumer: Consumer, value: bytes) -> set[Any]:
    """Read until ``value`` has come from each partition of ``orders``; returns where everything lies that came."""
    found: set[Any] = set()
    missing = 3
    while missing:
        message = within(consumer.poll, SECONDS)
        assert message is not None
        assert message.error() is None
        found.add((message.partition(), message.offset()))
        missing -= message.value() == value
    return found


# --- What is seen of it ---


def held_by(servers: str) -> Held:
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_topics(TopicCollection(list(TOPICS)))
    partitions = [
        TopicPartition(name, each.id) for name, future in described.items() for each in future.result().partitions
    ]
    return Held(
        cluster_id=admin.list_topics(timeout=scaled(SECONDS)).cluster_id,
        topic_ids={name: str(future.result().topic_id) for name, future in described.items()},
        configs={name: own_configs(admin, name) for name in (*TOPICS, EVERY_SETTING)},
        uncommitted=read_by_librdkafka(servers, partitions, "read_uncommitted"),
        committed=read_by_librdkafka(servers, partitions, "read_committed"),
        groups={group: committed_offsets(servers, group) for group in GROUPS},
    )


def own_configs(admin: AdminClient, topic: str) -> dict[str, str | None]:
    """The settings that the topic has itself."""
    found = configs_of(admin, topic)
    own = {name: each.value for name, each in found.items() if each.source == OWN_SETTING}
    assert own
    return own


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries: dict[str, ConfigEntry] = within(admin.describe_configs([resource])[resource].result, SECONDS)
    return entries


def read_by_librdkafka(servers: str, partitions: list[TopicPartition], isolation: str) -> frozenset[Any]:
    places = [(each.topic, each.partition) for each in partitions]
    return frozenset(
        (each.topic(), each.partition(), each.offset(), each.key(), each.value())
        for each in consumed(servers, places, isolation_level=isolation)
    )


def read_by_kafka_python(servers: str, wanted: frozenset[Any]) -> frozenset[Any]:
    """As many committed records as ``wanted`` has."""
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        consumer_timeout_ms=int(scaled(SECONDS) * 1000),
    )
    consumer.assign([PythonPartition(topic, index) for topic, index in {record[:2] for record in wanted}])
    records = set()
    for each in consumer:
        records.add((each.topic, each.partition, each.offset, each.key, each.value))
        if len(records) == len(wanted):
            break
    consumer.close()
    return frozenset(records)


def committed_offsets(servers: str, group: str) -> dict[tuple[str, int], int]:
    """The committed offsets; a broker that has just started needs a moment until its coordinator has loaded them."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    asked = [TopicPartition(ORDERS, index) for index in range(3)]
    try:
        while True:
            try:
                found = consumer.committed(asked, timeout=scaled(SECONDS))
            except KafkaException as error:
                if "coordinator" not in error.args[0].str().lower():
                    raise
            else:
                return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}
    finally:
        consumer.close()


def write_in_transaction(producer: Producer, value: str) -> None:
    """Write one record into each of two partitions."""
    for partition in (1, 2):
        producer.produce(TRANSFERS, value, partition=partition)
    assert flushed(producer, SECONDS)


def epochs_in(directories: tuple[Path, Path]) -> dict[str, str]:
    """The leader epochs of the partitions of ``orders``, each as the lines of its file."""
    paths = [path for directory in directories for path in directory.glob(f"{ORDERS}-?/leader-epoch-checkpoint")]
    return {path.parent.name: path.read_text().split("\n", 2)[2] for path in paths}


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Taken]:
    directory = tmp_path_factory.mktemp("kafka")
    directories = (directory / "data", directory / "more")
    settings = KAFKA_SETTINGS | {"log.dirs": ",".join(map(str, directories))}
    kafka = KafkaProcess(directory, settings, standalone=True)
    with kafka:
        fill(kafka.bootstrap_servers)
        write_transactions(kafka.bootstrap_servers)
        open_one = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "left open"})
        open_one.init_transactions(SECONDS)
        open_one.begin_transaction()
        open_one.produce(TRANSFERS, "left open", partition=0)
        assert flushed(open_one, SECONDS)
        while_running = run("import-kafka", *directories)
        kafka.stop(clean=True)
    del open_one
    with kafka:
        servers = kafka.bootstrap_servers
        # Ends the transaction that was left open.
        Producer({"bootstrap.servers": servers, "transactional.id": "left open"}).init_transactions(SECONDS)
        commit_offsets(servers)
        admin = AdminClient({"bootstrap.servers": servers})
        within(admin.delete_topics(["deleted"])["deleted"].result, SECONDS)
        producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
        consumers = tuple(new_consumer(servers, f"stays {protocol}", protocol) for protocol in ("classic", "consumer"))
        sent = send(producer, LAST_BY_KAFKA)
        for consumer in consumers:
            consumer.subscribe([ORDERS])
            assert next_values(consumer, LAST_BY_KAFKA) > sent
            consumer.commit(asynchronous=False)
        in_transaction = Producer(
            {"bootstrap.servers": servers, "transactional.id": "goes on", "transaction.timeout.ms": 600_000}
        )
        in_transaction.init_transactions(SECONDS)
        in_transaction.begin_transaction()
        write_in_transaction(in_transaction, "begun with Kafka")
        held = held_by(servers)
        kafka.stop(clean=True)
    yield Taken(
        directories,
        kafka.port,
        held,
        producer,
        consumers,
        in_transaction,
        while_running.stderr,
        epochs_in(directories),
    )
    for consumer in consumers:
        consumer.close()


# --- What holds ---


def test_ours_serves_all_that_kafka_left_and_kafka_all_that_ours_leaves(taken: Taken, tmp_path: Path):
    require_success(run("import-kafka", *taken.directories))
    require_undamaged(taken.directories)
    ours = BrokerProcess(
        Path(",".join(map(str, taken.directories))), bootstrap_servers=f"127.0.0.1:{taken.port}", has_admin=False
    )
    with ours:
        assert held_by(ours.bootstrap_servers) == taken.held
        assert read_by_kafka_python(ours.bootstrap_servers, taken.held.committed) == taken.held.committed
        aborted = {record[-1] for record in taken.held.uncommitted - taken.held.committed}
        undecided = {b"left open", b"begun with Kafka"}
        assert aborted == undecided | {f"False {number}".encode() for number in range(9)}
        assert taken.held.groups["movers"] == {(ORDERS, 0): 20}
        assert min(record[2] for record in taken.held.uncommitted if record[:2] == (ORDERS, 0)) == DELETED_BEFORE
        # What began with Kafka goes on.
        sent = send(taken.producer, FIRST_BY_OURS)
        for consumer in taken.consumers:
            assert next_values(consumer, FIRST_BY_OURS) == sent
            consumer.commit(asynchronous=False)
        write_in_transaction(taken.in_transaction, "gone on with ours")
        taken.in_transaction.commit_transaction(SECONDS)
        after = held_by(ours.bootstrap_servers)
        whole = {record[-1] for record in after.committed if record[0] == TRANSFERS} - {
            record[-1] for record in taken.held.committed
        }
        assert whole == {b"begun with Kafka", b"gone on with ours"}
        assert ours.stop() == 0
    # Kafka has cut them to their entries, but for those of its metadata log, which is made anew.
    assert not [line for line in ours.output if "rebuilding the indexes" in line]
    assert not [path for directory in taken.directories for path in directory.glob("*-stray")]
    for partition, epochs in epochs_in(taken.directories).items():
        assert epochs.startswith(taken.epochs[partition])
    require_undamaged(taken.directories)
    # And back.
    targets = (tmp_path / "kafka/data", tmp_path / "kafka/more")
    require_success(run("export-kafka", taken.directories[0], targets[0], taken.directories[1], targets[1]))
    settings = KAFKA_SETTINGS | {"log.dirs": ",".join(map(str, targets))}
    with KafkaProcess(tmp_path / "kafka", settings) as kafka:
        assert held_by(kafka.bootstrap_servers) == after
        assert not [path for directory in targets for path in directory.glob("*-stray")]
        kafka.stop(clean=True)


def test_a_kafka_that_runs_is_left_alone(taken: Taken):
    assert "in use by another broker" in taken.refused_while_running
    assert taken.refused_while_running.count("\n") == 1
