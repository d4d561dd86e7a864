"""A whole segment against files that Kafka's own classes wrote and read: log, three indexes, snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_wire.records.batch import RecordBatch, build_batch, read_batch_header, read_batches
from kafka_wire.records.record import NewRecord
from trio_broker.storage.transaction_index import AbortedTransaction

BASE_MS = 1_700_000_000_000
FIRST_BATCH = bytes.fromhex(
    "000000000000006400000052000000030265689caf0000000000020000018bcfe568000000018bcfe56807ffffffffffffffffffffffffffff"
    "000000031c000000046b31047631020268027810000a02010476320010000e04046b330100"
)
ABORT_MARKER = bytes.fromhex(
    "0000000000000068000000420000000302f74053d80030000000000000018bcfe568140000018bcfe5681400000000000000070000ffffffff"
    "000000012000000008000000000c00000000000900"
)
INDEX = bytes.fromhex("000000030000005e00000006000000f2")
TIME_INDEX = bytes.fromhex("0000018bcfe5680a000000030000018bcfe5681f00000006")
TRANSACTION_INDEX = bytes.fromhex("00000000000000000007000000000000006700000000000000680000000000000069")
SNAPSHOT = bytes.fromhex(
    "000155c0469e0000000200000000000000070000000000000000000000000067000000000000018bcfe5681400000009ffffffffffffffff"
    "0000000000000008000200000008000000000000006c000000010000018bcfe5681fffffffffffffffffffffffff"
)


def stamped(data: bytes, offset: int) -> bytearray:
    """A batch as leader 3 has it at ``offset``."""
    copy = bytearray(data)
    copy[0:8], copy[12:16] = offset.to_bytes(8, "big"), (3).to_bytes(4, "big")
    return copy


@pytest.fixture
def golden(make_log: Callable[..., Any]) -> Any:
    """The vectors' segment, appended batch by batch as a follower gets it."""
    bench = make_log(log_start_offset=100, index_interval_bytes=80)
    bench.now_ms = BASE_MS + 100
    transactional = build_batch(
        [NewRecord(BASE_MS + 10, None, b"ab")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    plain = build_batch([NewRecord(BASE_MS + 30, None, b"a"), NewRecord(BASE_MS + 31, None, b"b")])
    idempotent = build_batch(
        [NewRecord(BASE_MS + 31, None, b""), NewRecord(BASE_MS + 31, None, b"")],
        producer_id=8,
        producer_epoch=2,
        base_sequence=7,
    )
    for data, offset in (
        (FIRST_BATCH, 100),
        (transactional, 103),
        (ABORT_MARKER, 104),
        (plain, 105),
        (idempotent, 107),
    ):
        bench.replicate(stamped(data, offset))
    return bench


def assert_golden(bench: Any) -> None:
    name = "00000000000000000100"
    assert bench.file(f"{name}.index").read_bytes() == INDEX
    assert bench.file(f"{name}.timeindex").read_bytes() == TIME_INDEX
    assert bench.file(f"{name}.txnindex").read_bytes() == TRANSACTION_INDEX
    assert bench.file("00000000000000000109.snapshot").read_bytes() == SNAPSHOT
    assert bench.file("leader-epoch-checkpoint").read_bytes() == b"0\n1\n3 100\n"
    data = bench.file(f"{name}.log").read_bytes()
    assert data.startswith(FIRST_BATCH)
    assert data[164 : 164 + len(ABORT_MARKER)] == ABORT_MARKER


def test_what_is_written_equals_what_kafka_writes(golden: Any):
    golden.log.close()
    assert_golden(golden)


def test_recovery_rebuilds_the_same_bytes(golden: Any):
    opened = golden.crash(recovery_point=0)
    assert opened.report.recovered_segments == 1
    assert opened.report.cut_bytes == 0
    golden.log.active_segment.seal()
    assert_golden(golden)


def test_a_clean_start_reads_them_as_they_were_meant(golden: Any):
    golden.restart()
    assert (golden.log.log_start_offset, golden.log.log_end_offset) == (100, 109)
    assert golden.log.aborted_transactions(100, 109) == [AbortedTransaction(7, 103, 104, 105)]
    assert golden.log.producers.transactions.last_stable_offset(109) == 109
    assert [batch.header.base_offset for batch in golden.batches()] == [100, 103, 104, 105, 107]


def test_the_first_golden_batch_holds_what_it_was_given():
    (batch,) = read_batches(FIRST_BATCH)
    batch.verify_crc()
    keys = [(record.key, record.value, record.timestamp - BASE_MS) for record in batch.records()]
    assert keys == [(b"k1", b"v1", 0), (None, b"v2", 5), (b"k3", None, 7)]


def test_observed_kafka_recovery_last_bytes_missing(golden: Any):
    path = golden.file("00000000000000000100.log")
    path.write_bytes(path.read_bytes()[:-5])
    report = golden.crash(recovery_point=0).report
    assert golden.log.log_end_offset == 107
    assert report.kept_aside == []


def test_observed_kafka_recovery_zeros_behind(golden: Any):
    path = golden.file("00000000000000000100.log")
    good = path.read_bytes()
    path.write_bytes(good + bytes(4096))
    report = golden.crash(recovery_point=0).report
    assert (report.cut_bytes, path.read_bytes()) == (4096, good)
    assert golden.log.log_end_offset == 109


def test_a_flipped_bit_in_the_second_batch_is_damage_and_kept_aside(golden: Any):
    path = golden.file("00000000000000000100.log")
    damaged = bytearray(path.read_bytes())
    damaged[94 + 65] ^= 4
    path.write_bytes(damaged)
    report = golden.crash(recovery_point=0).report
    assert golden.log.log_end_offset == 103
    assert golden.log.aborted_transactions(100, 103) == []
    (aside,) = report.kept_aside
    assert aside.name.startswith("00000000000000000100.log.corrupt-")
    assert aside.read_bytes() == damaged
    assert RecordBatch(read_batch_header(FIRST_BATCH), memoryview(FIRST_BATCH)).header.next_offset == 103
