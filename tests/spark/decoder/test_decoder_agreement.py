"""Both engines give what kafka_wire reads, and what clients that were not written here read."""

from __future__ import annotations

import random
from itertools import count

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.records import Statistics
from fuzz.spark_decoder import GuardedMemory, Log, check, decoded, expected, fuzz, random_batches
from kafka_wire.limits import MAX_OFFSET
from kafka_wire.records.batch import TimestampType, build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord, Record
from tests.spark.decoder.decoder_logs import NOW_MS, PARTITION, chunk, table_of, with_header
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder import Engine
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.schema import COLUMNS

ROUNDS = 40
LONG_ROUNDS = 20_000

some_bytes = st.none() | st.binary(max_size=200)
header_keys = st.binary(max_size=8).map(lambda key: key.decode("utf-8", "surrogateescape"))
timestamps = st.integers(-1, NOW_MS) | st.sampled_from([NOW_MS, 2**50, -(2**50)])


@st.composite
def batches(draw: st.DrawFn, first: int) -> bytes:
    """A batch at or behind ``first``: any codec, gaps, nulls, headers, whosoever's time."""
    deltas = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=20)))
    base_offset = first + draw(st.integers(0, 3))
    headers = st.lists(st.tuples(header_keys, some_bytes), max_size=3)
    records = [
        Record(base_offset + delta, draw(timestamps), draw(some_bytes), draw(some_bytes), draw(headers))
        for delta in deltas
    ]
    kind = draw(st.sampled_from(TimestampType))
    batch = build_batch(records, base_offset=base_offset, codec=draw(st.sampled_from(Codec)), timestamp_type=kind)
    return with_header(batch, last_offset_delta=deltas[-1] + draw(st.integers(0, 50)))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """One to five batches, and any way of decoding them."""
    found: list[bytes] = []
    first = draw(st.sampled_from([0, 17, 2**40]))
    for _ in range(draw(st.integers(1, 5))):
        found.append(draw(batches(first)))
        first = chunk(found[-1]).table.next_offset or 0
    start = draw(st.integers(0, 100)) + draw(st.sampled_from([0, 2**40]))
    end = start + draw(st.integers(0, 600) | st.just(2**50))
    columns = draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
    decoding = Decoding(
        tuple(columns),
        verify_crc=draw(st.booleans()),
        batch_rows=draw(st.sampled_from([1, 2, 7, 10_000])),
        batch_bytes=draw(st.sampled_from([1, 50, 1000, 2**22])),
    )
    return Log(b"".join(found), OffsetRange(PARTITION, start, end), decoding)


@given(logs())
def test_engines_agree_with_kafka_wire(log: Log) -> None:
    assert not isinstance(expected(log), str)
    assert check(log) == ""


def test_broken_logs_are_refused_in_the_same_words_or_read_alike() -> None:
    statistics = Statistics()
    findings = list(fuzz(20261121, range(ROUNDS), statistics))
    assert [finding.problem for finding in findings] == [], findings[0]
    assert 0.1 < statistics.valid / statistics.tried < 0.9, "both ways are taken"


@pytest.mark.soak
def test_many_broken_logs() -> None:
    findings = list(fuzz(4, range(LONG_ROUNDS), Statistics()))
    assert [finding.problem for finding in findings] == [], findings[0]


def test_what_differs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    data, aborted = random_batches(random.Random(3))
    log = Log(b"".join(data), OffsetRange(PARTITION, 0, MAX_OFFSET), Decoding(COLUMNS), tuple(aborted))
    assert check(log) == ""
    monkeypatch.setattr("fuzz.spark_decoder.expected", lambda _log: decoded(log, Engine.PLAIN)[:0])
    assert "differ from kafka_wire" in check(log)
    monkeypatch.setattr("fuzz.spark_decoder.expected", lambda _log: "refused")
    assert check(log) == "refused"


def test_guarded_memory_holds_the_bytes_at_its_end() -> None:
    for size in (0, 1, 4096, 5000):
        assert bytes(GuardedMemory(bytes([7]) * size).view) == bytes([7]) * size


CLIENT_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
RECORDS = [
    NewRecord(NOW_MS, b"key", b"value", []),
    NewRecord(NOW_MS + 1, None, b"", [("a", b"1"), ("b", None), ("a", b"")]),
    NewRecord(NOW_MS + 2, b"", None, [("größe", bytes(300))]),
    NewRecord(NOW_MS + 3, bytes(200), bytes(10_000), []),
] * 20


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("codec", CLIENT_CODECS)
@pytest.mark.parametrize("client", [aiokafka_records, kafka_python_records])
def test_what_clients_read_is_what_comes_out(client: object, codec: Codec, engine: Engine) -> None:
    log = build_batch(RECORDS, base_offset=11, codec=codec)
    columns = ("offset", "timestamp", "key", "value", "headers")
    rows = table_of([chunk(log)], engine, columns=columns).to_pylist()
    theirs = [
        (one.offset, one.timestamp, one.key, one.value, [tuple(header) for header in one.headers])
        for one in client.DefaultRecordBatch(bytearray(log))  # type: ignore[attr-defined]
    ]
    ours = [
        (
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in rows
    ]
    assert ours == theirs


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("codec", CLIENT_CODECS)
def test_what_clients_write_is_read(codec: Codec, engine: Engine) -> None:
    builder = aiokafka_records.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for index, record in zip(count(), RECORDS):
        assert builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    rows = table_of([chunk(bytes(builder.build()))], engine, columns=("offset", "value")).to_pylist()
    assert [(row["offset"], row["value"]) for row in rows] == [(i, one.value) for i, one in enumerate(RECORDS)]
