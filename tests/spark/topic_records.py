"""Topics with records in them, for the tests of readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import Producer

from tests.waits import flushed
from trio_broker.testing import BrokerThread

Header = tuple[str, bytes | None]


def fill(
    broker: BrokerThread,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    timestamp_ms: int = 0,
) -> None:
    """Send ``values`` to one partition, each with the same key, headers and time, and wait until they are there."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": "5"})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            key,
            partition,
            headers=list(headers) or None,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert flushed(producer, 30)
    assert not failures


def numbers(start: int, end: int) -> list[bytes]:
    """The decimal texts of a range of numbers."""
    return [str(number).encode() for number in range(start, end)]
