"""Logs that change between planning and reading, and while they are read: the right rows, or an error, or a line in
the log where that is allowed; never other rows."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from tests.spark.log_files import COMPACTED, CountedManifests, LogFiles, numbered, read, rows, transport
from tests.storage.compaction_harness import Round
from tests.storage.followed_log import truncate
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.files import transport as transport_module
from trio_broker.spark.files.transport import MAX_PLANS


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """Offsets 0 to 90 in several segments, each record with its offset as its value."""
    files = LogFiles.create(tmp_path, segment_bytes=600, index_interval_bytes=150)
    files.fill(30)
    return files


@pytest.fixture
def compacted_log(tmp_path: Path) -> LogFiles:
    """Sixty records of ten keys, one to a batch, in many segments that compaction makes few of."""
    files = LogFiles.create(tmp_path, segment_bytes=400, cleanup_policy=COMPACTED)
    for index in range(60):
        files.append(b"%d" % index, key=b"k%d" % (index % 10))
    return files


LAST_OF_EACH_KEY = [(offset, b"%d" % offset) for offset in range(50, 60)]


# --- Retention ---


def test_segments_deleted_before_reading_are_data_loss(log: LogFiles) -> None:
    manifests = CountedManifests(log)
    source, offsets = transport(log, manifests=manifests), log.range()
    log.delete_before(log.log.segments[2].base_offset)
    start = log.log.log_start_offset
    with pytest.raises(DataLoss, match=f"orders-0 at offset 0: the log begins at offset {start} by now"):
        read(source, offsets)
    assert manifests.asked == 1


def test_segments_deleted_before_reading_are_left_out_where_that_is_allowed(
    log: LogFiles, caplog: pytest.LogCaptureFixture
) -> None:
    source, offsets = transport(log, manifests=CountedManifests(log), fail_on_data_loss=False), log.range()
    log.delete_before(log.log.segments[2].base_offset)
    assert read(source, offsets) == numbered(log.log.log_start_offset, 90)
    assert "data may be lost: orders-0 at offset 0" in caplog.text


def test_a_range_that_is_gone_as_a_whole_gives_nothing_where_that_is_allowed(log: LogFiles) -> None:
    source = transport(log, manifests=CountedManifests(log), fail_on_data_loss=False)
    offsets = log.range(0, log.log.segments[1].base_offset)
    log.delete_before(log.log.segments[2].base_offset)
    assert read(source, offsets) == []


def test_segments_that_are_not_of_the_range_may_go(log: LogFiles) -> None:
    start = log.log.segments[2].base_offset
    manifests = CountedManifests(log)
    source, offsets = transport(log, manifests=manifests), log.range(start)
    log.delete_before(start)
    assert read(source, offsets) == numbered(start, 90)
    assert manifests.asked == 0


def test_segments_deleted_while_they_are_read_are_read_to_their_end(log: LogFiles) -> None:
    manifests = CountedManifests(log)
    chunks = rows(transport(log, manifests=manifests, read_bytes=100), log.range())
    got = [next(chunks)]
    log.delete_before(log.log.log_end_offset)
    got += chunks
    assert got == numbered(0, 90)
    assert manifests.asked == 0


def test_segments_deleted_before_their_turn_to_be_opened_are_data_loss(
    log: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_module, "MAX_OPEN_SEGMENTS", 2)
    chunks = rows(transport(log, manifests=CountedManifests(log)), log.range())
    got = [next(chunks)]
    end = log.log.segments[2].base_offset
    log.delete_before(log.log.segments[3].base_offset)
    with pytest.raises(DataLoss, match=f"at offset {end}:"):
        got.extend(chunks)
    assert got == numbered(0, len(got))


def test_a_file_that_goes_while_its_neighbours_are_opened_is_planned_anew(
    log: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, offsets = transport(log, manifests=CountedManifests(log)), log.range()
    really_open = os.open
    moment = [lambda: log.delete_before(log.log.segments[1].base_offset)]

    def opening(path: object, *arguments: object, **named: object) -> int:
        if str(path).endswith(log.log.active_segment.file.path.name) and moment:
            moment.pop()()
        return really_open(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opening)
    with pytest.raises(DataLoss, match="by now"):
        read(source, offsets)


# --- Compaction ---


def test_compaction_before_reading_leaves_what_a_consumer_would_get_now(compacted_log: LogFiles) -> None:
    manifests = CountedManifests(compacted_log)
    source, offsets = transport(compacted_log, manifests=manifests), compacted_log.range()
    compacted_log.compact()
    assert read(source, offsets) == LAST_OF_EACH_KEY
    assert manifests.asked == 1


def test_compaction_while_reading_changes_nothing_of_what_is_open(compacted_log: LogFiles) -> None:
    manifests = CountedManifests(compacted_log)
    chunks = rows(transport(compacted_log, manifests=manifests, read_bytes=100), compacted_log.range())
    got = [next(chunks)]
    compacted_log.compact()
    compacted_log.log.remove_deleted_files(2**62)
    got += chunks
    assert got == [(offset, b"%d" % offset) for offset in range(60)]
    assert manifests.asked == 0


@pytest.mark.parametrize("taken", [1, 13, 30, 47])
def test_compaction_between_two_stretches_repeats_and_skips_nothing_that_is_kept(
    compacted_log: LogFiles, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(transport_module, "MAX_OPEN_SEGMENTS", 1)
    chunks = rows(transport(compacted_log, manifests=CountedManifests(compacted_log)), compacted_log.range())
    got = [next(chunks) for _ in range(taken)]
    compacted_log.compact()
    got += chunks
    assert [offset for offset, _ in got] == sorted({offset for offset, _ in got})
    assert set(got) >= set(LAST_OF_EACH_KEY)
    assert all(value == b"%d" % offset for offset, value in got)


@pytest.mark.parametrize("step", ["commit", "exchange", "sync of the old names", "settle", "sync of the new names"])
def test_every_step_of_a_swap_can_be_read(compacted_log: LogFiles, step: str) -> None:
    manifests = CountedManifests(compacted_log)
    source, offsets = transport(compacted_log, manifests=manifests), compacted_log.range()
    compacted_log.roll()
    steps = Round(compacted_log.log, compacted_log.now_ms).steps()
    for reached in steps:
        if reached == step:
            break
    got = read(source, offsets)
    assert set(got) >= set(LAST_OF_EACH_KEY)
    assert all(value == b"%d" % offset for offset, value in got)
    fresh = read(transport(compacted_log), offsets)
    assert fresh == got
    list(steps)
    assert read(transport(compacted_log), offsets) == LAST_OF_EACH_KEY


@pytest.mark.parametrize(("rewritten", "expected"), [(False, [(9, b"9")]), (True, [])])
def test_what_was_active_when_planned_and_compacted_since_gives_what_is_left(
    tmp_path: Path, rewritten: bool, expected: list[tuple[int, bytes]]
) -> None:
    files = LogFiles.create(tmp_path, cleanup_policy=COMPACTED)
    for index in range(10):
        files.append(b"%d" % index, key=b"k")
    manifests = CountedManifests(files)
    source, offsets = transport(files, manifests=manifests), files.range()
    for index in range(10):
        files.append(bytes(2000), key=b"other%d" % index)
    if rewritten:
        files.append(b"new", key=b"k")
    files.compact()
    assert read(source, offsets) == expected
    assert manifests.asked == 1


def test_a_marker_that_compaction_removed_is_not_waited_for(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=300, cleanup_policy=COMPACTED, delete_retention_ms=0)
    files.append_transaction(7, b"aborted", key=b"a")
    files.end_transaction(7, committed=False)
    files.append(b"x" * 200, key=b"b")
    files.append_transaction(7, b"committed", key=b"c")
    files.end_transaction(7, committed=True)
    source, offsets = transport(files, manifests=CountedManifests(files)), files.range()
    assert len(source.log.aborted) == 1
    for _ in range(3):
        files.compact()
        files.now_ms += 10
    assert not files.plan().aborted
    assert read(source, offsets)[-1] == (3, b"committed")
    # And where only the files are new, because nobody could be asked for what has changed with them.
    stale = transport_module.FileTransport(files.plan().between(0, offsets.end_offset))
    assert read(stale, offsets)[-1] == (3, b"committed")


def fixed_size_log(data_directory: Path) -> LogFiles:
    """A log whose records all have one size, compacted: a record that stays, and nine keys that are written again."""
    files = LogFiles.create(data_directory, cleanup_policy=COMPACTED)
    files.append(b"00", key=b"once")
    write_nine_keys(files)
    files.compact()
    return files


def write_nine_keys(files: LogFiles) -> None:
    for index in range(9):
        files.append(b"%02d" % files.log.log_end_offset, key=b"k%02d" % index)


@pytest.mark.parametrize("knows_inodes", [True, False], ids=["by inode", "by size, as with an older broker"])
def test_a_merged_file_of_the_very_size_that_was_planned_is_planned_anew(tmp_path: Path, knows_inodes: bool) -> None:
    files = fixed_size_log(tmp_path)
    manifests = CountedManifests(files, inode_of=lambda inode: inode if knows_inodes else None)
    planned = manifests.topic_manifest("orders").log(0)
    write_nine_keys(files)
    files.compact()
    merged = files.plan().segments[0]
    assert (merged.base_offset, merged.size_bytes) == (0, planned.segments[0].size_bytes)
    assert merged.next_offset > planned.segments[0].next_offset
    source = transport_module.FileTransport(planned.between(0, 10), manifests=manifests)
    assert read(source, files.range(0, 10)) == [(0, b"00")]
    assert manifests.asked == 2


def test_what_was_active_and_is_a_longer_file_by_now_is_planned_anew(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, cleanup_policy=COMPACTED)
    files.append(b"00", key=b"once")
    manifests = CountedManifests(files)
    source, offsets = transport(files, manifests=manifests), files.range()
    write_nine_keys(files)
    files.compact()
    assert read(source, offsets) == [(0, b"00")]
    assert manifests.asked == 1


def with_batches_of_the_one_before(log: LogFiles, content: bytearray) -> None:
    before = Path(log.log.segments[0].file.path).read_bytes()
    content[: len(before)] = before[: len(content)]


def with_batches_of_the_next_one(log: LogFiles, content: bytearray) -> None:
    content[7] += 80


def with_another_magic(log: LogFiles, content: bytearray) -> None:
    content[16] = 0x7F


def with_a_batch_that_is_too_long(log: LogFiles, content: bytearray) -> None:
    content[9] = 1


@pytest.mark.parametrize(
    "change",
    [with_batches_of_the_one_before, with_batches_of_the_next_one, with_another_magic, with_a_batch_that_is_too_long],
)
def test_batches_that_cannot_belong_to_a_segment_are_damage_once_the_broker_plans_the_same_file_again(
    log: LogFiles, change: Callable[[LogFiles, bytearray], None]
) -> None:
    path = Path(log.log.segments[1].file.path)
    right = path.read_bytes()
    content = bytearray(right)
    change(log, content)
    path.write_bytes(content)
    manifests = CountedManifests(log)
    source, offsets = transport(log, manifests=manifests), log.range()
    with pytest.raises(CorruptData, match=f"{path}@0"):
        read(source, offsets)
    assert manifests.asked == 1

    def another_file() -> None:
        path.with_suffix(".new").write_bytes(right)
        path.with_suffix(".new").rename(path)

    manifests.before = another_file
    assert read(source, offsets) == numbered(0, 90)
    assert manifests.asked == 2


def test_files_that_have_other_inodes_where_they_are_read_are_known_by_their_sizes(log: LogFiles) -> None:
    manifests = CountedManifests(log, inode_of=lambda inode: inode + 1)
    source = transport_module.FileTransport(manifests.topic_manifest("orders").log(0), manifests=manifests)
    log.append(b"later")
    assert read(source, log.range(0, 90)) == numbered(0, 90)
    assert manifests.asked == 2
    damaged = Path(log.log.segments[1].file.path)
    damaged.write_bytes(bytes(damaged.stat().st_size))
    with pytest.raises(CorruptData, match=f"{damaged}@0"):
        read(source, log.range(0, 90))


def test_a_later_leader_epoch_behind_the_range_takes_nothing_from_it(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.fill(2)
    plan, offsets = files.plan(), files.range()
    files.log.assign_epoch(4, files.log.log_end_offset)
    files.append(b"later", epoch=4)
    whole = attrs.evolve(plan.segments[0], size_bytes=files.log.size_bytes)
    source = transport_module.FileTransport(attrs.evolve(plan, segments=(whole,)))
    assert read(source, offsets) == numbered(0, 6)


# --- Cut, deleted, begun anew ---


def test_a_log_that_was_cut_below_the_range_is_data_loss(log: LogFiles) -> None:
    source, offsets = transport(log, manifests=CountedManifests(log)), log.range()
    truncate(log.log, 60, log.now_ms)
    with pytest.raises(DataLoss, match="the log ends at offset 60, before 90 that was its end: it was cut"):
        read(source, offsets)


def test_a_log_that_was_cut_is_read_to_its_end_where_that_is_allowed(log: LogFiles) -> None:
    source, offsets = transport(log, manifests=CountedManifests(log), fail_on_data_loss=False), log.range()
    truncate(log.log, 60, log.now_ms)
    assert read(source, offsets) == numbered(0, 60)


def test_what_was_written_since_a_log_was_cut_is_not_read_in_its_place(log: LogFiles) -> None:
    source = transport(log, manifests=CountedManifests(log), fail_on_data_loss=False)
    offsets = log.range()
    truncate(log.log, 60, log.now_ms)
    log.append(b"not safe yet")
    log.high_watermark = 60
    assert read(source, offsets) == numbered(0, 60)


def test_records_that_were_deleted_are_not_read_though_their_batch_is_there(log: LogFiles) -> None:
    offsets = log.range()
    log.log.advance_log_start(4)
    assert read(transport(log, fail_on_data_loss=False), offsets) == numbered(4, 90)
    with pytest.raises(DataLoss, match="begins at offset 4"):
        read(transport(log), offsets)


def test_a_topic_that_was_deleted_is_data_loss(log: LogFiles, caplog: pytest.LogCaptureFixture) -> None:
    manifests = CountedManifests(log)
    source, offsets = transport(log, manifests=manifests), log.range()
    manifests.files = None
    shutil.rmtree(log.directory)
    with pytest.raises(DataLoss, match="the topic was deleted"):
        read(source, offsets)
    lenient = transport_module.FileTransport(source.log, manifests=manifests, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        assert read(lenient, offsets) == []
    assert "the topic was deleted" in caplog.text


def test_a_topic_that_was_created_again_is_data_loss_even_if_its_files_look_alike(log: LogFiles) -> None:
    manifests = CountedManifests(log)
    source, offsets = transport(log, manifests=manifests), log.range()
    root = log.data_directory
    shutil.rmtree(log.directory)
    again = LogFiles.create(root, topic_id=bytes(range(1, 17)), segment_bytes=600, index_interval_bytes=150)
    again.fill(30)
    manifests.files = again
    with pytest.raises(DataLoss, match="deleted and created again"):
        read(source, offsets)


def test_files_that_are_never_as_the_broker_says_end_in_an_error_that_names_the_path(
    log: LogFiles, tmp_path: Path
) -> None:
    manifests = CountedManifests(log)
    other = tmp_path / "another broker's"
    (other / "orders-0").mkdir(parents=True)
    source = transport(log, manifests=manifests, paths=(str(other),))
    with pytest.raises(SourceUnavailable, match="is not there; is option 'path' the broker's data directory"):
        read(source, log.range())
    assert manifests.asked == MAX_PLANS - 1


def test_files_that_change_with_every_plan_are_read_in_the_end(log: LogFiles) -> None:
    names = [segment.file.path for segment in log.log.segments[:3]]
    hidden = [Path(name).rename(name.with_suffix(".hidden")) for name in names]

    def one_comes_back() -> None:
        if hidden:
            hidden.pop().rename(names[len(hidden)])

    manifests = CountedManifests(log, before=one_comes_back)
    assert read(transport(log, manifests=manifests), log.range()) == numbered(0, 90)
    assert manifests.asked == 3
