"""A client that was not written here logs in under TLS, and says what its user knows when it does not trust the
broker."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, Producer

from tests.security.tls_files import write_key_store
from trio_broker.testing.broker_thread import BrokerThread

pytestmark = pytest.mark.compat

SECONDS = 10.0
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="right";'


def test_confluent_kafka_logs_in_under_tls_and_says_that_it_does_not_trust_the_broker(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    settings: dict[str, Any] = {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(write_key_store(tmp_path / "broker.pem", ca.issue_cert("127.0.0.1"))),
    }
    errors: list[KafkaError] = []
    client: dict[str, Any] = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "right",
        "error_cb": errors.append,
        "logger": logging.getLogger("librdkafka"),
    }
    with BrokerThread(**settings) as broker:
        client["bootstrap.servers"] = broker.bootstrap_servers
        trusting = {**client, "ssl.ca.location": str(tmp_path / "ca.pem")}
        producer = Producer(trusting)
        # Above what is sealed on the event loop at once.
        producer.produce("sealed", bytes(300_000))
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({**trusting, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["sealed"])
        record = consumer.poll(SECONDS)
        consumer.close()
        assert record is not None
        assert record.value() == bytes(300_000)
        assert errors == []
        distrusting = Producer({**client, "ssl.ca.location": str(tmp_path / "other.pem")})
        while not any(error.code() == KafkaError._SSL for error in errors):
            distrusting.poll(0.1)
