"""The simulated disk does what a real one does: the same operations give the same results and error numbers."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path, PurePath
from unittest import mock

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.property_examples import examples
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import Disk, File, FileRegion, LockHeld, OpenMode
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.simulated_disk import SimulatedDisk

NAMES = ("a", "b", "c")
PATHS = tuple(
    PurePath(*parts)
    for parts in (
        *((name,) for name in NAMES),
        *((above, name) for above in NAMES for name in NAMES),
        ("a", "b", "c"),
        ("a", "a", "a"),
        ("b", "a", "b"),
        ("n" * 256,),
        ("n" * 255,),
        ("a", "é" * 128),
    )
)

paths = st.sampled_from(PATHS)
sizes = st.integers(-1, 1300)


@attrs.frozen
class Outcome:
    """What an operation returned, or how it failed."""

    value: object = None
    error: type[OSError] | None = None
    number: int | None = None


def outcome(call: Callable[[], object]) -> Outcome:
    """Make one call."""
    try:
        return Outcome(call())
    except OSError as error:
        return Outcome(error=type(error), number=error.errno)


class Side:
    """One of the two disks with what is open on it."""

    def __init__(self, disk: Disk, root: PurePath) -> None:
        self.disk = disk
        self.root = root
        self.files: list[File] = []
        self.regions: list[FileRegion] = []

    def open(self, path: PurePath, mode: OpenMode) -> None:
        self.files.append(self.disk.open(self.root / path, mode))

    def tree(self, path: PurePath) -> dict[str, bytes | None]:
        """All names with the content of files, None for directories."""
        found: dict[str, bytes | None] = {}
        for entry in self.disk.list_directory(self.root / path):
            below = path / entry.name
            if entry.is_directory:
                found[str(below)] = None
                found.update(self.tree(below))
            else:
                found[str(below)] = self.disk.read_file(self.root / below)
        return found


class DisksAgree(RuleBasedStateMachine):
    """Random operations on both disks."""

    def __init__(self) -> None:
        super().__init__()
        # What a sync waits for cannot be compared, and takes the time of all the rest.
        self.patch = mock.patch.multiple(os, fsync=lambda number: None, fdatasync=lambda number: None)
        self.patch.start()
        self.folder = Path(tempfile.mkdtemp())
        simulated = SimulatedDisk(ManualClock())
        simulated.make_directory(PurePath("/data"))
        self.real = Side(RealDisk(), self.folder)
        self.simulated = Side(simulated, PurePath("/data"))

    def teardown(self) -> None:
        self.patch.stop()
        self.real.files.clear()
        self.real.regions.clear()
        shutil.rmtree(self.folder)

    def both(self, call: Callable[[Side], object]) -> Outcome:
        """Do the same on both sides."""
        real = outcome(lambda: call(self.real))
        simulated = outcome(lambda: call(self.simulated))
        assert simulated == real
        return real

    @rule(path=paths, mode=st.sampled_from(OpenMode))
    def open(self, path: PurePath, mode: OpenMode) -> None:
        if self.real.disk.is_directory(self.real.root / path):
            return  # a real disk opens directories to be read, which nobody may rely on
        self.both(lambda side: side.open(path, mode))

    @rule(choice=st.integers(0, 9), position=sizes, data=st.binary(max_size=1300))
    def write(self, choice: int, position: int, data: bytes) -> None:
        if self.real.files:
            self.both(lambda side: side.files[choice % len(side.files)].write(data, position))

    @rule(choice=st.integers(0, 9), position=sizes, size=st.integers(0, 1300))
    def read(self, choice: int, position: int, size: int) -> None:
        if self.real.files:
            self.both(lambda side: side.files[choice % len(side.files)].read(size, position))
            self.both(lambda side: side.files[choice % len(side.files)].size())

    @rule(choice=st.integers(0, 9), size=sizes)
    def truncate(self, choice: int, size: int) -> None:
        if self.real.files:
            self.both(lambda side: side.files[choice % len(side.files)].truncate(size))

    @rule(choice=st.integers(0, 9), size=sizes)
    def preallocate(self, choice: int, size: int) -> None:
        if self.real.files:
            self.both(lambda side: side.files[choice % len(side.files)].preallocate(size))

    @rule(choice=st.integers(0, 9))
    def sync(self, choice: int) -> None:
        if self.real.files:
            self.both(lambda side: side.files[choice % len(side.files)].sync())

    @rule(choice=st.integers(0, 9), position=st.integers(0, 1300), size=st.integers(0, 1300))
    def region(self, choice: int, position: int, size: int) -> None:
        if self.real.files:
            for side in (self.real, self.simulated):
                side.regions.append(side.files[choice % len(side.files)].region(position, size))

    @rule(choice=st.integers(0, 9), size=st.none() | st.integers(0, 1300))
    def read_region(self, choice: int, size: int | None) -> None:
        if self.real.regions:
            self.both(lambda side: side.regions[choice % len(side.regions)].read(size))
            self.both(lambda side: len(side.regions[choice % len(side.regions)]))

    @rule(old=paths, new=paths)
    def rename(self, old: PurePath, new: PurePath) -> None:
        self.both(lambda side: side.disk.rename(side.root / old, side.root / new))

    @rule(path=paths, missing_ok=st.booleans())
    def unlink(self, path: PurePath, missing_ok: bool) -> None:
        self.both(lambda side: side.disk.unlink(side.root / path, missing_ok=missing_ok))

    @rule(path=paths)
    def make_directory(self, path: PurePath) -> None:
        self.both(lambda side: side.disk.make_directory(side.root / path))

    @rule(path=paths)
    def remove_tree(self, path: PurePath) -> None:
        self.both(lambda side: side.disk.remove_tree(side.root / path))

    @rule(old=paths, new=paths)
    def copy(self, old: PurePath, new: PurePath) -> None:
        self.both(lambda side: side.disk.copy(side.root / old, side.root / new))

    @rule(path=paths, modified_ns=st.integers(0, 2**40).map(lambda ms: ms * 1_000_000))
    def set_modified(self, path: PurePath, modified_ns: int) -> None:
        if self.both(lambda side: side.disk.set_modified(side.root / path, modified_ns)).error is None:
            self.both(lambda side: side.disk.status(side.root / path).modified_ns)

    @rule(path=paths)
    def sync_directory(self, path: PurePath) -> None:
        self.both(lambda side: side.disk.sync_directory(side.root / path))

    @rule(path=paths)
    def look(self, path: PurePath) -> None:
        self.both(lambda side: side.disk.exists(side.root / path))
        self.both(lambda side: side.disk.read_file(side.root / path))
        self.both(lambda side: {(item.name, item.is_directory) for item in side.disk.list_directory(side.root / path)})
        if not self.both(lambda side: side.disk.is_directory(side.root / path)).value:
            self.both(lambda side: side.disk.status(side.root / path).size_bytes)

    @rule(path=paths)
    def lock(self, path: PurePath) -> None:
        def take(side: Side) -> None:
            side.disk.lock(side.root / path).release()

        self.both(take)

    @invariant()
    def trees_are_equal(self) -> None:
        assert self.simulated.tree(PurePath()) == self.real.tree(PurePath())


DisksAgreeTest = DisksAgree.TestCase
DisksAgreeTest.settings = examples(Fraction(1, 2))


@pytest.fixture(params=[RealDisk, lambda: SimulatedDisk(ManualClock())], ids=["real", "simulated"])
def disk(request, tmp_path) -> Disk:
    """Each of the two disks, where the folder of the test is there."""
    made: Disk = request.param()
    made.make_directory(tmp_path)
    return made


def test_a_second_lock_of_one_file_is_refused_until_the_first_is_released(disk, tmp_path):
    first = disk.lock(tmp_path / ".lock")
    with pytest.raises(LockHeld):
        disk.lock(tmp_path / ".lock")
    first.release()
    first.release()
    disk.lock(tmp_path / ".lock").release()


def test_a_lock_is_one_of_the_file_and_not_of_its_name(disk, tmp_path):
    first = disk.lock(tmp_path / ".lock")
    disk.rename(tmp_path / ".lock", tmp_path / "elsewhere")
    disk.lock(tmp_path / ".lock").release()
    with pytest.raises(LockHeld):
        disk.lock(tmp_path / "elsewhere")
    first.release()


def test_a_volume_has_a_size_and_some_of_it_is_usable(disk, tmp_path):
    space = disk.space(tmp_path)
    assert 0 < space.usable_bytes <= space.total_bytes
    with pytest.raises(FileNotFoundError):
        disk.space(tmp_path / "missing")


def test_a_file_that_is_opened_to_be_read_refuses_to_be_written(disk, tmp_path):
    disk.open(tmp_path / "log", OpenMode.CREATE)
    file = disk.open(tmp_path / "log", OpenMode.READ)
    with pytest.raises(OSError, match="descriptor") as raised:
        file.write(b"x", 0)
    assert raised.value.errno == errno.EBADF


@pytest.mark.parametrize("is_directory", [False, True], ids=["file", "directory"])
def test_what_is_renamed_stays_the_same_and_what_gets_its_name_is_another(disk, tmp_path, is_directory):
    def create(path: PurePath) -> None:
        if is_directory:
            disk.make_directory(path)
        else:
            disk.open(path, OpenMode.CREATE)

    create(tmp_path / "a")
    first = disk.identity(tmp_path / "a")
    opened = None if is_directory else disk.open(tmp_path / "a", OpenMode.READ)
    disk.rename(tmp_path / "a", tmp_path / "b")
    create(tmp_path / "a")
    assert disk.identity(tmp_path / "b") == first != disk.identity(tmp_path / "a")
    assert opened is None or opened.identity() == first
    with pytest.raises(FileNotFoundError):
        disk.identity(tmp_path / "c")
    with pytest.raises(FileNotFoundError if is_directory else NotADirectoryError):
        disk.identity(tmp_path / "a" / "below")
