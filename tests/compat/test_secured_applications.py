"""Kafka Streams and Kafka Connect, each exactly once, over TLS with a login and the rights they need and no others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.kafka_process import free_ports
from tests.compat.killable_application import WAIT_SECONDS, KillableApplication
from tests.compat.secured_clients import USER, Case, SecuredBroker, add_entries, secured_broker
from tests.compat.test_java_connect_exactly_once import WORKER, configure, worker_in
from tests.java_programs import STREAMS, Java, compiled_java
from tests.waits import TimeLeft, flushed, within

pytestmark = pytest.mark.soak

TOPIC, GROUP, TRANSACTIONS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE

Right = tuple[ResourceType, str, list[AclOperation]]
"""On one resource, or on all whose names begin so, where the name ends in ``*``."""

STREAMS_RIGHTS: Sequence[Right] = [
    (TOPIC, "lines", [READ]),
    (TOPIC, "regions", [READ]),
    (TOPIC, "counts", [WRITE]),
    (TOPIC, "word-count-*", [READ, WRITE, CREATE, DELETE]),
    (GROUP, "word-count", [READ]),
    (TRANSACTIONS, "word-count-*", [WRITE]),
]

CONNECT_RIGHTS: Sequence[Right] = [
    (TOPIC, "connect-*", [READ, WRITE, CREATE, AclOperation.DESCRIBE_CONFIGS]),
    (TOPIC, "numbers", [WRITE]),
    (GROUP, "workers", [READ]),
    (TRANSACTIONS, "connect-cluster-workers", [WRITE]),
    (TRANSACTIONS, "workers-counting-*", [WRITE]),
]

LINES, WORDS_PER_LINE, NUMBERS = 100, 3, 200


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path) as broker:
        yield broker


def prepare(admin: Case, topics: Sequence[str], rights: Sequence[Right]) -> None:
    """Create topics with two partitions each, and give the user ``rights``."""
    settings: dict[str, Any] = {**admin.librdkafka}
    client = AdminClient(settings)
    for created in client.create_topics([NewTopic(name, 2, 1) for name in topics]).values():
        within(created.result, WAIT_SECONDS)
    entries = [
        AclBinding(type_, name.rstrip("*"), pattern_of(name), f"User:{USER}", "*", each, AclPermissionType.ALLOW)
        for type_, name, operations in rights
        for each in operations
    ]
    add_entries(client, entries)


def pattern_of(name: str) -> ResourcePatternType:
    return ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL


def committed(admin: Case, topic: str, count: int, application: KillableApplication) -> dict[bytes, list[int]]:
    """The first ``count`` numbers that are committed in a topic, by their keys."""
    settings: dict[str, Any] = {**admin.librdkafka, "group.id": "none", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, index, 0) for index in (0, 1)])
    found: dict[bytes, list[int]] = defaultdict(list)
    time_left = TimeLeft(WAIT_SECONDS)
    while sum(map(len, found.values())) < count:
        application.check_alive()
        assert not time_left.is_over, application.output.read_text()[-4000:]
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found[message.key() or b""].append(int(message.value() or b""))
    consumer.close()
    return found


def test_streams_counts_each_word_once_with_rights_to_what_is_its_own(secured: SecuredBroker, tmp_path: Path) -> None:
    admin, user = secured.admin, secured.case("SCRAM-SHA-512")
    prepare(admin, ["lines", "regions", "counts"], STREAMS_RIGHTS)
    settings: dict[str, Any] = {**admin.librdkafka}
    producer = Producer(settings)
    for number in range(10):
        producer.produce("regions", "north", f"person {number}")
    assert flushed(producer, WAIT_SECONDS)
    for number in range(LINES):
        producer.produce("lines", f"a{number % 7} b{number % 5} c{number % 3}", f"person {number % 10}")
    assert flushed(producer, WAIT_SECONDS)
    properties = tmp_path / "client.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in user.java.items()))
    arguments = ["WordCount", user.servers, str(tmp_path / "stores"), str(properties)]
    application = KillableApplication(compiled_java(STREAMS).class_path, arguments, tmp_path)
    application.start()
    try:
        counts = committed(admin, "counts", LINES * WORDS_PER_LINE, application)
    finally:
        application.kill()
    assert counts == {key: list(range(1, len(values) + 1)) for key, values in counts.items()}


def test_connect_writes_each_number_once_with_rights_to_what_is_its_own(
    secured: SecuredBroker, tmp_path: Path, java: Java
) -> None:
    admin, user = secured.admin, secured.case("SCRAM-SHA-512")
    prepare(admin, ["numbers"], CONNECT_RIGHTS)
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    clients = {
        f"{prefix}{key}": value
        for prefix in ("", "producer.", "consumer.", "admin.")
        for key, value in user.java.items()
    }
    worker = worker_in(java, tmp_path, {**WORKER, **clients, "bootstrap.servers": user.servers, "listeners": url})
    worker.start()
    try:
        configure(worker, f"{url}/connectors/counting/config")
        numbers = committed(admin, "numbers", NUMBERS, worker)
    finally:
        worker.kill()
    assert {key: sorted(values) for key, values in numbers.items()} == {
        key: list(range(len(values))) for key, values in numbers.items()
    }
