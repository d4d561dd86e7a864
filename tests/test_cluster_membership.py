"""One broker joins a cluster in etcd, which grows to three, and takes everything back; by commands, processes and a
real etcd."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.consumed_messages import consumed
from tests.etcd_server import EtcdServer
from tests.waits import eventually, scaled
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

WAIT_SECONDS = 60
RECORDS = [b"%d" % number for number in range(20)]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.heartbeat.interval.ms": "250",
}


@pytest.fixture
def etcd(tmp_path):
    directory = tmp_path / "etcd"
    directory.mkdir()
    server = EtcdServer(directory)
    server.start()
    yield server
    server.kill()


def broker(directory: Path, node_id: int, store: str = "local") -> BrokerProcess:
    overrides = {**SETTINGS, "node.id": str(node_id), "metadata.store": store}
    return BrokerProcess(directory / f"broker-{node_id}", overrides=overrides, has_admin=False)


def command(*arguments: str) -> str:
    """What a command says, which succeeds."""
    result = CliRunner().invoke(main, ["cluster", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def write(servers: str, topic: str, records: Iterable[bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "writer", "acks": "all"})
    producer.init_transactions(scaled(WAIT_SECONDS))
    producer.begin_transaction()
    for record in records:
        producer.produce(topic, record, partition=0)
    producer.commit_transaction(scaled(WAIT_SECONDS))


def commit(servers: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def read(servers: str, topic: str) -> list[bytes]:
    """All records of committed transactions."""
    messages = consumed(servers, [(topic, 0)], isolation_level="read_committed")
    return [message.value() or b"" for message in messages]


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    """How many replicas of its partitions are in sync."""
    partitions = admin.list_topics(topic, timeout=scaled(WAIT_SECONDS)).topics[topic].partitions
    return {len(each.isrs) for each in partitions.values()}


def committed(servers: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers})
    asked = ConsumerGroupTopicPartitions("readers", [TopicPartition("orders", 0)])
    [future] = admin.list_consumer_group_offsets([asked]).values()
    offset: int = future.result(scaled(WAIT_SECONDS)).topic_partitions[0].offset
    return offset


def test_one_broker_joins_grows_to_three_and_takes_everything_back(etcd, tmp_path):
    store = f"etcd://127.0.0.1:{etcd.port}/shop"
    directory = str(tmp_path / "broker-1")
    with broker(tmp_path, 1) as alone:
        admin = AdminClient({"bootstrap.servers": alone.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(scaled(WAIT_SECONDS))
        write(alone.bootstrap_servers, "orders", RECORDS[:10])
        commit(alone.bootstrap_servers, 7)
    assert "are in etcd now" in command("join", store, "--data-dir", directory)
    refused = subprocess.run(alone.command(), capture_output=True, text=True, check=False)
    assert "has a copy of the metadata of several brokers" in refused.stderr
    with ExitStack() as stack:
        brokers = [stack.enter_context(broker(tmp_path, node_id, store)) for node_id in (1, 2, 3)]
        servers = ",".join(each.bootstrap_servers for each in brokers)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("shared", 1, 3)])["shared"].result(scaled(WAIT_SECONDS))
        assert (read(servers, "orders"), committed(servers)) == (RECORDS[:10], 7)
        write(servers, "orders", RECORDS[10:])
        write(servers, "shared", RECORDS)
        commit(servers, 17)
        # The brokers' own topics grow some seconds after others have joined.
        for topic in ("shared", "__consumer_offsets", "__transaction_state"):
            eventually(lambda topic=topic: in_sync(admin, topic) == {3}, WAIT_SECONDS)  # type: ignore[misc]
        by_brokers = json.loads(command("status", "-b", servers, "--json"))
        by_etcd = json.loads(command("status", store, "--json"))
        for status in (by_brokers, by_etcd):
            assert status["store"] == store
            assert [each["state"] for each in status["brokers"]] == ["active"] * 3
            assert (status["unavailable"], status["under_replicated"]) == ([], 0)
        assert None not in [each["behind"] for each in by_brokers["brokers"]]
        assert by_brokers["controller"] == by_etcd["controller"]
        assert 0 < by_etcd["stored_bytes"] < by_etcd["max_stored_bytes"]
    stopped = CliRunner().invoke(main, ["cluster", "status", store])
    assert (stopped.exit_code, stopped.stderr.splitlines()[0]) == (1, "trio-broker: no broker is the controller")
    leave = ("leave", store, "--data-dir", directory)
    assert "other brokers: 2,3" in command(*leave, "--dry-run")
    assert "has metadata of its own" in command(*leave, "--execute")
    with broker(tmp_path, 1) as alone:
        servers = alone.bootstrap_servers
        assert (read(servers, "orders"), read(servers, "shared"), committed(servers)) == (RECORDS, RECORDS, 17)
        write(servers, "shared", RECORDS)
        assert read(servers, "shared") == [*RECORDS, *RECORDS]
        alone_again = json.loads(command("status", "-b", servers, "--json"))
        assert (alone_again["store"], alone_again["cluster_id"]) == ("local", by_brokers["cluster_id"])
        assert [each["broker"] for each in alone_again["brokers"]] == [1]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["join"], 2, "Error: name the store: etcd://HOST:PORT,…/PREFIX"),
        (
            ["join", "http://one:2379"],
            1,
            "metadata.store: 'http://one:2379' is refused: the value must be local, or etcd:/",
        ),
        (["leave"], 1, "is not a data directory: it has no meta.properties"),
        (["leave", "--override", "node.idd=1"], 1, "trio-broker: --override node.idd: this broker has no such key"),
        (["status", "etcd://127.0.0.1:1"], 1, "trio-broker: etcd does not answer: no member of etcd can be used"),
    ],
)
def test_a_mistake_is_said_in_one_line(tmp_path, arguments, code, said):
    directory = [] if arguments[0] == "status" else ["--data-dir", str(tmp_path)]
    result = CliRunner().invoke(main, ["cluster", *arguments, *directory])
    assert result.exit_code == code
    last = result.stderr.splitlines()[-1]
    assert said in last
    assert code == 2 or result.stderr.splitlines() == [last]
