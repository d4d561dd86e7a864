"""What a power cut leaves of a simulated disk: all that was synced, and nothing that was never written."""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import SECTOR_BYTES, Disk, OpenMode, names_in, write_all, write_atomically
from trio_broker.runtime.disk_trace import DiskOperation, OperationKind
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded

DATA = PurePath("/data")
ROOT = PurePath("/")
LOG = DATA / "log"
CUTS = range(300)
"""Seeds of power cuts: enough that each kind of loss is among them many times."""


@pytest.fixture
def disk() -> SimulatedDisk:
    return new_disk()


def new_disk() -> SimulatedDisk:
    """A disk with a durable directory."""
    disk = SimulatedDisk(ManualClock())
    disk.make_directory(DATA)
    disk.sync_directory(ROOT)
    return disk


def write_durably(disk: Disk, path: PurePath, content: bytes) -> None:
    """Make a file whose content and name are on the disk."""
    file = disk.open(path, OpenMode.REPLACE)
    write_all(file, content, 0)
    file.sync()
    disk.sync_directory(path.parent)


def sectors(content: bytes) -> list[bytes]:
    """Split ``content`` at the borders of sectors."""
    return [content[start : start + SECTOR_BYTES] for start in range(0, len(content), SECTOR_BYTES)]


@given(st.data())
def test_what_was_synced_is_there_after_any_power_cut(data):
    """A model of two dicts: the bytes and names at the last sync, against any mixture of later operations."""
    disk = new_disk()
    names = ["a", "b", "c"]
    synced: dict[str, bytes] = {}
    for _ in range(data.draw(st.integers(1, 5), "durable steps")):
        name = data.draw(st.sampled_from(names))
        content = data.draw(st.binary(max_size=1500))
        write_durably(disk, DATA / name, content)
        synced[name] = content
    touched: set[str] = set()
    for _ in range(data.draw(st.integers(0, 10), "pending steps")):
        name = data.draw(st.sampled_from(names))
        touched.add(name)
        file = disk.open(DATA / name, OpenMode.CREATE)
        file.write(data.draw(st.binary(min_size=1, max_size=1500)), data.draw(st.integers(0, 1500)))
        if data.draw(st.booleans()):
            other = data.draw(st.sampled_from(names))
            touched.add(other)
            disk.rename(DATA / name, DATA / other)
    disk = disk.power_cut(random.Random(data.draw(st.integers(0, 2**32))))
    for name, content in synced.items():
        if name not in touched:
            assert disk.read_file(DATA / name) == content


@pytest.mark.parametrize("seed", range(0, 3000, 100))
def test_bytes_behind_a_sync_are_old_or_new_or_zero_and_never_anything_else(seed):
    for cut in range(seed, seed + 100):
        disk = new_disk()
        write_durably(disk, LOG, b"o" * 2000)
        file = disk.open(LOG, OpenMode.UPDATE)
        file.write(b"n" * 3000, 1000)
        file.write(b"m" * 700, 1500)
        after = disk.power_cut(random.Random(cut)).read_file(LOG)
        assert after[:1000] == b"o" * 1000
        assert 2000 <= len(after) <= 4000
        assert set(after[1000:1500]) <= set(b"on")
        assert set(after[1500:2000]) <= set(b"onm")
        assert set(after[2000:2200]) <= set(b"nm\0")
        assert set(after[2200:]) <= set(b"n\0")


def test_an_unsynced_append_may_be_lost_kept_cut_torn_or_zero(disk):
    content = bytes(range(1, 256)) * 20
    seen: set[str] = set()
    for cut in CUTS:
        disk = new_disk()
        write_durably(disk, LOG, b"")
        write_all(disk.open(LOG, OpenMode.UPDATE), content, 0)
        after = disk.power_cut(random.Random(cut)).read_file(LOG)
        for new, old in zip(sectors(after), sectors(content), strict=False):
            assert new in (old[: len(new)], bytes(len(new))), "a sector is written whole or not at all"
        if not after:
            seen.add("lost")
        elif after == content:
            seen.add("kept")
        elif content.startswith(after):
            seen.add("cut")
        elif not any(after):
            seen.add("zero")
        else:
            seen.add("torn")
    assert seen == {"lost", "kept", "cut", "zero", "torn"}


