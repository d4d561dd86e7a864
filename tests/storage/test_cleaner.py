"""A round of compaction: what stays of a log, and what is kept for whom."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.records.record import NewRecord
from tests.storage.compaction_harness import Round, compact, planned
from tests.storage.conftest import NOW_MS
from trio_broker.config.config_key import LONG_MAX
from trio_broker.config.log_config import CleanupPolicy
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import dump
from trio_broker.storage.offset_map import SLOT_BYTES

MakeLog = Callable[..., Any]
DELETE_RETENTION_MS = 1000
SMALL_MAP_BYTES = SLOT_BYTES * 11
"""Room for nine keys."""


@pytest.fixture
def bench(make_log: MakeLog) -> Any:
    return make_log(cleanup_policy=CleanupPolicy(delete=False, compact=True), delete_retention_ms=DELETE_RETENTION_MS)


def put(bench: Any, *records: tuple[bytes | None, bytes | None], **options: Any) -> int:
    """Append one batch; return its first offset."""
    made = [NewRecord(NOW_MS + index, key, value) for index, (key, value) in enumerate(records)]
    return int(bench.append_bytes(bytearray(build_batch(made, **options))).first_offset)


def sealed(bench: Any) -> Any:
    bench.log.roll(NOW_MS)
    return bench


def left(bench: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in bench.batches()
        if not batch.header.is_control
        for record in batch.records()
    ]


def headers(bench: Any) -> list[Any]:
    return [batch.header for batch in bench.batches()]


def test_of_each_key_the_newest_record_stays_at_its_offset(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", b"2"), (b"c", b"1"))
    put(bench, (b"a", b"3"))
    put(sealed(bench), (b"b", b"in the active segment"))
    done = compact(bench.log, NOW_MS)
    assert left(bench) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3"), (5, b"b", b"in the active segment")]
    assert (done.records_read, done.records_kept) == (5, 3)
    assert bench.log.first_dirty_offset == 5
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (0, 6)


def test_the_clean_part_loses_what_the_dirty_part_has_anew(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    compact(sealed(bench).log, NOW_MS)
    put(bench, (b"a", b"2"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_a_second_round_over_the_same_changes_nothing(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", b"2"), (b"d", None))
    compact(sealed(bench).log, NOW_MS)
    before = bench.file("00000000000000000000.log").read_bytes()
    bench.log.first_dirty_offset = 0
    compact(bench.log, NOW_MS)
    assert bench.file("00000000000000000000.log").read_bytes() == before


def test_a_compaction_that_writes_index_entries_has_nothing_to_warn_of(make_log: MakeLog, caplog: Any) -> None:
    bench = make_log(cleanup_policy=CleanupPolicy(delete=False, compact=True), index_interval_bytes=1)
    for key in (b"a", b"b", b"c"):
        put(bench, (key, bytes(1000)))
    compact(sealed(bench).log, NOW_MS)
    assert bench.file("00000000000000000000.index").stat().st_size
    assert caplog.messages == []


def test_a_batch_that_loses_nothing_stays_byte_for_byte(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD)
    before = bytes(bench.batches()[0].buffer)
    compact(sealed(bench).log, NOW_MS)
    assert bytes(bench.batches()[0].buffer) == before


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_loses_records_keeps_its_codec(bench: Any, codec: Codec) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1" * 100), codec=codec)
    put(bench, (b"a", b"2"))
    compact(sealed(bench).log, NOW_MS)
    first = bench.batches()[0]
    assert first.header.codec is codec
    assert [record.offset for record in first.records()] == [1]


def test_records_without_a_key_are_dropped(bench: Any) -> None:
    bench.log.config = attrs.evolve(bench.config, cleanup_policy=CleanupPolicy())
    put(bench, (None, b"1"), (b"a", b"1"), (None, b"2"))
    bench.log.config = bench.config
    done = compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"a", b"1")]
    assert done.records_without_key == 2


def test_the_empty_key_is_a_key(bench: Any) -> None:
    put(bench, (b"", b"1"), (b"", b"2"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"", b"2")]


# --- Tombstones


def test_a_tombstone_stays_for_delete_retention_ms_from_the_round_that_met_it(bench: Any) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"a", None), (b"b", b"1"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"a", None), (2, b"b", b"1")]
    [header] = [header for header in headers(bench) if header.record_count]
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + DELETE_RETENTION_MS
    for now_ms, stays in ((NOW_MS + DELETE_RETENTION_MS - 1, True), (NOW_MS + DELETE_RETENTION_MS, False)):
        put(bench, (b"c", b"1"))
        compact(sealed(bench).log, now_ms)
        assert ((1, b"a", None) in left(bench)) is stays
    assert (2, b"b", b"1") in left(bench)


@pytest.mark.parametrize("timestamp", [LONG_MAX, LONG_MAX - 1, 10**16, 0, -1, -5, -LONG_MAX, -LONG_MAX - 1])
@pytest.mark.parametrize("retention_ms", [DELETE_RETENTION_MS, LONG_MAX])
def test_records_of_any_time_and_tombstones_for_ever_are_compacted(
    make_log: MakeLog, timestamp: int, retention_ms: int
) -> None:
    policy = CleanupPolicy(delete=False, compact=True)
    bench = make_log(
        cleanup_policy=policy,
        delete_retention_ms=retention_ms,
        message_timestamp_after_max_ms=LONG_MAX,
        message_timestamp_before_max_ms=LONG_MAX,
    )
    for values in ((b"1", b"1"), (None, b"2")):
        made = [NewRecord(timestamp, key, value) for key, value in zip((b"a", b"b"), values, strict=True)]
        bench.append_bytes(bytearray(build_batch(made)))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(2, b"a", None), (3, b"b", b"2")]
    [batch] = [each for each in bench.batches() if each.header.record_count]
    horizon_ms = min(NOW_MS + retention_ms, LONG_MAX)
    assert batch.header.has_delete_horizon is (timestamp - horizon_ms >= -LONG_MAX - 1), "else it stays for ever"
    assert batch.header.base_timestamp == (horizon_ms if batch.header.has_delete_horizon else timestamp)
    assert [record.timestamp for record in batch.records()] == [timestamp, timestamp]


def test_records_stay_that_are_farther_apart_than_their_batch_was_from_each(make_log: MakeLog) -> None:
    bench = make_log(
        cleanup_policy=CleanupPolicy(delete=False, compact=True),
        message_timestamp_after_max_ms=LONG_MAX,
        message_timestamp_before_max_ms=LONG_MAX,
    )
    times = {b"a": 0, b"b": LONG_MAX, b"c": -LONG_MAX}
    made = [NewRecord(timestamp, key, b"1") for key, timestamp in times.items()]
    bench.append_bytes(bytearray(build_batch(made)))
    put(bench, (b"a", b"2"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"b", b"1"), (2, b"c", b"1"), (3, b"a", b"2")]
    assert [record.timestamp for record in bench.batches()[0].records()] == [LONG_MAX, -LONG_MAX]


def test_the_time_of_a_tombstone_begins_once(bench: Any) -> None:
    put(bench, (b"a", None), (b"b", b"1"))
    compact(sealed(bench).log, NOW_MS)
    put(bench, (b"b", b"2"))
    compact(sealed(bench).log, NOW_MS + 500)
    assert headers(bench)[0].base_timestamp == NOW_MS + DELETE_RETENTION_MS
    assert [record.timestamp for record in bench.batches()[0].records()] == [NOW_MS]


def test_a_tombstone_that_was_overwritten_goes_at_once(bench: Any) -> None:
    put(bench, (b"a", None))
    put(bench, (b"a", b"1"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(1, b"a", b"1")]


# --- What is kept empty


def test_the_last_batch_of_a_round_stays_even_without_records(bench: Any) -> None:
    """Its offsets are the end of what was compacted, as far as anybody can tell who looks into this segment."""
    bench.log.config = attrs.evolve(bench.config, cleanup_policy=CleanupPolicy())
    put(bench, (b"a", b"1"))
    put(bench, (None, b"1"), (None, b"2"))
    bench.log.config = bench.config
    compact(sealed(bench).log, NOW_MS)
    [_, last] = headers(bench)
    assert (last.base_offset, last.last_offset, last.record_count) == (1, 2, 0)
    put(bench, (b"b", b"1"))
    compact(sealed(bench).log, NOW_MS)
    assert [header.base_offset for header in headers(bench)] == [0, 3]


def test_the_batch_with_a_producers_last_sequence_stays_without_its_records(bench: Any) -> None:
    """Or the producer's next batch would be out of sequence after a restart, and its last one no repetition."""
    mine: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    put(bench, (b"a", b"1"), base_sequence=0, **mine)
    put(bench, (b"a", b"2"), (b"b", b"2"), base_sequence=1, **mine)
    for key in (b"a", b"b", b"end"):
        put(bench, (key, b"3"))
    compact(sealed(bench).log, NOW_MS)
    [kept] = [header for header in headers(bench) if header.producer_id == 7]
    assert (kept.base_offset, kept.last_offset, kept.record_count) == (1, 2, 0)
    assert (kept.base_sequence, kept.last_sequence) == (1, 2)
    for path in bench.directory.glob("*.snapshot"):
        path.unlink()
    bench.crash(recovery_point=0)
    again = build_batch([NewRecord(NOW_MS, b"a", b"2"), NewRecord(NOW_MS + 1, b"b", b"2")], base_sequence=1, **mine)
    assert bench.append_bytes(bytearray(again)).duplicate
    assert put(bench, (b"a", b"4"), base_sequence=3, **mine) == 6


