"""A real broker in a test: the fixture ``kafka_broker`` comes with the package, and each test gets a broker of its own.

pytest examples/test_with_a_broker.py
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer

from trio_broker.testing import BrokerThread

SECONDS = 30


def test_what_is_produced_is_consumed(kafka_broker: BrokerThread) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("orders", key=b"ada", value=b"30")
    assert producer.flush(SECONDS) == 0

    consumer = Consumer(
        {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "tests", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    record = consumer.poll(SECONDS)
    consumer.close()
    assert record is not None
    assert (record.key(), record.value()) == (b"ada", b"30")


@pytest.mark.kafka_broker(num_partitions=3)
def test_a_broker_has_the_settings_of_its_marker(kafka_broker: BrokerThread) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce("orders", value=b"30")
    assert producer.flush(SECONDS) == 0
    assert len(producer.list_topics("orders", timeout=SECONDS).topics["orders"].partitions) == 3
