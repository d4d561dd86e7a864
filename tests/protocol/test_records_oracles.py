"""Two independent clients read what we build and build what we read, with every codec they have."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.records.batch import TIMESTAMP_TYPE_BIT, RecordBatch, TimestampType, build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.property_examples import examples

with warnings.catch_warnings():
    # kafka-python loads its schemas through a function that Python 3.11 calls deprecated; that is its own affair.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

T = 1_700_000_000_000

A_FIFTH = examples(Fraction(1, 5))
"""Of the profile's examples, for each of the thirty combinations of a codec and a class."""

KAFKA_PYTHON_CODECS = [
    codec
    for codec, available in [
        (Codec.NONE, True),
        (Codec.GZIP, kafka.codec.has_gzip()),
        (Codec.SNAPPY, kafka.codec.has_snappy()),
        (Codec.LZ4, kafka.codec.has_lz4()),
        (Codec.ZSTD, kafka.codec.has_zstd()),
    ]
    if available
]

AIOKAFKA_BATCH = [aiokafka_records.DefaultRecordBatch, aiokafka_records._DefaultRecordBatchPy]
AIOKAFKA_BUILDER = [aiokafka_records.DefaultRecordBatchBuilder, aiokafka_records._DefaultRecordBatchBuilderPy]

some_bytes = st.none() | st.binary(max_size=40)
a_record = st.builds(
    NewRecord,
    st.integers(T - 10_000, T + 2**33),
    some_bytes,
    some_bytes,
    st.lists(st.tuples(st.text(max_size=6), some_bytes), max_size=3),
)
some_records = st.lists(a_record, min_size=1, max_size=12)

LARGE = [NewRecord(T + number, b"key %d" % number, b"value %d, " % number * 20, [("h", b"x")]) for number in range(900)]
"""Above 128 KiB: several snappy and lz4 blocks."""


def ours(data: bytes | bytearray) -> tuple[RecordBatch, list[NewRecord]]:
    (batch,) = read_batches(data)
    batch.verify_crc()
    records = list(batch.records())
    assert [record.offset for record in records] == list(range(len(records)))
    assert batch.validate_records().record_count == len(records)
    return batch, [NewRecord(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def theirs(batch: Any) -> list[NewRecord]:
    """Return the records of either library's batch as ours, checking what surrounds them."""
    assert batch.validate_crc()
    records = list(batch)
    assert [record.offset for record in records] == list(range(len(records)))
    return [NewRecord(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def kafka_python_built(records: list[NewRecord], codec: Codec, **producer: Any) -> bytes:
    builder = MemoryRecordsBuilder(2, int(codec), 10_000_000, **producer)
    for record in records:
        assert builder.append(record.timestamp, record.key, record.value, list(record.headers)) is not None
    builder.close()
    return bytes(builder.buffer())


def kafka_python_batch(data: bytes | bytearray) -> Any:
    memory_records = MemoryRecords(bytes(data))
    batch = memory_records.next_batch()
    assert batch is not None
    assert memory_records.next_batch() is None
    return batch


def aiokafka_built(records: list[NewRecord], codec: Codec, builder_class: Any) -> bytes:
    builder = builder_class(2, int(codec), 0, -1, -1, -1, 10_000_000)
    for offset, record in enumerate(records):
        assert builder.append(offset, record.timestamp, record.key, record.value, list(record.headers)) is not None
    return bytes(builder.build())


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
@A_FIFTH
@given(records=some_records)
def test_kafka_python_reads_ours(codec: Codec, records: list[NewRecord]) -> None:
    assert theirs(kafka_python_batch(build_batch(records, codec=codec))) == records


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
@A_FIFTH
@given(records=some_records)
def test_we_read_kafka_pythons(codec: Codec, records: list[NewRecord]) -> None:
    assert ours(kafka_python_built(records, codec))[1] == records


@pytest.mark.parametrize("batch_class", AIOKAFKA_BATCH)
@pytest.mark.parametrize("codec", Codec)
@A_FIFTH
@given(records=some_records)
def test_aiokafka_reads_ours(codec: Codec, batch_class: Any, records: list[NewRecord]) -> None:
    assert theirs(batch_class(bytearray(build_batch(records, codec=codec)))) == records


@pytest.mark.parametrize("builder_class", AIOKAFKA_BUILDER)
@pytest.mark.parametrize("codec", Codec)
@A_FIFTH
@given(records=some_records)
def test_we_read_aiokafkas(codec: Codec, builder_class: Any, records: list[NewRecord]) -> None:
    assert ours(aiokafka_built(records, codec, builder_class))[1] == records


@pytest.mark.parametrize("codec", Codec)
def test_large_batches_cross_in_both_directions(codec: Codec) -> None:
    data = build_batch(LARGE, codec=codec)
    assert theirs(aiokafka_records.DefaultRecordBatch(bytearray(data))) == LARGE
    assert ours(aiokafka_built(LARGE, codec, aiokafka_records.DefaultRecordBatchBuilder))[1] == LARGE
    if codec in KAFKA_PYTHON_CODECS:
        assert theirs(kafka_python_batch(data)) == LARGE
        assert ours(kafka_python_built(LARGE, codec))[1] == LARGE


def test_uncompressed_batches_are_the_same_bytes() -> None:
    """The clients leave the leader epoch at 0 or -1; it lies before the CRC and says nothing."""
    mine = bytearray(build_batch(LARGE))
    for other in (kafka_python_built(LARGE, Codec.NONE), aiokafka_built(LARGE, Codec.NONE, AIOKAFKA_BUILDER[1])):
        assert mine[:12] + mine[16:] == other[:12] + other[16:]


def test_the_producers_state_crosses() -> None:
    fields = {"producer_id": 12, "producer_epoch": 3, "base_sequence": 40, "transactional": True}
    header = ours(kafka_python_built(LARGE, Codec.GZIP, **fields))[0].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 40)
    assert (header.is_transactional, header.last_sequence) == (True, 40 + len(LARGE) - 1)
    theirs_read = kafka_python_batch(
        build_batch(LARGE, producer_id=12, producer_epoch=3, base_sequence=40, transactional=True)
    )
    assert (theirs_read.producer_id, theirs_read.producer_epoch, theirs_read.last_sequence) == (12, 3, 939)
    assert theirs_read.is_transactional


def test_log_append_time_as_we_stamp_it_is_what_they_read() -> None:
    data = bytearray(build_batch(LARGE[:3]))
    next(read_batches(data)).amend(attributes=TIMESTAMP_TYPE_BIT, max_timestamp=T + 1234)
    for batch in (kafka_python_batch(data), aiokafka_records.DefaultRecordBatch(bytearray(data))):
        assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME
        assert [record.timestamp for record in theirs(batch)] == [T + 1234] * 3


def test_markers_as_we_write_them_are_control_records_to_them() -> None:
    data = build_control_batch(EndTransactionMarker(committed=False, coordinator_epoch=1), timestamp=T, producer_id=4)
    batch = kafka_python_batch(data)
    assert batch.is_control_batch
    assert [record.abort for record in batch] == [True]
