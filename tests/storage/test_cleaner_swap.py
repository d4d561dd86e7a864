"""Compacted segments take their places: whenever that is cut short, and whatever is read meanwhile."""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

import attrs
import pytest

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord
from tests.storage.committed_records import CommittedView, committed_view
from tests.storage.compaction_harness import Round, compact
from tests.storage.conftest import NOW_MS, TOPIC_ID
from tests.storage.log_content import fetched_data
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.recovery import open_log
from trio_broker.storage.segment import Segment
from trio_broker.storage.segment_swap import SegmentSwap

MakeLog = Callable[..., Any]
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=200,
    cleanup_policy=CleanupPolicy(delete=False, compact=True),
    delete_retention_ms=1000,
)
ROOMY = attrs.evolve(CONFIG, segment_bytes=2500)
"""So that about four segments become one."""


def fill(bench: Any, seed: int = 1, batches: int = 30) -> None:
    """Keys that come again, tombstones, and transactions that end either way."""
    chance = random.Random(seed)
    sequences = {7: 0, 8: 0}
    for index in range(batches):
        producer_id = chance.choice((-1, 7, 8))
        records = [
            NewRecord(
                NOW_MS + index, b"k%d" % chance.randrange(12), chance.choice((None, b"%d" % index, b"%d" % index))
            )
            for _ in range(chance.randrange(1, 4))
        ]
        known = producer_id >= 0
        options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0 if known else -1}
        sequence = sequences[producer_id] if known else -1
        bench.append_bytes(bytearray(build_batch(records, base_sequence=sequence, transactional=known, **options)))
        if known:
            sequences[producer_id] += len(records)
            bench.end_transaction(producer_id, committed=chance.random() < 0.5)
    bench.log.roll(NOW_MS)


@pytest.fixture
def bench(make_log: MakeLog) -> Any:
    made = make_log(**attrs.asdict(CONFIG, recurse=False))
    fill(made)
    made.log.config = ROOMY
    return made


@attrs.define
class Crashes:
    """Copies of a log's directory, as a crash at each moment would leave it."""

    directory: Path
    root: Path
    images: list[tuple[str, Path]] = attrs.field(factory=list)

    def take(self, moment: str) -> None:
        image = self.root / f"image-{len(self.images)}"
        shutil.copytree(self.directory, image)
        self.images.append((moment, image))


