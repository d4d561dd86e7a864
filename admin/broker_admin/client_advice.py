"""Advice to a producer, from the numbers of what it has sent and the errors it got. Pure functions.

Advice is given only where the numbers leave little doubt; a producer that sends little gets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from broker_admin.texts import bytes_text
from trio_broker.network.statistics import ProducedBatches

FEW_RECORDS = 2.0
"""Records per batch below which each record pays for nearly a whole request of its own."""

LINGER_MS = (5, 10, 25, 50)
"""The values of ``linger.ms`` that are tried, none of which a user notices."""

LONGEST_LINGER_MS = 100
"""For a producer whose requests wait far longer than that in its sockets."""

WORTHWHILE_RECORDS = 4.0
"""Records that a batch should have with the advised linger: less is not worth the wait."""

DEFAULT_BATCH_BYTES = 16 * 1024
"""``batch.size`` of Kafka's Java producer."""

FULL_BATCH_RATIO = 0.85
"""Batches that end up this close to ``batch.size`` were full rather than waited for."""

MUCH_UNCOMPRESSED_BYTES = 16 * 1024 * 1024
"""Uncompressed bytes from which compression is worth mentioning."""

MIN_BATCHES = 50
"""Fewer are too few to say anything of."""


@attrs.frozen
class ClientAdvice:
    """A setting of the client, ``linger.ms=5``, and why."""

    setting: str
    reason: str


def producer_advice(
    produced: ProducedBatches, producing_seconds: float, backlog_bytes: int = 0
) -> tuple[ClientAdvice, ...]:
    """Settings that would serve a producer better; ``producing_seconds`` are summed over its connections.

    ``backlog_bytes`` are those of requests that wait unread behind others. A producer with a backlog sends more than
    what its numbers of the past are made of, so that it gets advice from its first batch on.
    """
    waiting = backlog_advice(produced, producing_seconds, backlog_bytes) if backlog_bytes else None
    if produced.batches < MIN_BATCHES:
        found: list[ClientAdvice | None] = [waiting]
    else:
        size = [waiting] if waiting else [linger_advice(produced, producing_seconds), batch_size_advice(produced)]
        found = [*size, compression_advice(produced), idempotence_advice(produced)]
    return tuple(advice for advice in found if advice is not None)


def backlog_advice(produced: ProducedBatches, producing_seconds: float, backlog_bytes: int) -> ClientAdvice | None:
    """A ``linger.ms`` as long as the time between two batches that are served, in which the next ones can gather."""
    if not produced.batches or produced.bytes / produced.batches >= FULL_BATCH_RATIO * DEFAULT_BATCH_BYTES:
        return None
    between_ms = 1000 * producing_seconds / produced.batches
    linger_ms = next((each for each in LINGER_MS if each >= between_ms), LONGEST_LINGER_MS)
    return ClientAdvice(
        f"linger.ms={linger_ms}",
        f"{bytes_text(backlog_bytes)} of its requests wait unread behind those before them; a batch "
        f"holds {produced.records / produced.batches:.1f} records, and what gathers in {linger_ms} ms "
        "would share one. More partitions and connections help as well",
    )


def linger_advice(produced: ProducedBatches, producing_seconds: float) -> ClientAdvice | None:
    per_batch = produced.records / produced.batches
    if per_batch >= FEW_RECORDS or producing_seconds <= 0:
        return None
    per_second = produced.records / producing_seconds
    for linger_ms in LINGER_MS:
        gathered = per_second * linger_ms / 1000
        if gathered >= WORTHWHILE_RECORDS:
            size = produced.bytes // produced.batches
            return ClientAdvice(
                f"linger.ms={linger_ms}",
                f"a batch holds {per_batch:.1f} records and {size} bytes; at {per_second:.0f} records a second on each "
                f"connection up to {gathered:.0f} would share one, and most requests would not be needed",
            )
    return None


def batch_size_advice(produced: ProducedBatches) -> ClientAdvice | None:
    size = produced.bytes / produced.batches
    if produced.records == produced.batches or not size >= FULL_BATCH_RATIO * DEFAULT_BATCH_BYTES:
        return None
    if size > DEFAULT_BATCH_BYTES:
        return None
    return ClientAdvice(
        f"batch.size={4 * DEFAULT_BATCH_BYTES}",
        f"batches have {size:.0f} bytes, so most are full at the default of {DEFAULT_BATCH_BYTES}",
    )


def compression_advice(produced: ProducedBatches) -> ClientAdvice | None:
    is_compressed = any(codec != "none" for codec in produced.batches_by_codec)
    if is_compressed or produced.bytes < MUCH_UNCOMPRESSED_BYTES or produced.records == produced.batches:
        return None
    return ClientAdvice(
        "compression.type=lz4",
        f"{produced.bytes / 2**20:.0f} MiB came uncompressed, in batches of {produced.records / produced.batches:.0f} "
        "records; text often shrinks to a third, on the network and on the disk",
    )


def idempotence_advice(produced: ProducedBatches) -> ClientAdvice | None:
    if produced.idempotent_batches or produced.acks != -1:
        return None
    return ClientAdvice("enable.idempotence=true", "acks=all without it: a retry may write records twice")


SIZE_SETTINGS: Final[Mapping[str, str]] = {
    "apache-kafka-java": "max.request.size",
    "librdkafka": "message.max.bytes",
    "confluent-kafka-": "message.max.bytes",
    "kafka-python": "max_request_size",
    "aiokafka": "max_request_size",
    "kgo": "ProducerBatchMaxBytes",
    "sarama": "Producer.MaxMessageBytes",
}
"""What bounds a client's batches, by how the name of its software begins."""


def error_advice(error: str, software_name: str) -> str:
    """Which settings, of the topic and of this client, an error is about; empty for one that is about none."""
    if error != "MESSAGE_TOO_LARGE":
        return ""
    found = (setting for name, setting in SIZE_SETTINGS.items() if software_name.startswith(name))
    own = next(found, "its own limit of a request")
    return (
        "A batch was larger than max.message.bytes of its topic (message.max.bytes of the broker where it has none)."
        f" Raise that, and {own} of this client where that is smaller; or send smaller records."
    )
