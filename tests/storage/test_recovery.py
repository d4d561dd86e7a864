"""Opening a log after a stop or a crash: nothing acknowledged is lost, nothing bad is served."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.records.record import NewRecord
from tests.storage.conftest import make_batch
from tests.storage.log_content import fetched_data
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.recovery import open_log

MakeLog = Callable[..., Any]
FIRST_LOG = "00000000000000000000.log"


def idempotent(sequence: int, now_ms: int) -> bytearray:
    return bytearray(
        build_batch([NewRecord(now_ms, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=sequence)
    )


def test_after_a_clean_stop_nothing_is_read_whole(bench: Any):
    for _ in range(5):
        bench.append(3)
    report = bench.restart().report
    assert (report.was_clean, report.recovered_segments, report.problems) == (True, 0, [])
    assert bench.offsets() == list(range(15))
    assert bench.append().first_offset == 15


def test_after_a_kill_everything_written_is_there(make_log: MakeLog):
    bench = make_log(segment_bytes=500, index_interval_bytes=200)
    for _ in range(40):
        bench.append(2)
    segments = [segment.base_offset for segment in bench.log.segments]
    bench.crash()
    assert bench.offsets() == list(range(80))
    assert [segment.base_offset for segment in bench.log.segments] == segments
    assert bench.append().first_offset == 80


def test_only_segments_from_the_recovery_point_on_are_read(make_log: MakeLog):
    bench = make_log(segment_bytes=200)
    for _ in range(10):
        bench.append(value=bytes(50))
    assert len(bench.log.segments) == 10
    assert bench.crash(recovery_point=8).report.recovered_segments == 3, "the indexes before 8 may not be synced"
    assert bench.crash(recovery_point=10).report.recovered_segments == 1
    assert bench.offsets() == list(range(10))


@pytest.mark.parametrize("missing", range(1, 70, 7))
def test_a_torn_tail_is_cut_at_the_last_whole_batch(bench: Any, missing: int):
    for _ in range(3):
        bench.append()
    path = bench.file(FIRST_LOG)
    whole = path.stat().st_size // 3
    path.write_bytes(path.read_bytes()[:-missing])
    report = bench.crash().report
    assert bench.offsets() == [0, 1]
    assert path.stat().st_size == 2 * whole
    assert (report.cut_bytes, report.kept_aside) == (whole - missing, [])
    assert bench.append().first_offset == 2


@pytest.mark.parametrize("tail", [b"\0" * 10, b"\0" * 5000, b"\xff" * 300, b"\2" * 300, b"garbage " * 40])
def test_a_garbage_tail_is_cut_and_nothing_before_is_touched(bench: Any, tail: bytes):
    for _ in range(3):
        bench.append()
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    path.write_bytes(good + tail)
    report = bench.crash().report
    assert path.read_bytes() == good
    assert report.cut_bytes == len(tail)
    assert report.kept_aside == []


def test_damage_with_good_batches_behind_is_kept_aside(bench: Any, caplog: pytest.LogCaptureFixture):
    for _ in range(5):
        bench.append()
    path = bench.file(FIRST_LOG)
    size = path.stat().st_size // 5
    damaged = bytearray(path.read_bytes())
    damaged[2 * size + 66] ^= 1
    path.write_bytes(damaged)
    report = bench.crash().report
    assert bench.offsets() == [0, 1]
    (aside,) = report.kept_aside
    assert aside.read_bytes() == damaged
    assert "kept as" in caplog.text
    bench.restart()
    assert aside.exists()
    assert bench.offsets() == [0, 1]


def test_damage_to_a_length_field_is_seen_through(bench: Any):
    for _ in range(5):
        bench.append()
    path = bench.file(FIRST_LOG)
    size = path.stat().st_size // 5
    damaged = bytearray(path.read_bytes())
    struct.pack_into(">i", damaged, size + 8, 1 << 30)
    path.write_bytes(damaged)
    report = bench.crash().report
    assert "is put right" in report.problems[0]
    assert report.kept_aside == []
    assert bench.offsets() == [0, 1, 2, 3, 4]
    assert bench.crash().report.problems == []


@pytest.mark.parametrize(("position", "what"), [(7, "offset"), (15, "epoch")])
def test_what_the_checksum_does_not_cover_is_put_right_by_what_is_around_it(bench: Any, position: int, what: str):
    bench.leader_epoch = 1
    for number in range(5):
        bench.append(2, value=b"%d" % number)
    path = bench.file(FIRST_LOG)
    size = path.stat().st_size // 5
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[3 * size + position] = 0
    path.write_bytes(damaged)
    report = bench.crash().report
    assert bench.log.log_end_offset == 10
    assert path.read_bytes() == good, what
    assert "put right" in report.problems[0]


@pytest.mark.parametrize("clean", [True, False])
def test_a_base_offset_of_the_last_batch_does_not_move_the_log_end(bench: Any, clean: bool):
    for _ in range(3):
        bench.append(2)
    bench.log.close()
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[2 * (len(good) // 3) + 5] ^= 0x10
    path.write_bytes(damaged)
    report = bench.reopen(clean=clean).report
    assert bench.log.log_end_offset == 6
    assert path.read_bytes() == good
    assert "put right" in report.problems[-1]
    assert bench.append().first_offset == 6


@pytest.mark.parametrize(("position", "bit"), [(6, 1), (26, 3)])
def test_no_offset_of_a_damaged_header_comes_into_an_index_after_a_clean_stop(
    make_log: MakeLog, position: int, bit: int
):
    bench = make_log(index_interval_bytes=1)
    for _ in range(6):
        bench.append()
    bench.log.close()
    path = bench.file(FIRST_LOG)
    content = bytearray(path.read_bytes())
    content[3 * (len(content) // 6) + position] ^= 1 << bit
    path.write_bytes(content)
    bench.file(f"{0:020d}.index").unlink()
    bench.reopen(clean=True, recovery_point=6)
    assert [bench.append().first_offset for _ in range(3)] == [6, 7, 8]
    with pytest.raises(CorruptRecordBatch):
        bench.log.read(3, 1, end_offset=6)


def first_offset(bench: Any, offset: int) -> int:
    """The base offset of the batch that a read from ``offset`` begins with."""
    fetched = bench.log.read(offset, 1, end_offset=bench.log.log_end_offset)
    return int.from_bytes(fetched_data(fetched)[:8], "big")


def test_damage_below_the_recovery_point_stays_and_the_records_around_it_are_served(bench: Any):
    for _ in range(5):
        bench.append()
    bench.log.sync()
    path = bench.file(FIRST_LOG)
    size = path.stat().st_size // 5
    damaged = bytearray(path.read_bytes())
    damaged[2 * size + 66] ^= 1
    path.write_bytes(damaged)
    for _ in range(2):
        report = bench.crash(recovery_point=5).report
        assert report.kept_aside == []
        assert "reads from 2 up to 3 are refused" in report.problems[0]
        assert [first_offset(bench, offset) for offset in (0, 1, 3, 4)] == [0, 1, 3, 4]
        with pytest.raises(CorruptRecordBatch):
            bench.log.read(2, 1, end_offset=5)
        # All that has changed is a byte that is always the same.
        assert [at for at, byte in enumerate(path.read_bytes()) if byte != damaged[at]] == [2 * size + 16]
    bench.restart()
    with pytest.raises(CorruptRecordBatch):
        bench.log.read(2, 1, end_offset=5)
    assert bench.append().first_offset == 5


@pytest.mark.parametrize("kept", [0, 100, 200])
def test_offsets_of_lost_records_below_the_recovery_point_are_not_given_again(bench: Any, kept: int):
    for _ in range(5):
        bench.append()
    bench.log.close()
    path = bench.file(FIRST_LOG)
    path.write_bytes(path.read_bytes()[:kept])
    report = bench.reopen(clean=False, recovery_point=5).report
    assert "the log goes on at 5" in report.problems[-1]
    assert bench.append().first_offset == 5
    bench.crash(recovery_point=6)
    assert bench.log.log_end_offset == 6


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_without_a_segment_goes_on_behind_what_it_has_had(bench: Any, clean: bool, caplog: Any):
    for sequence in range(5):
        bench.append_bytes(idempotent(sequence, bench.now_ms))
    bench.log.close()
    bench.file(FIRST_LOG).unlink()
    report = bench.reopen(clean=clean, recovery_point=5).report
    assert "those up to 5 are lost, the log goes on at 5" in report.problems[-1]
    assert "ERROR" in [each.levelname for each in caplog.records]
    assert bench.log.log_start_offset == 5
    assert bench.append_bytes(idempotent(5, bench.now_ms)).first_offset == 5
    bench.crash(recovery_point=5)
    assert bench.offsets() == [5]


def test_segments_behind_a_damaged_one_are_kept_aside_too(make_log: MakeLog):
    bench = make_log(segment_bytes=100)
    for _ in range(4):
        bench.append()
    path = bench.file("00000000000000000001.log")
    path.write_bytes(path.read_bytes()[:-3])
    report = bench.crash(recovery_point=0).report
    assert bench.offsets() == [0]
    assert [aside.name.split(".corrupt")[0] for aside in report.kept_aside] == [
        "00000000000000000001.log",
        "00000000000000000002.log",
        "00000000000000000003.log",
    ]
    assert bench.append().first_offset == 1


def test_rebuilt_indexes_equal_the_live_ones(make_log: MakeLog):
    bench = make_log(segment_bytes=3000, index_interval_bytes=300)
    for index in range(100):
        bench.append(1 + index % 4, timestamp=bench.now_ms + (index * 7) % 50)
    bench.log.active_segment.seal()
    files = {path.name: path.read_bytes() for path in bench.directory.glob("*index")}
    bench.crash(recovery_point=0)
    bench.log.active_segment.seal()
    assert {path.name: path.read_bytes() for path in bench.directory.glob("*index")} == files


def test_after_a_clean_restart_all_five_batches_are_remembered(bench: Any, now_ms: int):
    for sequence in range(8):
        bench.append_bytes(idempotent(sequence, now_ms))
    bench.restart()
    for sequence in range(3, 8):
        assert bench.append_bytes(idempotent(sequence, now_ms)).first_offset == sequence
    assert bench.append_bytes(idempotent(8, now_ms)).first_offset == 8


def test_after_a_kill_all_five_batches_are_remembered_across_a_roll(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=250)
    for sequence in range(8):
        bench.append_bytes(idempotent(sequence, now_ms))
    bench.log.roll(now_ms)
    bench.crash(recovery_point=8)
    assert bench.append_bytes(idempotent(7, now_ms)).duplicate
    assert bench.append_bytes(idempotent(6, now_ms)).duplicate
    assert bench.append_bytes(idempotent(8, now_ms)).first_offset == 8


def test_an_open_transaction_survives_a_kill(bench: Any):
    bench.append(producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    bench.append()
    bench.crash()
    assert bench.log.producers.transactions.last_stable_offset(2) == 0
    bench.end_transaction(5, committed=False)
    bench.crash()
    assert bench.log.producers.transactions.last_stable_offset(3) == 3
    assert len(bench.log.aborted_transactions(0, 3)) == 1


def test_a_damaged_snapshot_gives_way_to_an_older_one(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=250)
    for sequence in range(8):
        bench.append_bytes(idempotent(sequence, now_ms))
    bench.log.close()
    newest = bench.file("00000000000000000008.snapshot")
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    bench.reopen(clean=True, recovery_point=8, log_start_offset=0)
    assert bench.append_bytes(idempotent(7, now_ms)).duplicate
    assert bench.append_bytes(idempotent(8, now_ms)).first_offset == 8


def test_a_snapshot_that_does_not_know_a_batch_before_it_is_not_believed(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=200)
    for sequence in range(8):
        bench.append_bytes(idempotent(sequence, now_ms))
    first, *_, last = sorted(bench.directory.glob("*.snapshot"))
    last.write_bytes(first.read_bytes())
    bench.crash(recovery_point=8)
    assert bench.log.producers.producers[1].last_sequence == 7
    assert bench.append_bytes(idempotent(8, now_ms)).first_offset == 8


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lines", [b"0 0\n1 4\n", b"0 0\n1 2\n", b"0 0\n", b"0 1\n1 3\n", b"0 0\n1 13\n"])
def test_leader_epochs_that_do_not_begin_with_their_batches_are_made_anew(make_log: MakeLog, clean: bool, lines: bytes):
    bench = make_log(segment_bytes=150)
    for epoch in (0, 0, 0, 1, 1, 1, 1):
        bench.leader_epoch = epoch
        bench.append(1 if epoch == 0 else 3)
    before = bench.log.epochs.entries
    assert [(entry.epoch, entry.start_offset) for entry in before] == [(0, 0), (1, 3)]
    bench.log.close()
    bench.file("leader-epoch-checkpoint").write_bytes(b"0\n%d\n%b" % (lines.count(b"\n"), lines))
    report = bench.reopen(clean=clean, recovery_point=bench.log.log_end_offset).report
    assert "made anew" in report.problems[0]
    assert bench.log.epochs.entries == before
    assert bench.crash().report.problems == []


def test_a_damaged_leader_epoch_of_a_batch_does_not_change_those_of_the_log(make_log: MakeLog):
    bench = make_log(segment_bytes=150)
    for epoch in (0, 0, 0, 1, 1, 1, 1):
        bench.leader_epoch = epoch
        bench.append()
    bench.log.close()
    before = bench.log.epochs.entries
    sealed = bench.file(f"{3:020d}.log")
    set_epoch(sealed, 0, 65537)
    report = bench.reopen(clean=False, recovery_point=7).report
    assert report.problems == []
    assert bench.log.epochs.entries == before


def test_a_lost_file_of_records_is_reported(make_log: MakeLog):
    bench = make_log(segment_bytes=150)
    for _ in range(6):
        bench.append()
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.log.close()
    bench.file(f"{bases[1]:020d}.log").unlink()
    report = bench.reopen(clean=True).report
    assert report.problems == [f"the file with the records from {bases[1]} on is lost"]
    assert 0 in bench.offsets()
    assert bases[1] not in bench.offsets()


def test_a_segment_that_a_power_cut_took_above_the_recovery_point_is_not_called_lost(make_log: MakeLog):
    bench = make_log(segment_bytes=150)
    for _ in range(6):
        bench.append()
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.log.release()
    bench.file(f"{bases[2]:020d}.log").unlink()
    report = bench.reopen(clean=False, recovery_point=bases[1]).report
    assert not [problem for problem in report.problems if "lost" in problem]
    assert bench.log.log_end_offset == bases[2]


def test_a_snapshot_of_batches_that_a_power_cut_took_is_not_believed_later(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=200, cleanup_policy=CleanupPolicy(delete=False, compact=True))
    for sequence in range(2):
        bench.append_bytes(idempotent(sequence, now_ms))
    bench.append(value=bytes(60))
    bench.append(value=bytes(60))
    bases = [segment.base_offset for segment in bench.log.segments]
    assert bench.file(f"{bases[-1]:020d}.snapshot").exists()
    bench.log.release()
    # As it leaves what was never synced: the records of a segment may be gone, and those of a later one there.
    bench.file(FIRST_LOG).write_bytes(b"")
    bench.reopen(clean=False, recovery_point=0)
    assert bench.log.producers.producers == {}
    bench.crash(recovery_point=bench.log.log_end_offset)
    assert bench.log.producers.producers == {}


@pytest.mark.parametrize(("gaps_end", "newest"), [(0, 4), (5, 4), (6, 6), (None, 6)])
def test_a_compacted_log_ends_where_its_batches_were_lost_unless_compaction_may_have_taken_them(
    make_log: MakeLog, gaps_end: int | None, newest: int
):
    """A marker behind the hole would commit what is left of a transaction that had batches in it."""
    bench = make_log(segment_bytes=200, cleanup_policy=CleanupPolicy(delete=False, compact=True))
    for _ in range(7):
        bench.append()
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2, 4, 6]
    bench.log.release()
    path = bench.file(f"{4:020d}.log")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    bench.reopen(clean=False, recovery_point=0, gaps_end=gaps_end)
    assert bench.offsets()[-1] == newest


def test_a_log_begins_behind_the_hole_that_a_deletion_has_left(make_log: MakeLog):
    bench = make_log(segment_bytes=150)
    for _ in range(10):
        bench.append()
    bases = [segment.base_offset for segment in bench.log.segments]
    bench.log.advance_log_start(bases[3] + 1)
    bench.log.epochs.write()
    bench.log.release()
    # A power cut has lost the checkpoint of the start, and that the first file was renamed, but not the second.
    bench.file(f"{bases[1]:020d}.log").unlink()
    for _ in range(2):
        bench.reopen(clean=False, recovery_point=0, log_start_offset=0)
        assert (bench.log.log_start_offset, bench.log.log_end_offset) == (bases[2], 10)
        assert bench.offsets()[-1] == 9
        bench.log.release()


def test_a_batch_before_the_first_leader_epoch_of_the_file_keeps_its_own(bench: Any):
    for epoch in (0, 1, 2):
        bench.leader_epoch = epoch
        bench.append()
    bench.log.close()
    before = bench.file(FIRST_LOG).read_bytes()
    # As when the log start has moved behind the last record, and a power cut took the checkpoint that says so.
    bench.file("leader-epoch-checkpoint").write_bytes(b"0\n1\n3 3\n")
    report = bench.reopen(clean=False, recovery_point=3).report
    assert report.problems == []
    assert bench.file(FIRST_LOG).read_bytes() == before


def test_stray_snapshots_are_removed(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=250)
    for sequence in range(8):
        bench.append_bytes(idempotent(sequence, now_ms))
    bases = {segment.base_offset for segment in bench.log.segments}
    for offset in (1, 99):
        bench.file(f"{offset:020d}.snapshot").write_bytes(b"")
    bench.restart()
    kept = {int(path.stem) for path in bench.directory.glob("*.snapshot")}
    assert kept <= bases | {8}


def test_expired_producers_are_forgotten_at_start(make_log: MakeLog, now_ms: int):
    bench = make_log(producer_id_expiration_ms=1000)
    bench.append_bytes(idempotent(0, now_ms))
    bench.now_ms += 1000
    bench.restart()
    assert bench.log.producers.producers == {}


def test_a_producer_of_old_timestamps_is_known_again_after_a_crash(make_log: MakeLog, now_ms: int):
    """Its records may be copies from long ago that were written a moment before, and are sent again in the next."""
    bench = make_log(producer_id_expiration_ms=1000)
    bench.append_bytes(idempotent(0, now_ms - 10**9))
    bench.crash()
    assert len(bench.log.producers.producers) == 1


def test_an_unreadable_epoch_file_is_made_anew(bench: Any):
    for epoch in (1, 4):
        bench.leader_epoch = epoch
        bench.append(2)
    before = bench.file("leader-epoch-checkpoint").read_bytes()
    bench.file("leader-epoch-checkpoint").write_bytes(b"0\n7\n1 0\n")
    bench.restart()
    assert bench.file("leader-epoch-checkpoint").read_bytes() == before


def test_epochs_behind_the_cut_are_forgotten(bench: Any):
    bench.append()
    bench.leader_epoch = 1
    bench.append()
    path = bench.file(FIRST_LOG)
    path.write_bytes(path.read_bytes()[:-1])
    bench.crash()
    assert bench.log.latest_epoch == 0


def test_a_clean_marker_does_not_hide_a_torn_tail(bench: Any):
    bench.append()
    bench.append()
    bench.log.close()
    path = bench.file(FIRST_LOG)
    path.write_bytes(path.read_bytes()[:-1])
    report = bench.reopen(clean=True, recovery_point=2, log_start_offset=0).report
    assert report.recovered_segments == 1
    assert "reads from 1 up to 2 are refused" in report.problems[1]
    assert bench.append().first_offset == 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_ends_before_its_start_begins_anew_there_and_its_segments_are_kept_aside(
    make_log: MakeLog, clean: bool
):
    bench = make_log(segment_bytes=200)
    for _ in range(5):
        bench.append(3)
    bench.log.close()
    before = {path.name: path.read_bytes() for path in bench.directory.glob("*.log")}
    assert len(before) > 1
    bench.file("leader-epoch-checkpoint").write_bytes(b"0\n1\n0 150\n")
    report = bench.reopen(clean=clean, log_start_offset=150).report
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (150, 150)
    assert {path.name.partition(".corrupt-")[0]: path.read_bytes() for path in report.kept_aside} == before
    assert "log-start-offset-checkpoint" in report.problems[-1]
    assert bench.append().first_offset == 150
    bench.restart()
    assert bench.offsets() == [150]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", [5, 13, 150])
def test_a_log_start_beyond_that_of_the_leader_epochs_is_not_believed(bench: Any, clean: bool, start: int):
    for _ in range(5):
        bench.append(3)
    bench.log.close()
    report = bench.reopen(clean=clean, log_start_offset=start).report
    assert f"the log start {start}" in report.problems[0]
    assert bench.log.log_start_offset == 0
    assert bench.offsets() == list(range(15))


def test_without_the_checkpoint_the_log_starts_where_the_leader_epochs_begin(bench: Any):
    for _ in range(5):
        bench.append(3)
    bench.log.advance_log_start(7)
    bench.log.epochs.write()
    bench.log.close()
    bench.log.log_start_offset = None
    bench.reopen(clean=True)
    assert bench.log.log_start_offset == 7


# --- Whole batches where they do not belong: stale blocks, a copy made twice ---


def numbered(now_ms: int, number: int, *, producer_id: int = -1) -> bytearray:
    """The batch of three records at offset 3 · ``number``, which is unlike every other one of the same size."""
    return make_batch(
        3,
        value=b"value %d" % number,
        timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        sequence=3 * number if producer_id >= 0 else -1,
    )


def foreign(data: bytearray, base_offset: int, epoch: int = 0) -> bytes:
    """A batch as it stands at ``base_offset`` of some log."""
    next(read_batches(data)).stamp(base_offset=base_offset, partition_leader_epoch=epoch)
    return bytes(data)


@pytest.mark.parametrize("producer_id", [-1, 1])
@pytest.mark.parametrize("stale", [0, 1, 2])
def test_an_older_batch_in_the_place_of_a_durable_one_is_not_served_as_that(
    bench: Any, now_ms: int, producer_id: int, stale: int
):
    for number in range(5):
        bench.append_bytes(numbered(now_ms, number, producer_id=producer_id))
    path = bench.file(FIRST_LOG)
    whole = path.read_bytes()
    size = len(whole) // 5
    path.write_bytes(whole[: 3 * size] + whole[stale * size : (stale + 1) * size] + whole[4 * size :])
    for _ in range(2):
        report = bench.crash(recovery_point=15).report
        assert "reads from 9 up to 12 are refused" in report.problems[0]
        with pytest.raises(CorruptRecordBatch):
            bench.log.read(9, 1, end_offset=15)
        assert [first_offset(bench, offset) for offset in (0, 3, 6, 12)] == [0, 3, 6, 12]
        assert bench.append().first_offset == bench.log.log_end_offset - 1


@pytest.mark.parametrize("producer_id", [-1, 1])
@pytest.mark.parametrize("repeated", [4, 3, 0])
def test_a_copy_of_a_batch_behind_the_end_is_no_batch_of_the_log(
    bench: Any, now_ms: int, producer_id: int, repeated: int
):
    for number in range(5):
        bench.append_bytes(numbered(now_ms, number, producer_id=producer_id))
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    size = len(good) // 5
    path.write_bytes(good + good[repeated * size : (repeated + 1) * size])
    report = bench.crash().report
    assert path.read_bytes() == good
    assert (bench.log.log_end_offset, len(report.kept_aside)) == (15, 1)
    assert bench.append_bytes(numbered(now_ms, 5, producer_id=producer_id)).first_offset == 15


@pytest.mark.parametrize("base_offset", [0, 2, 16, 999, 2**40])
@pytest.mark.parametrize("epoch", [0, 9])
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_batch_of_another_topic_behind_the_end_is_not_served(
    bench: Any, now_ms: int, base_offset: int, epoch: int, producer_id: int
):
    for number in range(5):
        bench.append_bytes(numbered(now_ms, number))
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    path.write_bytes(good + foreign(numbered(now_ms, 40, producer_id=producer_id), base_offset, epoch))
    report = bench.crash().report
    assert path.read_bytes() == good
    assert len(report.kept_aside) == 1
    assert (bench.log.log_end_offset, bench.log.producers.producers) == (15, {})


def test_a_batch_of_another_topic_that_is_older_is_not_served_however_little_its_offset_differs(
    bench: Any, now_ms: int
):
    for number in range(5):
        bench.append_bytes(numbered(now_ms, number))
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    path.write_bytes(good + foreign(numbered(now_ms - 1000, 40), 14))
    assert len(bench.crash().report.kept_aside) == 1
    assert path.read_bytes() == good


def test_an_older_batch_of_a_producer_behind_the_end_does_not_shut_it_out(make_log: MakeLog, now_ms: int):
    """Its place in the log is no longer there to be compared with."""
    bench = make_log(segment_bytes=200)
    batches = [numbered(now_ms, number, producer_id=1) for number in range(6)]
    for data in batches:
        bench.append_bytes(data)
    bench.log.advance_log_start(12)
    bench.log.delete_expired_segments(now_ms, 18)
    path = Path(bench.log.active_segment.file.path)
    good = path.read_bytes()
    path.write_bytes(good + bytes(batches[1]))
    assert len(bench.crash(recovery_point=0).report.kept_aside) == 1
    assert path.read_bytes() == good
    assert bench.append_bytes(numbered(now_ms, 6, producer_id=1)).first_offset == 18


@pytest.mark.parametrize("producer_id", [-1, 1])
@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("position", [0, 5, 7, 9, 11, 12, 15, 16])
def test_one_bit_that_turned_over_before_what_the_checksum_covers_is_put_right(
    bench: Any, now_ms: int, producer_id: int, number: int, position: int
):
    for each in range(5):
        bench.append_bytes(numbered(now_ms, each, producer_id=producer_id))
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    for bit in range(8):
        damaged = bytearray(good)
        damaged[number * (len(good) // 5) + position] ^= 1 << bit
        path.write_bytes(damaged)
        bench.log.release()
        report = bench.reopen(clean=False, recovery_point=15, leader_epoch=0).report
        assert path.read_bytes() == good, f"bit {bit}"
        assert "put right" in report.problems[0]


def set_epoch(path: Path, position: int, epoch: int) -> None:
    """Write another leader epoch into the batch at ``position``: no checksum covers it."""
    content = bytearray(path.read_bytes())
    struct.pack_into(">i", content, position + 12, epoch)
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_leader_epoch_below_zero_is_put_right(bench: Any, damaged: int):
    for _ in range(3):
        bench.append()
    path = bench.file(FIRST_LOG)
    good = path.read_bytes()
    set_epoch(path, damaged * (len(good) // 3), -(2**31))
    report = bench.crash(recovery_point=3).report
    assert path.read_bytes() == good
    assert "is put right" in report.problems[0]


@pytest.mark.parametrize("damaged", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_leader_epoch_that_the_metadata_has_not_reached_is_put_right(bench: Any, damaged: int):
    positions = []
    for epoch in (3, 3, 4):
        positions.append(bench.log.active_segment.size)
        bench.append_bytes(make_batch(), epoch=epoch)
    bench.log.release()
    good = bench.file(FIRST_LOG).read_bytes()
    set_epoch(bench.file(FIRST_LOG), positions[damaged], 2**31 - 1)
    report = bench.reopen(clean=False, recovery_point=0, leader_epoch=4).report
    assert "put right" in report.problems[0]
    assert report.kept_aside == []
    assert bench.log.latest_epoch == 4
    assert bench.append_bytes(make_batch(), epoch=5).first_offset == 3
    assert bench.file(FIRST_LOG).read_bytes().startswith(good)
    bench.log.release()
    assert bench.reopen(clean=False, recovery_point=0, leader_epoch=5).report.problems == []
    assert bench.offsets() == [0, 1, 2, 3]


@pytest.mark.parametrize("clean", [True, False])
def test_an_impossible_epoch_in_the_checkpoint_is_not_believed(bench: Any, clean: bool):
    bench.append_bytes(make_batch(), epoch=3)
    bench.log.close()
    bench.file("leader-epoch-checkpoint").write_bytes(b"0\n2\n3 0\n2147483647 1\n")
    bench.reopen(clean=clean, leader_epoch=3)
    assert bench.log.latest_epoch == 3
    assert bench.append_bytes(make_batch(), epoch=4).first_offset == 1


def test_a_directory_of_another_topic_is_not_opened(bench: Any):
    bench.log.close()
    with pytest.raises(CorruptCheckpoint):
        open_log(
            RealDisk(),
            bench.directory,
            TopicPartition("orders", 0),
            bytes(16),
            LogConfig(),
            recovery_point=0,
            log_start_offset=0,
            clean=True,
            now_ms=0,
        )


def test_a_large_compressed_batch_survives(bench: Any):
    from kafka_wire.records.compression import Codec

    bench.append(200, value=bytes(10_000), codec=Codec.LZ4)
    bench.append(100, value=bytes(8_000), key=None)
    bench.append()
    bench.crash()
    assert bench.log.log_end_offset == 301
    assert bench.offsets() == list(range(301))


def test_a_damaged_transaction_index_is_made_anew_even_after_a_clean_stop(make_log: MakeLog):
    bench = make_log(segment_bytes=400)
    bench.append(producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    bench.end_transaction(5, committed=False)
    for _ in range(20):
        bench.append()
    path = bench.file("00000000000000000000.txnindex")
    good = path.read_bytes()
    bench.log.close()
    path.write_bytes(good[:-1])
    bench.reopen(clean=True, recovery_point=22, log_start_offset=0)
    assert path.read_bytes() == good
    assert bench.offsets()[-1] == 21


def test_records_that_hold_headers_do_not_cost_hours(bench: Any):
    bench.append()
    fake = struct.pack(">qiib", 1, 1 << 20, 0, 2) + bytes(44)
    path = bench.file(FIRST_LOG)
    path.write_bytes(path.read_bytes() + b"x" + fake * 40_000)
    report = bench.crash().report
    assert bench.offsets() == [0]
    assert len(report.kept_aside) == 1