def test_writes_may_reach_the_disk_in_another_order(disk):
    reordered = 0
    for cut in CUTS:
        disk = new_disk()
        write_durably(disk, LOG, bytes(2 * SECTOR_BYTES))
        file = disk.open(LOG, OpenMode.UPDATE)
        file.write(b"1" * SECTOR_BYTES, 0)
        file.write(b"2" * SECTOR_BYTES, SECTOR_BYTES)
        after = disk.power_cut(random.Random(cut)).read_file(LOG)
        reordered += not after[0] and after[-1:] == b"2"
    assert reordered


def test_a_truncation_survives_or_not_and_writes_after_a_lost_one_are_lost(disk):
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        write_durably(disk, LOG, b"o" * 100)
        file = disk.open(LOG, OpenMode.UPDATE)
        file.truncate(10)
        file.write(b"n" * 5, 10)
        seen.add(disk.power_cut(random.Random(cut)).read_file(LOG))
    assert seen == {b"o" * 100, b"o" * 10, b"o" * 10 + b"n" * 5, b"o" * 10 + bytes(5)}


def test_a_synced_file_whose_name_was_not_synced_may_be_gone(disk):
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        file = disk.open(LOG, OpenMode.CREATE)
        file.write(b"content", 0)
        file.sync()
        disk = disk.power_cut(random.Random(cut))
        seen.add(disk.read_file(LOG) if disk.exists(LOG) else None)
    assert seen == {None, b"content"}, "where the name is there, the synced content is"


def test_names_below_a_directory_whose_own_name_was_not_synced_may_be_gone():
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        disk.make_directory(DATA / "orders-0")
        write_durably(disk, DATA / "orders-0" / "log", b"content")
        disk = disk.power_cut(random.Random(cut))
        seen.add(disk.exists(DATA / "orders-0"))
        assert not disk.exists(DATA / "orders-0") or disk.read_file(DATA / "orders-0" / "log") == b"content"
    assert seen == {False, True}


@pytest.mark.parametrize("names", [("old", "new"), ("old", "taken")])
def test_a_rename_is_atomic(names):
    """The file has one of the two names, and a name that was taken leads to one of the two files."""
    old, new = names
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        write_durably(disk, DATA / "old", b"moved")
        write_durably(disk, DATA / "taken", b"replaced")
        disk.rename(DATA / old, DATA / new)
        disk = disk.power_cut(random.Random(cut))
        found = {name: disk.read_file(DATA / name) for name in ("old", "new", "taken") if disk.exists(DATA / name)}
        assert list(found.values()).count(b"moved") == 1
        assert new != "taken" or "taken" in found
        seen.add(disk.exists(DATA / old))
    assert seen == {True, False}


def test_replacing_a_file_atomically_leaves_the_old_or_the_new_one_at_each_operation():
    for stop in range(10):
        for cut in range(30):
            disk = new_disk()
            write_durably(disk, LOG, b"old" * 500)
            survivor = cut_power_before(disk, disk.trace.count + stop, cut)
            try:
                write_atomically(disk, LOG, b"new" * 700)
            except ProcessEnded:
                after = survivor[0].read_file(LOG)
            else:
                disk.trace.before = None
                after = disk.power_cut(random.Random(cut)).read_file(LOG)
                assert after == b"new" * 700
            assert after in (b"old" * 500, b"new" * 700)


def cut_power_before(disk: SimulatedDisk, number: int, seed: int) -> list[SimulatedDisk]:
    """Cut the power before the operation of that number; return the disk after it, once it happened."""
    survivor: list[SimulatedDisk] = []

    def before(operation: DiskOperation) -> None:
        if operation.number == number:
            survivor.append(disk.power_cut(random.Random(seed)))

    disk.trace.before = before
    return survivor


def test_an_unlinked_file_may_come_back_as_it_was_synced():
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        write_durably(disk, LOG, b"content")
        disk.unlink(LOG)
        disk = disk.power_cut(random.Random(cut))
        seen.add(disk.read_file(LOG) if disk.exists(LOG) else None)
    assert seen == {None, b"content"}


