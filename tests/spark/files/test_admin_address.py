"""Where manifests are asked for, from the address to the rows of a broker that runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.spark.log_files import read
from tests.waits import flushed
from trio_broker.client.address import parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.files.admin_address import url_of
from trio_broker.spark.files.cluster_manifests import ClusterManifests
from trio_broker.spark.files.file_planning import plan_files
from trio_broker.spark.files.manifest import NoSuchTopic
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.testing.broker_thread import BrokerThread

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("listener", "broker_host", "url"),
    [
        ("127.0.0.1:9644", "10.0.0.7", "http://127.0.0.1:9644"),
        ("localhost:9644", "10.0.0.7", "http://localhost:9644"),
        ("admin.example:80", "10.0.0.7", "http://admin.example:80"),
        ("0.0.0.0:9644", "10.0.0.7", "http://10.0.0.7:9644"),
        (":9644", "10.0.0.7", "http://10.0.0.7:9644"),
        ("[::]:9644", "10.0.0.7", "http://10.0.0.7:9644"),
        ("[::1]:9644", "10.0.0.7", "http://[::1]:9644"),
        ("0.0.0.0:9644", "fd00::7", "http://[fd00::7]:9644"),
    ],
)
def test_a_listener_is_an_address_as_seen_from_here(listener: str, broker_host: str, url: str) -> None:
    assert url_of(listener, broker_host) == url


@pytest.mark.parametrize(("listener", "reason"), [("", "is off"), ("127.0.0.1:0", "has a port of the system's choice")])
def test_an_admin_app_that_cannot_be_found_has_to_be_named(listener: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"option 'adminUrl': is needed: the broker's admin.listener {reason}"):
        url_of(listener, "127.0.0.1")


def manifests_of(bootstrap_servers: str) -> ClusterManifests:
    return ClusterManifests(KafkaSettings(parse_addresses(bootstrap_servers), request_timeout_ms=5000))


def test_a_broker_that_does_not_answer_is_reported() -> None:
    with pytest.raises(SourceUnavailable, match=r"kafka.bootstrap.servers 127.0.0.1:1: "):
        manifests_of("127.0.0.1:1").topic_manifest("orders", {0: 0})


def test_a_brokers_files_are_found_and_read_beside_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerThread(tmp_path, admin_listener=f"127.0.0.1:{port}") as broker:
        broker.create_topic("orders")
        produce(broker, b"one", b"two")
        manifests = manifests_of(broker.bootstrap_servers)
        [task] = plan_files([OffsetRange(ORDERS, 0, 2)], manifests)
        produce(broker, b"three")
        assert read(task.transport, task.offsets) == [(0, b"one"), (1, b"two")]
        with pytest.raises(NoSuchTopic, match="topic 'nowhere'"):
            manifests.topic_manifest("nowhere", {0: 0})
        with pytest.raises(NoSuchTopic, match="topic 'orders' has no partition 5"):
            manifests.topic_manifest("orders", {5: 0})
        with pytest.raises(DataLoss, match="the log ends at offset 2, before 9"):
            read(task.transport, OffsetRange(ORDERS, 0, 9))


def produce(broker: BrokerThread, *values: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value, partition=0)
    assert flushed(producer, 20)