def test_the_batch_of_a_producer_that_was_forgotten_goes(bench: Any) -> None:
    put(bench, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(bench, (b"a", b"2"))
    put(bench, (b"b", b"2"))
    bench.log.producers.remove_expired(NOW_MS + 10**9, 1)
    compact(sealed(bench).log, NOW_MS)
    assert [header.base_offset for header in headers(bench)] == [1, 2]


# --- Transactions


def transaction(bench: Any, key: bytes, value: bytes, *, committed: bool, producer_id: int = 7) -> None:
    entry = bench.log.producers.producers.get(producer_id)
    sequence = entry.last_sequence + 1 if entry else 0
    put(bench, (key, value), producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    bench.end_transaction(producer_id, committed=committed)


def markers(bench: Any) -> list[int]:
    return [header.base_offset for header in headers(bench) if header.is_control]


def test_records_of_an_aborted_transaction_go_and_what_they_wanted_to_replace_stays(bench: Any) -> None:
    put(bench, (b"a", b"committed"))
    transaction(bench, b"a", b"aborted", committed=False)
    put(bench, (b"b", b"1"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(0, b"a", b"committed"), (3, b"b", b"1")]


def test_a_marker_outlives_its_records_by_delete_retention_ms(bench: Any) -> None:
    transaction(bench, b"a", b"1", committed=False)
    transaction(bench, b"b", b"1", committed=True, producer_id=8)
    put(bench, (b"b", b"2"))
    put(bench, (b"end", b"1"))
    bench.log.producers.remove_expired(NOW_MS + 10**9, 1)
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(4, b"b", b"2"), (5, b"end", b"1")]
    assert markers(bench) == [1, 3], "their records were there when the round began"
    assert not any(header.has_delete_horizon for header in headers(bench))
    put(bench, (b"c", b"1"))
    compact(sealed(bench).log, NOW_MS)
    assert [header.has_delete_horizon for header in headers(bench) if header.is_control] == [True, True]
    put(bench, (b"c", b"2"))
    compact(sealed(bench).log, NOW_MS + DELETE_RETENTION_MS - 1)
    assert markers(bench) == [1, 3]
    put(bench, (b"c", b"3"))
    compact(sealed(bench).log, NOW_MS + DELETE_RETENTION_MS)
    assert markers(bench) == []


def test_an_aborted_transaction_is_indexed_as_long_as_a_batch_of_it_is_left(bench: Any) -> None:
    """Here its batch is the producer's last one, and so stays, empty."""
    transaction(bench, b"a", b"1", committed=False)
    put(bench, (b"b", b"1"))
    for _ in range(3):
        put(bench, (b"c", b"1"))
        compact(sealed(bench).log, NOW_MS + 10 * DELETE_RETENTION_MS)
        assert [each.producer_id for each in bench.log.aborted_transactions(0, bench.log.log_end_offset)] == [7]
        assert markers(bench) == [1]
    bench.log.producers.remove_expired(NOW_MS + 10**9, 1)
    put(bench, (b"c", b"1"))
    compact(sealed(bench).log, NOW_MS + 10 * DELETE_RETENTION_MS)
    put(bench, (b"c", b"1"))
    compact(sealed(bench).log, NOW_MS + 10 * DELETE_RETENTION_MS)
    assert bench.log.aborted_transactions(0, bench.log.log_end_offset) == []


def test_an_open_transaction_keeps_compaction_before_it(bench: Any) -> None:
    put(bench, (b"a", b"1"))
    put(sealed(bench), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(sealed(bench), (b"a", b"3"))
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]
    assert bench.log.first_dirty_offset == 1
    bench.end_transaction(7, committed=True)
    compact(sealed(bench).log, NOW_MS)
    assert left(bench) == [(2, b"a", b"3")]


def test_a_transaction_whose_marker_a_power_cut_could_take_keeps_compaction_before_it(bench: Any) -> None:
    """Its records are on the disk, and readers of committed records have passed them."""
    put(bench, (b"a", b"1"))
    put(sealed(bench), (b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    put(sealed(bench), (b"b", b"1"))
    bench.log.sync()
    bench.end_transaction(7, committed=True)
    assert planned(bench.log, NOW_MS, sync=False).end_offset == 1
    bench.log.sync()
    assert planned(bench.log, NOW_MS, sync=False).end_offset == 2


def test_what_is_decided_during_a_sync_is_compacted_after_the_next(bench: Any) -> None:
    for value in (b"1", b"2"):
        put(bench, (b"a", value), producer_id=7, producer_epoch=0, base_sequence=int(value) - 1, transactional=True)
        sealed(bench)
    synced = bench.log.sync_files()
    bench.end_transaction(7, committed=False)
    sealed(bench)
    bench.log.note_synced(synced)
    assert planned(bench.log, NOW_MS, sync=False).end_offset == 0
    bench.log.sync()
    assert planned(bench.log, NOW_MS, sync=False).end_offset == 3


def test_a_transaction_across_segments_is_known_to_the_end(make_log: MakeLog) -> None:
    bench = make_log(segment_bytes=200, cleanup_policy=CleanupPolicy(delete=False, compact=True))
    mine: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for sequence in range(6):
        put(bench, (b"k%d" % sequence, b"aborted"), base_sequence=sequence, **mine)
        put(bench, (b"k%d" % sequence, b"plain"))
    bench.end_transaction(7, committed=False)
    put(bench, (b"end", b"1"))
    assert len(bench.log.segments) > 4
    compact(sealed(bench).log, NOW_MS)
    assert {value for _, _, value in left(bench)} == {b"plain", b"1"}


# --- A map that is full


def test_a_full_map_leaves_the_rest_to_the_next_round(bench: Any) -> None:
    for value in range(3):
        put(bench, *((b"k%d" % key, b"%d" % value) for key in range(30)))
    sealed(bench)
    rounds = 0
    while bench.log.first_dirty_offset != 90:
        before = bench.log.first_dirty_offset or 0
        compact(bench.log, NOW_MS, map_bytes=SMALL_MAP_BYTES)
        assert bench.log.first_dirty_offset > before
        rounds += 1
    assert rounds >= 10
    assert left(bench) == [(60 + key, b"k%d" % key, b"2") for key in range(30)]


def test_records_behind_what_the_map_holds_stay(bench: Any) -> None:
    put(bench, *((b"k%d" % (number % 15), b"%d" % number) for number in range(30)))
    compact(sealed(bench).log, NOW_MS, map_bytes=SMALL_MAP_BYTES)
    assert bench.log.first_dirty_offset == 9
    assert len(left(bench)) == 30


# --- Files


def test_small_segments_become_one_and_its_snapshot_stays(make_log: MakeLog) -> None:
    bench = make_log(segment_bytes=200, cleanup_policy=CleanupPolicy(delete=False, compact=True))
    for value in range(8):
        put(bench, (b"a", b"%d" % value), (b"k%d" % value, b"1"))
    bases = [segment.base_offset for segment in sealed(bench).log.segments]
    assert bases == [0, 4, 8, 12, 16]
    bench.log.config = attrs.evolve(bench.config, segment_bytes=10_000)
    compact(bench.log, NOW_MS)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 16]
    names = {path.name for path in bench.directory.glob("0*")}
    live = {name for name in names if not name.endswith(".deleted")}
    assert live == {
        *(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        *(f"{16:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")),
    }
    bench.log.remove_deleted_files(NOW_MS + bench.config.file_delete_delay_ms)
    assert not list(bench.directory.glob("*.deleted"))
    bench.restart()
    assert left(bench)[-1] == (15, b"k7", b"1")
    assert len(left(bench)) == 9


def test_a_cleaned_segment_is_as_old_as_what_it_was_made_from(bench: Any) -> None:
    put(bench, (b"a", b"1"))
    path = bench.file("00000000000000000000.log")
    sealed(bench)
    os.utime(path, (1_600_000_000, 1_600_000_000))
    compact(bench.log, NOW_MS)
    assert path.stat().st_mtime == 1_600_000_000


def test_the_active_segment_is_never_touched(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"a", b"2"))
    before, number = bench.batches(), bench.log.active_segment.file.opened().number
    compact(bench.log, NOW_MS)
    assert bench.batches() == before
    assert bench.log.active_segment.file.opened().number == number
    assert bench.log.first_dirty_offset == 0


def test_appends_go_on_between_all_steps(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", b"2"))
    for step, _ in enumerate(Round(sealed(bench).log, NOW_MS).steps()):
        put(bench, (b"during", b"%d" % step))
    assert [key for _, key, _ in left(bench)].count(b"during") == step + 1
    assert left(bench)[:2] == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_the_epochs_of_batches_stay(bench: Any) -> None:
    for epoch in (3, 5):
        records = [NewRecord(NOW_MS, b"k%d" % epoch, b"1"), NewRecord(NOW_MS, b"a", b"%d" % epoch)]
        bench.append_bytes(bytearray(build_batch(records)), epoch=epoch)
    compact(sealed(bench).log, NOW_MS)
    assert [header.partition_leader_epoch for header in headers(bench)] == [3, 5]
    assert bench.log.end_offset_for_epoch(3).end_offset == 2


def sealed_indexes(bench: Any) -> list[bytes]:
    """Of offsets and times. That of transactions is made anew from the batches that are left, and so is shorter."""
    return [
        segment.path(suffix).read_bytes() for segment in bench.log.segments[:-1] for suffix in (".index", ".timeindex")
    ]


def test_the_log_is_recovered_after_a_crash_from_its_beginning_as_it_was(make_log: MakeLog) -> None:
    bench = make_log(segment_bytes=400, cleanup_policy=CleanupPolicy(delete=False, compact=True))
    for number in range(40):
        transaction(bench, b"k%d" % (number % 7), b"%d" % number, committed=number % 3 > 0)
    compact(sealed(bench).log, NOW_MS)
    before = left(bench)
    indexes = sealed_indexes(bench)
    report = bench.crash(recovery_point=0).report
    assert (report.cut_bytes, report.problems) == (0, [])
    assert left(bench) == before
    assert sealed_indexes(bench) == indexes


def test_the_dump_tells_of_horizons_and_emptied_batches(bench: Any) -> None:
    put(bench, (b"a", None), (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(bench, (b"c", b"1"), producer_id=8, producer_epoch=0, base_sequence=0)
    put(bench, (b"c", b"2"))
    compact(sealed(bench).log, NOW_MS)
    text = "\n".join(dump.dump(RealDisk(), bench.file("00000000000000000000.log"), deep=True))
    assert f"deleteHorizonMs: {NOW_MS + DELETE_RETENTION_MS}" in text
    assert "baseOffset: 2 lastOffset: 2 count: 0" in text
    assert "isvalid: false" not in text


# --- Damage


def test_a_damaged_batch_ends_the_round_and_every_file_stays_as_it_was(bench: Any) -> None:
    put(bench, (b"a", b"1"), (b"b", b"1"))
    put(bench, (b"a", b"2"))
    sealed(bench).log.sync()
    path = bench.file("00000000000000000000.log")
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    this_round = Round(bench.log, NOW_MS)
    with pytest.raises(CorruptRecordBatch, match="CRC"):
        list(this_round.steps())
    this_round.cleaning.discard()
    assert path.read_bytes() == damaged
    assert bench.log.first_dirty_offset is None
    assert not list(bench.directory.glob("*.cleaned"))


@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("no whole batch at position", lambda good: good[:-1]),
        ("behind offset", lambda good: good[len(good) // 2 :] + good[: len(good) // 2]),
        ("magic 0|does not exist", lambda good: good[: len(good) // 2] + bytes(len(good) // 2)),
    ],
)
def test_damage_outside_the_checksum_is_noticed_too(bench: Any, what: str, damage: Callable[[bytes], bytes]) -> None:
    put(bench, (b"a", b"1"))
    put(bench, (b"b", b"2"))
    sealed(bench).log.sync()
    path = bench.file("00000000000000000000.log")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptRecordBatch, match=what):
        list(Round(bench.log, NOW_MS).steps())


def test_a_batch_that_reaches_into_the_next_segment_is_damage(bench: Any) -> None:
    put(bench, (b"a", b"1"))
    put(sealed(bench), (b"b", b"2"))
    sealed(bench).log.sync()
    first, second = (bench.file(f"{offset:020d}.log") for offset in (0, 1))
    first.write_bytes(second.read_bytes())
    with pytest.raises(CorruptRecordBatch, match="the segment before that"):
        list(Round(bench.log, NOW_MS).steps())
