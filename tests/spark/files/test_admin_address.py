"""Where manifests are asked for, from the address to the rows of a broker that runs."""

from __future__ import annotations

import pickle
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from kafka_wire.sasl.mechanisms import SaslCredentials
from tests.spark.log_files import read
from tests.waits import flushed
from trio_broker.client.address import parse_addresses
from trio_broker.client.security import ClientSecurity, parse_security
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.config.ssl_config import SslConfig
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.files.admin_address import url_of
from trio_broker.spark.files.cluster_manifests import ClusterManifests
from trio_broker.spark.files.file_planning import plan_files
from trio_broker.spark.files.manifest import BrokerManifests, NoSuchTopic
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.testing.broker_thread import BrokerThread

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
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


def test_by_https_a_broker_is_asked_under_a_name_that_its_certificate_has() -> None:
    assert url_of("0.0.0.0:9644", "kafka.example", is_https=True) == "https://kafka.example:9644"
    assert url_of("[::1]:9644", "kafka.example", is_https=True) == "https://[::1]:9644"


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


def test_a_brokers_files_are_found_by_https_as_the_user_of_the_cluster(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("authority", datetime.now(UTC))
    (tmp_path / "ca.pem").write_bytes(authority.trusted)
    store = authority.issue_server("broker", ["127.0.0.1"], datetime.now(UTC))
    write_private_file(tmp_path / "broker.pem", store.pem)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings: dict[str, Any] = {
        "listeners": "LOGIN://127.0.0.1:0,PLAIN://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_SSL,PLAIN:PLAINTEXT",
        "inter.broker.listener.name": "PLAIN",
        "ssl.keystore.location": str(tmp_path / "broker.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULE} user_alice="alice-secret";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:alice;User:ANONYMOUS",
        "admin.listener": f"127.0.0.1:{port}",
        "admin.security.protocol": "SSL",
    }
    with BrokerThread(tmp_path / "data", **settings) as broker:
        broker.create_topic("orders")
        bootstrap = parse_addresses(broker.bootstrap_servers)

        login = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} username="alice" password="alice-secret";',
        }
        security = parse_security(login)
        manifests = ClusterManifests(KafkaSettings(bootstrap, security=security, request_timeout_ms=5000))
        assert pickle.loads(pickle.dumps(manifests)).topic_manifest("orders", {0: 0}).log(0).partition == ORDERS
        assert security.sasl is not None
        for wrong, reason in (
            (attrs.evolve(security, tls=SslConfig()), "no TLS: nobody in the truststore has signed its certificate"),
            (attrs.evolve(security, sasl=attrs.evolve(security.sasl, secret="wrong")), "HTTP status 401"),
        ):
            source = BrokerManifests(f"https://127.0.0.1:{port}", 1, security=wrong)
            assert "secret" not in repr(source)
            with pytest.raises(SourceUnavailable, match=reason):
                source.topic_manifest("orders")


def test_a_password_is_not_sent_without_https() -> None:
    source = BrokerManifests("http://127.0.0.1:1", 1, security=ClientSecurity(sasl=SaslCredentials("PLAIN", "a", "b")))
    assert (source._credentials("http"), source._credentials("https")) == ({}, {"Authorization": "Basic YTpi"})


def produce(broker: BrokerThread, *values: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for value in values:
        producer.produce("orders", value, partition=0)
    assert flushed(producer, 20)
