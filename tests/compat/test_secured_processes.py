"""Three broker processes with etcd over TLS, which reach each other by TLS and a login and ask for rights, and one of
which is killed while a client writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.secured_clients import add_entries
from tests.etcd_server import FAST_ELECTIONS, EtcdServer
from tests.waits import eventually, flushed, within
from trio_broker.cluster.etcd.server import free_port
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.security.certificate_authority import CertificateAuthority
from trio_broker.security.private_files import write_private_file
from trio_broker.testing.process import BrokerProcess

pytestmark = pytest.mark.soak

SECONDS = 60.0
BROKERS = (1, 2, 3)
RECORDS = 100
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" '
    'user_admin="admin-secret" user_alice="alice-secret";'
)
SETTINGS = {
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
    "listener.name.brokers.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:broker;User:admin",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "250",
    "log.durability": "page-cache",
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, BrokerProcess]]:
    now = datetime.now(UTC)
    authority = CertificateAuthority.create("authority", now)
    (tmp_path / "ca.pem").write_bytes(authority.trusted)
    pem = tmp_path / "broker.pem"
    write_private_file(pem, authority.issue_server("broker", ["127.0.0.1"], now).pem)
    tls = ("--cert-file", str(pem), "--key-file", str(pem))
    etcd = EtcdServer(tmp_path, (*FAST_ELECTIONS, *tls), "https")
    with ExitStack() as stack:
        etcd.start()
        stack.callback(etcd.kill)
        made: dict[int, BrokerProcess] = {}
        for node_id in BROKERS:
            made[node_id] = BrokerProcess(
                tmp_path / f"broker-{node_id}",
                overrides={
                    **SETTINGS,
                    "node.id": str(node_id),
                    # Clients' last: that is the one whose address the process remembers.
                    "listeners": f"BROKERS://127.0.0.1:{free_port()},CLIENTS://127.0.0.1:{free_port()}",
                    "metadata.store": f"etcds://127.0.0.1:{etcd.port}/secured",
                    "metadata.store.ca.file": str(tmp_path / "ca.pem"),
                    "ssl.keystore.location": str(pem),
                    "ssl.truststore.location": str(tmp_path / "ca.pem"),
                },
                has_admin=False,
            )
        for broker in made.values():
            stack.enter_context(broker)
        yield made


def client(brokers: dict[int, BrokerProcess], directory: Path, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.bootstrap_servers for each in brokers.values()),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(directory / "ca.pem"),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
        "log_level": 0,
    }


def test_a_killed_broker_of_three_loses_nothing_of_a_client_with_rights(brokers, tmp_path) -> None:
    admin = AdminClient(client(brokers, tmp_path, "admin"))
    within(admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result, SECONDS)
    rights = [
        AclBinding(type_, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW)
        for type_, name, operation in (
            (ResourceType.TOPIC, "orders", AclOperation.WRITE),
            (ResourceType.TOPIC, "orders", AclOperation.READ),
            (ResourceType.GROUP, "billing", AclOperation.READ),
        )
    ]
    add_entries(admin, rights)

    def partition() -> Any:
        return admin.list_topics("orders", timeout=SECONDS).topics["orders"].partitions[0]

    eventually(lambda: set(partition().isrs) == set(BROKERS), SECONDS)
    settings = client(brokers, tmp_path, "alice")
    failures: list[object] = []
    producer = Producer({**settings, "acks": "all", "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("orders", b"%d" % number, on_delivery=lambda error, _: failures.append(error))
        producer.poll(0)
        if number == RECORDS // 2:
            dead = partition().leader
            brokers[dead].kill()
    assert flushed(producer, SECONDS)
    assert failures == [None] * RECORDS
    brokers[dead].start()
    eventually(lambda: set(partition().isrs) == set(BROKERS), SECONDS)
    consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < RECORDS:
        message = within(consumer.poll, SECONDS)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value() or b""))
    consumer.close()
    assert found == list(range(RECORDS))
    refused: list[str] = []
    intruder = Producer(settings)
    intruder.produce("others", b"x", on_delivery=lambda error, _: refused.append(error.name() if error else ""))
    assert flushed(intruder, SECONDS)
    assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
