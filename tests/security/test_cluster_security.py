"""Brokers reach each other over TLS, with certificates or logins, and one that may not harms no other."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waits import eventually, scaled
from trio_broker.broker import StartupError
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.testing import ClusterThread

NOW = datetime.now(UTC)
CA = CertificateAuthority.create("authority", NOW)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_broker="secret" user_alice="secret"'
WAIT_SECONDS = 30

SECURITY: dict[str, dict[str, Any]] = {
    "SSL": {"ssl.client.auth": "required", "super.users": "User:CN=broker"},
    "SASL_SSL": {"plain.sasl.jaas.config": f'{MODULE} username="broker" password="secret" {USERS};'},
    "SASL_PLAINTEXT": {"plain.sasl.jaas.config": f'{MODULE} username="broker" password="secret" {USERS};'},
}


def settings_of(protocol: str, directory: Path) -> dict[str, Any]:
    """The settings of brokers that reach each other, and are reached, by one protocol."""
    (directory / "ca.pem").write_bytes(CA.trusted)
    write_private_file(directory / "broker.pem", CA.issue_server("broker", ["127.0.0.1"], NOW).pem)
    write_private_file(directory / "alice.pem", CA.issue_client("alice", NOW).pem)
    own = {f"listener.name.{protocol.lower()}.{name}": value for name, value in SECURITY[protocol].items()}
    return {
        "listeners": f"{protocol}://127.0.0.1:0",
        "security.inter.broker.protocol": protocol,
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.location": str(directory / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "min.insync.replicas": 2,
        **own,
    }


def client_of(cluster: ClusterThread, protocol: str, directory: Path) -> dict[str, Any]:
    alice = str(directory / "alice.pem")
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": protocol,
        "ssl.ca.location": str(directory / "ca.pem"),
        **({"ssl.certificate.location": alice, "ssl.key.location": alice} if protocol == "SSL" else {}),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "log_level": 0,
    }


def isr(cluster: ClusterThread) -> set[int]:
    return set(cluster.image.topics["orders"].partitions[0].isr)


def produce(client: dict[str, Any], values: range) -> None:
    producer, failures = Producer({**client, "acks": "all", "message.timeout.ms": WAIT_SECONDS * 1000}), list[object]()

    def note(error: object, _: object) -> None:
        failures.append(error)

    for value in values:
        producer.produce("orders", str(value).encode(), partition=0, on_delivery=note)
    assert producer.flush(scaled(WAIT_SECONDS)) == 0
    assert not any(failures)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_brokers_replicate_and_forward_and_coordinate_over_tls(protocol, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with ClusterThread(**settings_of(protocol, tmp_path)) as cluster:
        client = client_of(cluster, protocol, tmp_path)
        # Each broker is asked, of which two forward to the controller.
        for node_id in cluster.broker_ids:
            admin = AdminClient({**client, "bootstrap.servers": cluster.address_of(node_id)})
            topic = "orders" if node_id == 1 else f"orders-{node_id}"
            [made] = admin.create_topics([NewTopic(topic, 1, 3)], operation_timeout=WAIT_SECONDS).values()
            made.result(scaled(WAIT_SECONDS))
        produce(client, range(10))
        first = cluster.leader_of("orders")
        cluster.kill(first)
        eventually(lambda: cluster.leader_of("orders") not in (first, -1), WAIT_SECONDS)
        produce(client, range(10, 20))
        cluster.restart(first)
        eventually(lambda: isr(cluster) == {1, 2, 3}, WAIT_SECONDS)
        consumer = Consumer({**client, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: list[bytes | None] = []
        while len(found) < 20:
            message = consumer.poll(scaled(WAIT_SECONDS))
            assert message is not None
            found.append(message.value())
        consumer.commit(offsets=[TopicPartition("orders", 0, 20)], asynchronous=False)
        consumer.close()
        assert found == [str(value).encode() for value in range(20)]


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("SSL", "no TLS: it does not trust the certificate of ssl.keystore.location (unknown CA)"),
        ("SASL_PLAINTEXT", "it refuses with SASL_AUTHENTICATION_FAILED"),
    ],
)
def test_a_broker_that_others_do_not_let_in_learns_why_and_harms_nobody(protocol, reason, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    other = CertificateAuthority.create("other", NOW)
    write_private_file(tmp_path / "other.pem", other.issue_server("broker", ["127.0.0.1"], NOW).pem)
    wrong: dict[str, Any] = {
        "SSL": {"ssl_keystore_location": str(tmp_path / "other.pem")},
        "SASL_PLAINTEXT": {
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{MODULE} username="broker" password="wrong" {USERS};'
            )
        },
    }
    with ClusterThread(**settings_of(protocol, tmp_path)) as cluster:
        client = client_of(cluster, protocol, tmp_path)
        cluster.create_topic("orders", 1, 3)
        cluster.kill(3)
        produce(client, range(5))
        caplog.clear()
        with ThreadPoolExecutor(1) as threads:
            own = {**wrong[protocol], "initial_broker_registration_timeout_ms": 3000}
            start = threads.submit(partial(cluster.restart, 3, **own))
            eventually(lambda: reason in caplog.text, WAIT_SECONDS)
            produce(client, range(5, 10))
            assert isr(cluster) == {1, 2}
            assert isinstance(start.exception(scaled(WAIT_SECONDS)), StartupError)
        produce(client, range(10, 15))
