"""How many files stay open, and what happens where the process may open no more."""

from __future__ import annotations

import errno
import gc
from pathlib import PurePath

import pytest

from trio_broker.runtime import descriptors
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.descriptors import OpenFiles
from trio_broker.runtime.disk import OpenMode
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage.log_file import LogFile

ROOT = PurePath("/")


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(ManualClock())


def log_files(disk: SimulatedDisk, count: int, first: int = 0) -> list[LogFile]:
    """Files that were made and are open, as far as the disk lets them be."""
    files = [LogFile(disk, ROOT / f"{first + number}.log") for number in range(count)]
    for file in files:
        file.create()
    return files


def opened(files: list[LogFile]) -> list[int]:
    return [number for number, file in enumerate(files) if file.is_open]


def test_files_beyond_the_limit_are_closed_and_open_again_by_themselves(disk: SimulatedDisk):
    disk.open_files.limit = 4
    files = log_files(disk, 20)
    assert len(opened(files)) <= 5
    for number, file in enumerate(files):
        file.append(b"%d" % number, 0)
        file.note_synced()
    assert len(opened(files)) <= 5
    assert [file.read(10, 0) for file in files] == [b"%d" % number for number in range(20)]


def test_a_file_that_is_used_again_and_again_stays_open(disk: SimulatedDisk):
    disk.open_files.limit = 4
    favourite = log_files(disk, 1)[0]
    for number in range(1, 30):
        favourite.read(1, 0)
        LogFile(disk, ROOT / f"{number}.log").create()
        assert favourite.is_open


def test_files_with_unsynced_writes_are_closed_last(disk: SimulatedDisk):
    """A write that fails after its descriptor was closed may never be reported."""
    disk.open_files.limit = 4
    files = log_files(disk, 4)
    for file in files[:2]:
        file.append(b"unsynced", 0)
    readers = log_files(disk, 36, first=4)
    assert opened(files[:2]) == [0, 1]
    for file in readers:
        file.read(1, 0)
    assert opened(files[:2]) == [0, 1]
    files[0].note_synced()
    for file in readers:
        file.read(1, 0)
    assert opened(files[:2]) == [1]


def test_so_many_unsynced_files_that_there_would_be_too_many_are_closed_as_well(disk: SimulatedDisk):
    disk.open_files.limit = 4
    files = []
    for number in range(30):
        files.append(LogFile(disk, ROOT / f"{number}.log"))
        files[-1].create()
        files[-1].append(b"unsynced", 0)
    assert len(opened(files)) <= 7


def test_a_region_outlives_the_closing_of_its_file(disk: SimulatedDisk):
    disk.open_files.limit = 1
    first = log_files(disk, 1)[0]
    first.append(b"held", 0)
    region = first.region(0, 4)
    first.note_synced()
    others = log_files(disk, 4, first=1)
    assert not first.is_open
    assert region.read() == b"held"
    assert len(opened(others)) <= 2


def test_a_kept_file_is_never_closed(disk: SimulatedDisk):
    disk.open_files.limit = 1
    first = log_files(disk, 1)[0]
    first.keep()
    log_files(disk, 10)
    assert first.is_open
    first.let_go()
    log_files(disk, 10)
    assert not first.is_open


def test_files_that_are_gone_are_not_counted(disk: SimulatedDisk):
    disk.open_files.limit = 4
    log_files(disk, 4)
    gc.collect()
    last = log_files(disk, 4)
    assert opened(last) == [0, 1, 2, 3]


@pytest.mark.parametrize("operation", ["open", "list", "sync"])
def test_a_process_without_descriptors_closes_idle_files_for_what_it_needs(disk: SimulatedDisk, operation: str):
    files = log_files(disk, 8)
    disk.faults.max_descriptors = 8
    if operation == "open":
        disk.open(ROOT / "another", OpenMode.CREATE)
    elif operation == "list":
        assert len(disk.list_directory(ROOT)) == 8
    else:
        disk.sync_directory(ROOT)
    assert len(opened(files)) < 8


def test_without_any_idle_file_the_error_is_the_systems(disk: SimulatedDisk):
    held = [disk.open(ROOT / str(number), OpenMode.CREATE) for number in range(3)]
    disk.faults.max_descriptors = 3
    with pytest.raises(OSError, match="Too many open files") as caught:
        disk.open(ROOT / "another", OpenMode.CREATE)
    assert caught.value.errno == errno.EMFILE
    del held
    disk.open(ROOT / "another", OpenMode.CREATE)


def test_a_spare_descriptor_is_given_up_before_a_file_in_use_is_closed(disk: SimulatedDisk):
    """Otherwise the next append might find no descriptor to open it again."""
    spare = PurePath("/spare")
    disk.open(spare, OpenMode.CREATE)
    disk.open_files = OpenFiles(open_spare=lambda: disk._open(spare, OpenMode.READ))
    [file] = log_files(disk, 1)
    disk.faults.max_descriptors = 1 + descriptors.SPARE_DESCRIPTORS
    disk.open_files.hold_spares()
    checkpoint = disk.open(ROOT / "checkpoint", OpenMode.CREATE)
    assert file.is_open
    with pytest.raises(OSError, match="Too many open files"):
        disk.open_files.hold_spares()
    del checkpoint
    disk.open_files.hold_spares()
    assert file.is_open


@pytest.mark.parametrize(
    ("limit", "kept", "connections"),
    [(1 << 20, 600, (1 << 20) - 900 - 64), (1024, 256, 1024 - 384 - 64), (256, 64, 96), (100, 25, 1)],
)
def test_the_limits_follow_from_the_process(monkeypatch, limit: int, kept: int, connections: int):
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: limit)
    assert descriptors.max_kept_files() == kept
    assert descriptors.max_connections() == connections
