"""Commands of a cluster whose brokers die: each asks the broker that has what it is about, once there is one.

None of them waits for an election beforehand: Metadata name the dead broker for as long as its session lasts.
"""

from __future__ import annotations

import pytest

from tests.compat.cluster_clients import GROUP_OFFSETS, TRANSACTION_STATE, WAIT_SECONDS, restart
from tests.compat.command_line import CommandLine
from tests.waits import eventually
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.record_producer import ProducerRecord, RecordProducer
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.testing.cluster_thread import ClusterThread

PARTITIONS = 3
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    # Longer than a client tries where no other broker can take over.
    "broker_session_timeout_ms": 2500,
}


def lose_leader_of(cluster: ClusterThread, topic: str) -> None:
    """Restart the broker that died last, if one did, and kill the one that leads the topic's first partition."""
    for each in set(cluster.broker_ids) - set(cluster.running):
        restart(cluster, each)
    eventually(lambda: cluster.leader_of(topic) > 0, WAIT_SECONDS)
    cluster.kill(cluster.leader_of(topic))


@pytest.mark.kafka_cluster(**SETTINGS)
def test_commands_find_what_brokers_had_that_die(kafka_cluster: ClusterThread) -> None:
    command = CommandLine(kafka_cluster.bootstrap_servers)
    command("topics", "create", "orders", "--partitions", str(PARTITIONS), "--replication-factor", "3")
    leaders = [each["leader"] for each in command.json("topics", "describe", "orders")[0]["partitions"]]
    assert len(set(leaders)) == PARTITIONS, "each broker leads one"

    def write(start: int) -> None:
        for partition in range(PARTITIONS):
            lines = "".join(f"{number}\n" for number in range(start, start + 10))
            command("produce", "orders", "--partition", str(partition), given=lines)

    def numbers() -> list[int]:
        return sorted(int(line) for line in command("consume", "orders").splitlines())

    write(0)
    lose_leader_of(kafka_cluster, "orders")
    write(10)
    assert numbers() == sorted(list(range(20)) * PARTITIONS)

    command("groups", "reset-offsets", "billing", "--topic", "orders", "--to-offset", "5", "--execute")
    lose_leader_of(kafka_cluster, GROUP_OFFSETS)
    assert [each["group"] for each in command.json("groups", "list")] == ["billing"]
    assert [each["lag"] for each in command.json("groups", "lag", "billing")] == [15] * PARTITIONS

    settings = ProducerSettings(parse_addresses(kafka_cluster.bootstrap_servers))
    with BatchProducer(settings) as producer:
        producer.begin_transaction("invoices")
        records = RecordProducer(producer)
        records.send("orders", ProducerRecord(None, b"99", partition=0))
        records.flush()
        lose_leader_of(kafka_cluster, TRANSACTION_STATE)
        assert [each["transactional_id"] for each in command.json("transactions", "list")] == ["invoices"]
        lose_leader_of(kafka_cluster, "orders")
        described = command.json("transactions", "describe-producers", "orders:0")
        assert [each["start_offset"] for each in described if each["start_offset"] is not None] == [20]
        command("transactions", "abort", "invoices", "--execute")
    assert numbers() == sorted(list(range(20)) * PARTITIONS)

    command("topics", "purge", "orders", "--to", "15", "--execute")
    assert numbers() == sorted(list(range(15, 20)) * PARTITIONS)
    assert "orders" not in {each["name"] for each in command.json("configs", "list")}
    command("topics", "delete", "orders", "--execute")