@pytest.fixture
def crashes(bench: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    """Whatever renames or removes a file in the log's directory leaves an image from then on."""
    taken = Crashes(bench.directory, tmp_path_factory.mktemp("crashes"))

    def watched(name: str) -> None:
        original = getattr(RealDisk, name)

        def operation(disk: RealDisk, path: PurePath, *args: Any, **kwargs: Any) -> Any:
            result = original(disk, path, *args, **kwargs)
            if path.parent == bench.directory:
                taken.take(f"{name} {path.name}")
            return result

        monkeypatch.setattr(RealDisk, name, operation)

    watched("rename")
    watched("unlink")
    return taken


def reopened(directory: Path, recovery_point: int) -> Log:
    opened = open_log(
        RealDisk(),
        directory,
        TopicPartition("orders", 0),
        TOPIC_ID,
        ROOMY,
        recovery_point=recovery_point,
        log_start_offset=0,
        clean=False,
        now_ms=NOW_MS,
    )
    assert (opened.report.problems, opened.report.cut_bytes) == ([], 0)
    return opened.log


def assert_nothing_lost(log: Log, before: CommittedView, end_offset: int) -> None:
    view = committed_view(log)
    assert view.values == before.values
    known = {record.offset: record for record in before.records}
    assert all(known[record.offset] == record for record in view.records)
    assert log.log_end_offset == end_offset
    interrupted_swaps = [
        path.name for path in Path(log.directory).iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")
    ]
    assert interrupted_swaps == []


@pytest.fixture
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of openings would sync thousands of files that no power cut threatens."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda descriptor: None)


@pytest.mark.usefixtures("_no_waiting_for_the_disk")
def test_a_crash_at_any_step_loses_nothing_and_the_next_round_completes_it(bench: Any, crashes: Crashes) -> None:
    before, end_offset, recovery_point = committed_view(bench.log), bench.log.log_end_offset, bench.log.sync()
    for step in Round(bench.log, NOW_MS).steps():
        crashes.take(step)
    crashes.take("the end")
    after = committed_view(bench.log)
    moments = {moment.split()[0] for moment, _ in crashes.images}
    assert moments >= {"commit", "replace_segments", "finish_rename", "checkpoint", "rename", "unlink"}
    assert len(crashes.images) > 60
    first_names = list(crashes.images[0][1].glob("*.log"))
    segments = set()
    for number, (moment, image) in enumerate(crashes.images):
        log = reopened(image, recovery_point if number % 3 else 0)
        assert_nothing_lost(log, before, end_offset)
        compact(log, NOW_MS)
        log.remove_deleted_files(NOW_MS + 10**9)
        assert_nothing_lost(log, before, end_offset)
        assert committed_view(log) == after, moment
        segments.add(len(log.segments))
        log.release()
    assert max(segments) < len(first_names)


@pytest.mark.usefixtures("_no_waiting_for_the_disk")
def test_a_power_cut_that_keeps_any_of_the_unsynced_names_loses_nothing(
    bench: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one segment's names; renames of different segments reach the disk in their order on any journal."""
    before, end_offset, recovery_point = committed_view(bench.log), bench.log.log_end_offset, bench.log.sync()
    root = tmp_path_factory.mktemp("cuts")
    cuts: list[tuple[Path, list[tuple[str, str]]]] = []
    renames: list[tuple[str, str]] = []
    bases = itertools.count()
    original_rename, original_sync = RealDisk.rename, RealDisk.sync_directory
    base = root / "none"

    def rename(disk: RealDisk, path: PurePath, target: PurePath) -> None:
        nonlocal base
        if path.parent == bench.directory:
            if not renames:
                base = Path(shutil.copytree(bench.directory, root / f"base-{next(bases)}"))
            renames.append((path.name, target.name))
        original_rename(disk, path, target)

    def sync_directory(disk: RealDisk, directory: PurePath) -> None:
        if directory == bench.directory and renames:
            if len({name.split(".")[0] for name, _ in renames}) == 1:
                cuts.append((base, list(renames)))
            renames.clear()
        original_sync(disk, directory)

    monkeypatch.setattr(RealDisk, "rename", rename)
    monkeypatch.setattr(RealDisk, "sync_directory", sync_directory)
    compact(bench.log, NOW_MS)
    monkeypatch.undo()
    assert len(cuts) >= 4
    for base, done in cuts:
        for kept in itertools.product((False, True), repeat=len(done)):
            directory = Path(shutil.copytree(base, root / "cut"))
            for (source, target), keep in zip(done, kept, strict=True):
                if keep:
                    (directory / source).rename(directory / target)
            assert_nothing_lost(reopened(directory, recovery_point), before, end_offset)
            shutil.rmtree(directory)


@pytest.mark.usefixtures("_no_waiting_for_the_disk")
def test_a_start_that_is_cut_short_itself_is_completed_by_the_next(
    bench: Any, crashes: Crashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, end_offset = committed_view(bench.log), bench.log.log_end_offset
    for step in Round(bench.log, NOW_MS).steps():
        if step in ("replace_segments", "finish_rename"):
            crashes.take(step)
    first = [image for moment, image in crashes.images if moment in ("replace_segments", "finish_rename")]
    monkeypatch.undo()
    most = 0
    # Every third: what a start has to do behind them differs by the segments that are done.
    for image in first[::3]:
        for operations in itertools.count():
            directory = Path(shutil.copytree(image, image.with_name("again")))
            is_stopped = stop_after(operations, directory, monkeypatch)
            assert_nothing_lost(reopened(directory, 0), before, end_offset)
            shutil.rmtree(directory)
            if not is_stopped:
                break
            most = max(most, operations)
    assert most > 3


def stop_after(operations: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Open the log, and let that end after so many renames and removals; return whether there were more."""
    left = itertools.count(operations, -1)

    class PowerCutError(Exception):
        pass

    def limited(original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **kwargs: Any) -> Any:
            if next(left) <= 0:
                raise PowerCutError
            return original(*args, **kwargs)

        return operation

    with monkeypatch.context() as patched:
        for name in ("rename", "unlink"):
            patched.setattr(RealDisk, name, limited(getattr(RealDisk, name)))
        try:
            reopened(directory, 0).release()
        except PowerCutError:
            return True
    return False


# --- Readers


def test_bytes_on_their_way_to_a_consumer_stay_what_they_were(bench: Any) -> None:
    fetched = [bench.log.read(segment.base_offset, 10_000, end_offset=10_000) for segment in bench.log.segments[:-1]]
    before = [each.records.read() for each in fetched]
    compact(bench.log, NOW_MS)
    bench.log.remove_deleted_files(NOW_MS + 10**9)
    assert [each.records.read() for each in fetched] == before


def test_a_consumer_that_reads_on_across_a_swap_misses_nothing(bench: Any) -> None:
    """At every step it reads a little more; what it has seen in the end has every newest value in it."""
    before = committed_view(bench.log)
    seen: dict[bytes | None, tuple[int, bytes | None]] = {}
    position = 0
    for _ in Round(bench.log, NOW_MS).steps():
        fetched = bench.log.read(position, 300, end_offset=bench.log.log_end_offset)
        aborted = bench.log.aborted_transactions(position, fetched.next_offset, fetched.row)
        ranges = [(each.producer_id, each.first_offset, each.last_offset) for each in aborted]
        if not fetched.size:
            continue
        for batch in read_batches(fetched_data(fetched)):
            header = batch.header
            dropped = header.is_transactional and any(
                producer_id == header.producer_id and first <= header.base_offset < last
                for producer_id, first, last in ranges
            )
            if not header.is_control and not dropped:
                seen |= {record.key: (record.offset, record.value) for record in batch.records()}
            position = header.next_offset
    for record in committed_view(bench.log).records:
        if record.offset >= position:
            seen[record.key] = (record.offset, record.value)
    assert {key: value for key, value in seen.items() if value[1] is not None} == before.values


def test_readers_in_threads_never_see_half_a_swap(bench: Any) -> None:
    before = committed_view(bench.log)
    stop, failures = threading.Event(), []

    def read_all() -> None:
        while not stop.is_set():
            try:
                look = bench.log.read_with(lambda reader: committed_view(reader, max_bytes=10_000))
                assert look.result.values == before.values
            except BaseException as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read_all) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(8):
        for segment in bench.log.segments[:-1]:
            segment.evict()
        bench.log.first_dirty_offset = 0
        compact(bench.log, NOW_MS + number * 2000)
    stop.set()
    for reader in readers:
        reader.join()
    assert failures == []


@pytest.mark.parametrize("offset", range(0, 60, 7))
def test_reading_in_a_gap_left_by_compaction_goes_on_with_the_next_batch(bench: Any, offset: int) -> None:
    compact(bench.log, NOW_MS)
    fetched = bench.log.read(offset, 10_000, end_offset=bench.log.log_end_offset)
    [first, *_] = read_batches(fetched_data(fetched))
    expected = next(batch.header for batch in bench.batches() if batch.header.last_offset >= offset)
    assert first.header == expected


def test_a_replaced_segment_answers_from_its_own_files_however_cold_it_was(bench: Any) -> None:
    old = bench.log.segments[:-1]
    before = [read_segment(segment) for segment in old]
    for segment in old:
        segment.evict()
    compact(bench.log, NOW_MS)
    assert [read_segment(segment) for segment in old] == before


def read_segment(segment: Segment) -> tuple[Any, ...]:
    fetched = segment.read(segment.base_offset, 1 << 20, segment.next_offset, minimum_one=True, nowait=False)
    assert fetched is not None
    return (
        bytes(fetched.records.read()),  # type: ignore[union-attr]
        segment.offset_index.entries,
        segment.time_index.entries,
        tuple(segment.transaction_index.transactions),
    )


def test_a_kept_file_is_found_when_its_name_is_anothers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    kept = LogFile(RealDisk(), path)
    kept.keep()
    kept.release()
    path.rename(tmp_path / "elsewhere")
    path.write_bytes(b"new")
    assert kept.read(3, 0) == b"old"
    kept.let_go()
    kept.release()
    assert kept.read(3, 0) == b"new"


def test_a_file_that_is_opened_while_it_is_being_kept_is_the_kept_one(tmp_path: Path) -> None:
    """A reader looked for the descriptor before, and opens the name after it became another's, or nobody's."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    kept = LogFile(RealDisk(), path)
    kept.keep()
    for _ in range(2):
        kept._file = None
        path.unlink(missing_ok=True)
        assert kept.read(3, 0) == b"old"
        kept._file = None
        path.write_bytes(b"new")
        assert kept.read(3, 0) == b"old"


def test_pinned_indexes_are_not_written_under_a_name_that_may_be_anothers(bench: Any) -> None:
    segment = bench.log.segments[0]
    segment.hold_open()
    segment.path(".index").write_bytes(b"another's")
    segment.rebuild_indexes("a test")
    assert segment.path(".index").read_bytes() == b"another's"


# --- Disks that refuse


@pytest.mark.parametrize("step", ["commit", "replace_segments", "finish_rename"])
def test_a_name_that_cannot_be_changed_takes_the_log_offline_and_the_next_start_goes_on(
    bench: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, end_offset, recovery_point = committed_view(bench.log), bench.log.log_end_offset, bench.log.sync()

    def refuse(disk: RealDisk, path: PurePath, target: PurePath) -> None:
        raise OSError(errno.EIO, "broken")

    steps = Round(bench.log, NOW_MS).steps()
    for reached in steps:
        if reached == step:
            monkeypatch.setattr(RealDisk, "rename", refuse)
            break
    with pytest.raises(StorageFailed):
        list(steps)
    monkeypatch.undo()
    assert bench.log.failure is not None
    bench.log.release()
    assert_nothing_lost(reopened(bench.directory, recovery_point), before, end_offset)


def test_a_full_disk_leaves_the_log_as_it_was(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before, row = committed_view(bench.log), bench.log.segments
    original = LogFile.append

    def refuse(file: LogFile, data: bytes, position: int) -> None:
        if file.path.suffix == ".cleaned":
            raise OSError(errno.ENOSPC, "full")
        original(file, data, position)

    monkeypatch.setattr(LogFile, "append", refuse)
    this_round = Round(bench.log, NOW_MS)
    with pytest.raises(OSError, match="full"):
        list(this_round.steps())
    this_round.cleaning.discard()
    assert bench.log.segments == row
    assert bench.log.failure is None
    assert committed_view(bench.log) == before
    assert not list(bench.directory.glob("*.cleaned"))


def test_a_swap_is_impossible_once_retention_took_a_segment(bench: Any) -> None:
    old = bench.log.segments[:2]
    swap = SegmentSwap(bench.log, old, old[0])
    assert swap.is_possible
    bench.log.advance_log_start(old[1].base_offset)
    bench.log.delete_expired_segments(NOW_MS, bench.log.log_end_offset)
    assert not swap.is_possible
