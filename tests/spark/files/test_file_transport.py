"""Ranges read from the files of a log that stands still."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.spark.log_files import COMPACTED, ORDERS, LogFiles, numbered, read, rows, transport
from tests.storage.followed_log import truncate
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.files import transport as transport_module
from trio_broker.spark.files.manifest import AbortedRange
from trio_broker.spark.files.transport import UpcomingAborts
from trio_broker.spark.ranges import OffsetRange

SMALL: dict[str, Any] = {"segment_bytes": 600, "index_interval_bytes": 150}
"""Some six batches of three records to a segment, and every other one indexed."""


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """Offsets 0 to 90 in several segments, each record with its offset as its value."""
    files = LogFiles.create(tmp_path, **SMALL)
    files.fill(30)
    assert len(files.log.segments) > 4
    return files


def log_file(files: LogFiles, index: int, suffix: str = ".log") -> Path:
    return Path(files.log.segments[index].path(suffix))


def origins(files: LogFiles, offsets: OffsetRange, **options: object) -> list[str]:
    return [chunk.origin for chunk in transport(files, **options).chunks(offsets)]


# --- Which rows ---


@pytest.mark.parametrize("start", range(0, 90, 7))
@pytest.mark.parametrize("length", [0, 1, 4, 40, 90])
def test_every_range_gives_its_rows_and_no_others(log: LogFiles, start: int, length: int) -> None:
    end = min(start + length, 90)
    assert read(transport(log, read_bytes=256), log.range(start, end)) == numbered(start, end)


@pytest.mark.parametrize("read_bytes", [61, 100, 333, 1 << 20])
def test_batches_that_cross_the_end_of_a_read_come_whole(log: LogFiles, read_bytes: int) -> None:
    assert read(transport(log, read_bytes=read_bytes), log.range()) == numbered(0, 90)


def test_a_batch_larger_than_a_read_comes_whole(log: LogFiles) -> None:
    log.append(b"x" * 400)
    assert read(transport(log, read_bytes=100), log.range(90))[0][1] == b"x" * 400


def test_an_empty_range_opens_nothing(tmp_path: Path, log: LogFiles) -> None:
    assert read(transport(log, paths=(str(tmp_path / "nowhere"),)), log.range(5, 5)) == []


def test_offsets_that_compaction_left_empty_are_no_end(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=250, cleanup_policy=COMPACTED)
    for index in range(12):
        files.append(b"%d" % index, key=b"k")
    files.compact()
    files.append(b"last", key=b"k")
    assert read(transport(files), files.range(0)) == [(11, b"11"), (12, b"last")]
    assert read(transport(files), files.range(3, 9)) == []


def test_files_are_opened_some_at_a_time(log: LogFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_OPEN_SEGMENTS", 2)
    before = open_files(log)
    most = max(open_files(log) - before for _ in transport(log).chunks(log.range()))
    assert most == 2
    assert open_files(log) == before
    assert read(transport(log), log.range()) == numbered(0, 90)


def test_closing_early_closes_the_files(log: LogFiles) -> None:
    before = open_files(log)
    chunks = transport(log).chunks(log.range())
    next(chunks)
    assert open_files(log) > before
    chunks.close()
    assert open_files(log) == before


def open_files(log: LogFiles) -> int:
    """How many of its files this process has open; others may be closed meanwhile, by a collection of garbage."""
    return sum(is_below(Path(f"/proc/self/fd/{number}"), log.data_directory) for number in os.listdir("/proc/self/fd"))


def is_below(link: Path, directory: Path) -> bool:
    try:
        return link.readlink().is_relative_to(directory)
    except FileNotFoundError:  # of the listing itself
        return False


def test_a_transport_travels_with_a_task(log: LogFiles) -> None:
    travelled = pickle.loads(pickle.dumps(transport(log)))
    assert read(travelled, log.range()) == numbered(0, 90)


# --- Where to begin ---


def test_an_index_leads_near_the_start(log: LogFiles) -> None:
    [origin] = origins(log, log.range(8, 9), read_bytes=61)
    assert int(origin.rpartition("@")[2]) > 0
    first = log.log.segments[0].offset_index.entries
    assert first[0].position > 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4096,
        struct.pack(">ii", 3, 1) * 3,
        struct.pack(">iiii", 2, 7, 5, 33),
        struct.pack(">ii", 5, 2**31 - 1),
        struct.pack(">ii", -5, -7),
        b"odd",
    ],
    ids=["empty", "zeros", "the same again", "inside batches", "behind the end", "negative", "torn"],
)
def test_an_index_that_lies_costs_time_and_no_rows(log: LogFiles, content: bytes) -> None:
    log_file(log, 0, ".index").write_bytes(content)
    for start in range(18):
        assert read(transport(log, read_bytes=256), log.range(start, 18)) == numbered(start, 18)


def test_an_entry_for_another_batch_is_not_believed(log: LogFiles) -> None:
    index = log.log.segments[0].offset_index.entries
    lie = struct.pack(">ii", index[0].offset, index[1].position)
    log_file(log, 0, ".index").write_bytes(lie)
    start = index[0].offset
    assert read(transport(log), log.range(start, 18)) == numbered(start, 18)


def test_a_missing_index_is_done_without(log: LogFiles) -> None:
    for index in range(len(log.log.segments) - 1):
        log_file(log, index, ".index").unlink()
    assert read(transport(log), log.range(50)) == numbered(50, 90)


def test_zeros_behind_the_entries_of_an_index_do_not_count(log: LogFiles) -> None:
    path = log_file(log, 0, ".index")
    path.write_bytes(path.read_bytes() + bytes(8000))
    [origin] = origins(log, log.range(8, 9), read_bytes=61)
    assert int(origin.rpartition("@")[2]) > 0


def test_the_active_segment_is_begun_where_the_plan_says(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, index_interval_bytes=150)
    files.fill(30)
    log_file(files, 0, ".index").unlink()  # of an active segment it lacks the newest entries
    [origin] = origins(files, files.range(80, 81), read_bytes=61)
    assert int(origin.rpartition("@")[2]) > 1000
    assert read(transport(files), files.range(80)) == numbered(80, 90)


# --- Growth ---


def test_what_is_appended_after_planning_is_not_read(log: LogFiles) -> None:
    planned = transport(log)
    size = log.log.active_segment.size
    log.append(b"later")
    for chunk in planned.chunks(log.range(87, 90)):
        position = int(chunk.origin.rpartition("@")[2])
        assert position + len(chunk.data) <= size


def test_half_a_batch_behind_the_planned_end_does_no_harm(log: LogFiles) -> None:
    planned = transport(log)
    with log_file(log, -1).open("ab") as file:
        file.write(b"\x00" * 30)
    assert read(planned, log.range()) == numbered(0, 90)


def test_a_segment_that_was_active_when_planned_may_have_been_sealed_since(log: LogFiles) -> None:
    planned, offsets = transport(log), log.range()
    log.fill(1)
    log.roll()
    log.fill(9)
    assert read(planned, offsets) == numbered(0, 90)


# --- Damage ---


def test_a_broken_header_is_reported_with_partition_offset_file_and_position(log: LogFiles) -> None:
    path = log_file(log, 1)
    base_offset = log.log.segments[1].base_offset
    damage(path, 16, 0x7F)
    source = transport(log)
    with pytest.raises(CorruptData, match=rf"orders-0 at offset {base_offset}: magic 127 .*{path}@0"):
        read(source, log.range())


def test_rows_before_the_damage_come_first(log: LogFiles) -> None:
    segment = log.log.segments[1]
    second = list(segment_batches(log, 1))[1]
    damage(Path(segment.path(".log")), second + 16, 0x7F)
    got: list[tuple[int, bytes | None]] = []
    with pytest.raises(CorruptData) as caught:
        got.extend(rows(transport(log), log.range()))
    assert caught.value.offset == segment.base_offset + 3
    assert got == numbered(0, len(got))
    assert len(got) >= segment.base_offset


def segment_batches(files: LogFiles, index: int) -> list[int]:
    """Where the batches of a segment begin."""
    data, position, positions = log_file(files, index).read_bytes(), 0, []
    while position < len(data):
        positions.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return positions


def test_a_byte_that_was_changed_in_a_record_fails_its_checksum(log: LogFiles) -> None:
    damage(log_file(log, 1), 70, 0xFF)
    base_offset = log.log.segments[1].base_offset
    with pytest.raises(CorruptData, match=rf"at offset {base_offset}.*{log_file(log, 1).name}@"):
        read(transport(log), log.range())


def test_damage_outside_the_range_is_nobodys_business(log: LogFiles) -> None:
    damage(log_file(log, 2), 16, 0x7F)
    end = log.log.segments[2].base_offset
    assert read(transport(log), log.range(0, end)) == numbered(0, end)


def test_a_batch_whose_length_runs_out_of_the_segment_is_damage(log: LogFiles) -> None:
    last = segment_batches(log, 0)[-1]
    damage(log_file(log, 0), last + 9, 0x01)
    with pytest.raises(CorruptData, match="no whole batch"):
        read(transport(log), log.range())


def test_a_segment_with_the_offsets_of_another_is_damage(log: LogFiles) -> None:
    first, second = log_file(log, 0), log_file(log, 1)
    plan = log.plan()
    second.write_bytes(first.read_bytes())
    sizes = (plan.segments[0], attrs.evolve(plan.segments[1], size_bytes=first.stat().st_size), *plan.segments[2:])
    source = transport_module.FileTransport(attrs.evolve(plan, segments=sizes))
    with pytest.raises(CorruptData, match="the least possible"):
        read(source, log.range())


def damage(path: Path, position: int, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([value]))


def test_a_file_that_was_cut_is_data_loss_where_nobody_can_be_asked(log: LogFiles) -> None:
    planned = transport(log)
    os.truncate(log_file(log, 1), 100)
    with pytest.raises(DataLoss, match=r"has 100 bytes, not \d+: it was cut or compacted; its records cannot be found"):
        read(planned, log.range())


def test_a_file_that_is_cut_while_it_is_read_ends_in_an_error_and_not_in_a_signal(log: LogFiles) -> None:
    chunks = transport(log, read_bytes=200).chunks(log.range())
    next(chunks)
    os.truncate(log_file(log, 0), 0)
    with pytest.raises(DataLoss, match="it was cut while it was read"):
        list(chunks)


def test_a_batch_of_a_later_leader_epoch_was_written_in_anothers_place(log: LogFiles) -> None:
    planned, offsets = transport(log), log.range()
    truncate(log.log, 60, log.now_ms)
    log.log.assign_epoch(4, 60)
    while log.log.log_end_offset < 120:
        log.append(b"other", b"other", b"other", epoch=4)
    with pytest.raises((DataLoss, CorruptData)):
        read(planned, offsets)


def test_a_batch_of_a_later_leader_epoch_is_reported_as_such(log: LogFiles) -> None:
    plan = attrs.evolve(log.plan(), leader_epoch=2)
    with pytest.raises(DataLoss, match="a batch of leader epoch 3, later than 2: the log was cut before it"):
        read(transport_module.FileTransport(plan), log.range())
    unknown = attrs.evolve(plan, leader_epoch=-1)
    assert read(transport_module.FileTransport(unknown), log.range()) == numbered(0, 90)


# --- Where the files are ---


def test_a_path_takes_the_place_of_the_brokers_directory(log: LogFiles, tmp_path: Path) -> None:
    moved = tmp_path / "mounted"
    plan = attrs.evolve(log.plan(), log_directory="/not/here")
    os.makedirs(moved)
    os.rename(log.directory, moved / "orders-0")
    source = transport_module.FileTransport(plan, paths=("/neither/here", str(tmp_path), str(moved)))
    assert read(source, log.range()) == numbered(0, 90)


def test_a_directory_that_is_not_there_is_reported_with_the_option_that_names_it(log: LogFiles) -> None:
    plan = attrs.evolve(log.plan(), log_directory="/not/here")
    with pytest.raises(
        SourceUnavailable, match=r"orders-0: no directory /not/here of broker 1 where this task runs; option 'path'"
    ):
        read(transport_module.FileTransport(plan), log.range())
    with pytest.raises(
        SourceUnavailable, match="no directory /gone of broker 1 where this task runs; is option 'path'"
    ):
        read(transport_module.FileTransport(plan, paths=("/gone",)), log.range())


# --- Transactions ---


def test_records_of_aborted_transactions_are_left_out_in_every_cut(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=500)
    expected = []
    for number in range(12):
        files.append_transaction(7, b"7 in %d" % number)
        offset = files.append_transaction(8, b"8 in %d" % number)
        files.end_transaction(7, committed=False)
        files.end_transaction(8, committed=number % 2 == 0)
        if number % 2 == 0:
            expected.append((offset, b"8 in %d" % number))
    end = files.log.log_end_offset
    source = transport(files, read_bytes=130)
    assert read(source, files.range()) == expected
    for cut in range(1, end):
        parts = [files.range(0, cut), files.range(cut, end)]
        got = [row for part in parts for row in read(source, part)]
        assert got == expected
    assert len(read(source, files.range(), read_committed=False)) == 24


def test_an_aborted_transaction_is_reported_with_its_first_batch_and_not_before(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.fill(2)
    files.append_transaction(7, b"no")
    files.fill(2)
    files.end_transaction(7, committed=False)
    plan = files.plan()
    [aborted] = plan.aborted
    reported = [chunk.aborted for chunk in transport(files, read_bytes=100).chunks(files.range())]
    assert [each.first_offset for each in reported[2]] == [aborted.first_offset]
    assert sum(map(len, reported)) == 1


def test_a_transaction_of_which_nothing_is_left_is_not_reported(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.fill(5)
    [chunk] = transport(files).chunks(files.range())
    ahead = UpcomingAborts((AbortedRange(7, 2, 9), AbortedRange(8, 4, 99)))
    assert ahead.begun_in(chunk.table) == ()
    assert ahead.ahead == [AbortedRange(8, 4, 99)]


def test_the_partition_of_a_range_is_that_of_the_log(log: LogFiles) -> None:
    assert log.plan().partition == ORDERS
