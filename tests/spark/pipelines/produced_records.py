"""Records that real producers send, each a function of its producer and number, so that a table can be checked by them.

Several producers at once, each with another codec; keys, values and headers that are null, empty, or hold any bytes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import attrs
import pyarrow as pa
from confluent_kafka import Producer

from tests.waits import flushed

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BASE_MS = 1_767_225_500_000
"""Some minutes before 2026 begins in UTC, so that records lie on two days."""

Headers = tuple[tuple[str, bytes | None], ...]


@attrs.frozen
class Sent:
    """What a producer sends. The first header tells which record it is, when all else may be null."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int


def record(producer: int, number: int) -> Sent:
    """The record of that number of a producer."""
    chance = random.Random(producer << 32 | number)
    kind = chance.randrange(10)
    identity = b"%d/%d" % (producer, number)
    key = None if kind in (0, 1) else identity
    value = None if kind == 2 else b"" if kind == 3 else chance.randbytes(chance.randrange(120)) + identity
    headers: Headers | None = (("id", identity), ("empty", b""), ("null", None), ("ü", b"\xff\x00"))
    if kind > 5:
        headers = None
        value = identity + b"|" + chance.randbytes(60)
    return Sent(key, value, headers, BASE_MS + number % 600_000)


def send_all(bootstrap_servers: str, topics: tuple[str, ...], producers: int, count: int) -> None:
    """Let so many producers send so many records each, all at once, to topics in turn."""
    with ThreadPoolExecutor(producers) as threads:
        for sending in [threads.submit(_send, bootstrap_servers, topics, each, count) for each in range(producers)]:
            sending.result()


def _send(bootstrap_servers: str, topics: tuple[str, ...], number: int, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": CODECS[number % len(CODECS)],
            "enable.idempotence": True,
            "linger.ms": "10",
        }
    )
    for each in range(count):
        sent = record(number, each)
        while True:
            try:
                producer.produce(
                    topics[each % len(topics)],
                    sent.value,
                    sent.key,
                    headers=list(sent.headers) if sent.headers else None,
                    timestamp=sent.timestamp_ms,
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert flushed(producer, 120)


def check(table: pa.Table, topics: tuple[str, ...], producers: int, count: int) -> None:
    """Check that a table has exactly the records that ``send_all`` sent, byte for byte, each once."""
    assert table.num_rows == producers * count
    seen: dict[int, set[int]] = defaultdict(set)
    places = set()
    for batch in table.to_batches():
        for row in batch.to_pylist():
            identity = row["headers"][0]["value"] if row["headers"] else row["value"].partition(b"|")[0]
            producer, number = map(int, identity.split(b"/"))
            sent = record(producer, number)
            headers = tuple((each["key"], each["value"]) for each in row["headers"]) if row["headers"] else None
            found = (row["key"], row["value"], headers, round(row["timestamp"].timestamp() * 1000), row["topic"])
            assert found == (*attrs.astuple(sent), topics[number % len(topics)]), (producer, number)
            assert row["timestampType"] == 0
            seen[producer].add(number)
            places.add((row["topic"], row["partition"], row["offset"]))
    assert seen == {producer: set(range(count)) for producer in range(producers)}
    assert len(places) == producers * count