def test_a_synced_unlink_is_final(disk):
    write_durably(disk, LOG, b"content")
    disk.unlink(LOG)
    disk.sync_directory(DATA)
    for cut in CUTS:
        disk = disk.power_cut(random.Random(cut))
        assert not disk.exists(LOG)


def test_a_later_name_may_survive_an_earlier_one():
    seen = set()
    for cut in CUTS:
        disk = new_disk()
        disk.open(DATA / "first", OpenMode.CREATE)
        disk.open(DATA / "second", OpenMode.CREATE)
        disk = disk.power_cut(random.Random(cut))
        seen.add(frozenset(names_in(disk.list_directory(DATA))))
    assert seen == {frozenset(), frozenset({"first"}), frozenset({"second"}), frozenset({"first", "second"})}


def test_a_file_never_has_two_names_after_a_power_cut():
    for cut in CUTS:
        disk = new_disk()
        disk.open(DATA / "a", OpenMode.CREATE).sync()
        disk.rename(DATA / "a", DATA / "b")
        disk.rename(DATA / "b", DATA / "c")
        disk = disk.power_cut(random.Random(cut))
        assert len(disk.list_directory(DATA)) <= 1


def test_syncing_one_directory_of_a_rename_makes_the_whole_rename_durable(disk):
    write_durably(disk, DATA / "a", b"content")
    disk.make_directory(DATA / "below")
    disk.rename(DATA / "a", DATA / "below" / "a")
    disk.sync_directory(DATA)
    for cut in CUTS:
        disk = disk.power_cut(random.Random(cut))
        assert names_in(disk.list_directory(DATA)) == ["below"]
        assert disk.read_file(DATA / "below" / "a") == b"content"


def test_a_kill_loses_nothing_that_was_written(disk):
    file = disk.open(LOG, OpenMode.CREATE)
    file.write(b"content", 0)
    assert disk.crash().read_file(LOG) == b"content"


def test_what_survived_one_power_cut_survives_the_next(disk):
    for cut in CUTS:
        file = disk.open(LOG, OpenMode.CREATE)
        file.write(bytes([cut % 256]) * 700, cut)
        disk = disk.power_cut(random.Random(cut))
        content = disk.read_file(LOG) if disk.exists(LOG) else None
        disk = disk.power_cut(random.Random(-cut))
        assert content == (disk.read_file(LOG) if disk.exists(LOG) else None)


@pytest.mark.parametrize("end", [SimulatedDisk.crash, SimulatedDisk.power_cut])
def test_the_files_of_an_ended_process_and_its_disk_do_nothing_any_more(disk, end):
    file = disk.open(LOG, OpenMode.CREATE)
    file.write(b"content", 0)
    region = file.region(0, 7)
    file.sync()
    disk.sync_directory(DATA)
    lock = disk.lock(DATA / ".lock")
    after = end(disk)
    for call in (
        lambda: file.write(b"late", 0),
        lambda: file.read(1, 0),
        lambda: file.truncate(0),
        file.sync,
        file.size,
        region.read,
        lambda: disk.unlink(LOG),
        lambda: disk.remove_tree(DATA),
        lambda: disk.make_directory(DATA),
        lambda: disk.read_file(LOG),
        lambda: disk.exists(LOG),
    ):
        with pytest.raises(ProcessEnded):
            call()
    after.lock(DATA / ".lock")
    lock.release()
    assert after.read_file(LOG) == b"content"


def test_the_power_is_cut_at_exactly_the_operation_that_the_observer_names():
    disk = new_disk()
    kinds: list[OperationKind] = []
    number = disk.trace.count + 2

    def before(operation: DiskOperation) -> None:
        kinds.append(operation.kind)
        if operation.number == number:
            disk.power_cut(random.Random(0))

    disk.trace.before = before
    file = disk.open(LOG, OpenMode.CREATE)
    file.write(b"content", 0)
    with pytest.raises(ProcessEnded):
        file.sync()
    assert kinds == [OperationKind.CREATE, OperationKind.WRITE, OperationKind.SYNC]
    assert [kind.changes for kind in (*kinds, OperationKind.READ)] == [True, True, True, False]
