"""Faults, listings, regions and traces of a simulated disk: each follows from its seed."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import PurePath

import pytest

from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import Disk, LockHeld, OpenMode, names_in, write_all, write_atomically
from trio_broker.runtime.disk_trace import DiskOperation, OperationKind
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_file import SEND_BYTES, SimulatedFile

DATA = PurePath("/data")
LOG = DATA / "log"


@pytest.fixture
def disk() -> SimulatedDisk:
    """A disk with a durable directory and a durable empty file."""
    disk = SimulatedDisk(ManualClock())
    disk.make_directory(DATA)
    disk.open(LOG, OpenMode.CREATE)
    disk.sync_directory(PurePath("/"))
    disk.sync_directory(DATA)
    return disk


@pytest.fixture
def file(disk: SimulatedDisk) -> SimulatedFile:
    return disk.open(LOG, OpenMode.UPDATE)


def refuses(number: int, call, *arguments) -> bool:
    """Whether the call fails with this error number."""
    with pytest.raises(OSError) as raised:  # noqa: PT011  the number says which
        call(*arguments)
    return raised.value.errno == number


def test_a_failed_sync_drops_what_was_to_be_written_and_the_next_one_succeeds(disk, file):
    """Linux marks the pages clean: a program that syncs again and goes on loses them ("fsyncgate")."""
    seen = set()
    for cut in range(200):
        file.truncate(0)
        file.sync()
        file.write(b"content", 0)
        disk.faults.failing_syncs = 1.0
        assert refuses(errno.EIO, file.sync)
        disk.faults.failing_syncs = 0.0
        assert file.read(7, 0) == b"content", "the page cache still has it"
        file.sync()
        disk = disk.power_cut(random.Random(cut))
        file = disk.open(LOG, OpenMode.UPDATE)
        seen.add(file.read(7, 0))
    assert seen == {b"", b"content"}


def test_writes_after_a_failed_sync_are_durable_behind_a_hole(disk, file):
    disk.faults.failing_syncs = 1.0
    file.write(b"1" * 512, 0)
    assert refuses(errno.EIO, file.sync)
    disk.faults.failing_syncs = 0.0
    file.write(b"2" * 512, 512)
    file.sync()
    content = disk.power_cut().read_file(LOG)
    assert content[512:] == b"2" * 512
    assert content[:512] in (b"1" * 512, bytes(512))


def test_a_failed_sync_of_a_directory_leaves_the_names_pending(disk):
    disk.open(DATA / "new", OpenMode.CREATE)
    disk.faults.failing_directory_syncs = 1.0
    assert refuses(errno.EIO, disk.sync_directory, DATA)
    disk.faults.failing_directory_syncs = 0.0
    disk.sync_directory(DATA)
    for cut in range(50):
        disk = disk.power_cut(random.Random(cut))
        assert disk.exists(DATA / "new")


def test_failing_reads_writes_and_names_change_nothing(disk, file):
    file.write(b"content", 0)
    disk.faults.failing_reads = disk.faults.failing_writes = disk.faults.failing_names = 1.0
    assert refuses(errno.EIO, file.read, 7, 0)
    assert refuses(errno.EIO, file.write, b"x", 0)
    assert refuses(errno.EIO, file.truncate, 0)
    assert refuses(errno.EIO, disk.read_file, LOG)
    assert refuses(errno.EIO, disk.open, DATA / "new", OpenMode.CREATE)
    assert refuses(errno.EIO, disk.rename, LOG, DATA / "new")
    assert refuses(errno.EIO, disk.unlink, LOG)
    assert refuses(errno.EIO, disk.make_directory, DATA / "new")
    disk.faults.failing_reads = disk.faults.failing_writes = disk.faults.failing_names = 0.0
    assert file.read(9, 0) == b"content"
    assert names_in(disk.list_directory(DATA)) == ["log"]


def test_faults_meet_only_the_paths_they_apply_to(disk, file):
    disk.faults.failing_writes = 1.0
    disk.faults.applies_to = lambda path: path.name == "other"
    assert file.write(b"content", 0) == 7
    assert refuses(errno.EIO, disk.open(DATA / "other", OpenMode.CREATE).write, b"x", 0)


def test_a_short_write_takes_at_least_a_byte(disk, file):
    disk.faults.short_writes = 1.0
    taken = {file.write(b"content", 0) for _ in range(100)}
    assert taken == set(range(1, 8))
    write_all(file, b"all the same", 0)
    assert file.read(100, 0) == b"all the same"


def test_a_full_disk_takes_what_fits_and_refuses_the_rest_until_something_is_freed(disk, file):
    disk.faults.total_bytes = 100
    assert file.write(bytes(70), 0) == 70
    other = disk.open(DATA / "other", OpenMode.CREATE)
    assert other.write(bytes(70), 0) == 30
    assert refuses(errno.ENOSPC, other.write, b"x", 30)
    assert other.write(b"y" * 30, 0) == 30, "writing over needs no room"
    assert disk.space(DATA).usable_bytes == 0
    assert refuses(errno.ENOSPC, file.preallocate, 71)
    file.truncate(60)
    assert disk.space(DATA).usable_bytes == 10
    disk.unlink(DATA / "other")
    assert disk.space(DATA).usable_bytes == 40
    assert file.write(bytes(50), 60) == 40


def test_a_hole_takes_no_room_and_a_reservation_does(disk, file):
    disk.faults.total_bytes = 100
    file.truncate(10**9)
    assert disk.space(DATA).usable_bytes == 100
    assert file.read(3, 10**9 - 2) == bytes(2)
    file.truncate(0)
    file.preallocate(90)
    assert disk.space(DATA).usable_bytes == 10
    assert file.write(bytes(100), 0) == 100
    file.truncate(20)
    assert disk.space(DATA).usable_bytes == 80


def test_the_room_is_measured_anew_after_a_power_cut(disk, file):
    disk.faults.total_bytes = 100
    file.write(bytes(70), 0)
    file.sync()
    disk.rename(LOG, DATA / "renamed")
    disk.open(DATA / "other", OpenMode.CREATE)
    disk.rename(DATA / "renamed", DATA / "other")
    assert disk.space(DATA).usable_bytes == 30
    assert disk.power_cut().space(DATA).usable_bytes == 30


def test_a_slow_sync_says_how_long_it_took(disk, file):
    disk.faults.slow_syncs = 1.0
    disk.faults.slow_sync_seconds = 2.5
    file.sync()
    disk.sync_directory(DATA)
    assert disk.seconds_taken() == 5.0
    assert disk.seconds_taken() == 0.0


def test_rot_changes_one_bit_also_of_what_is_read(disk, file):
    file.write(bytes(1000), 0)
    file.sync()
    disk.rot(LOG, 700)
    content = file.read(1000, 0)
    assert sum(byte.bit_count() for byte in content) == 1
    assert content[700]
    assert disk.power_cut().read_file(LOG) == content


def test_a_region_is_readable_after_its_name_is_gone(disk, file):
    file.write(b"0123456789", 0)
    region = file.region(2, 5)
    disk.unlink(LOG)
    assert (region.position, len(region)) == (2, 5)
    assert region.read() == region.read_cached() == b"23456"
    assert region.read(2) == b"23"
    file.truncate(4)
    assert region.read() == b"23"
    assert region.read_cached() is None


def test_bytes_may_seem_not_to_be_in_the_page_cache(disk, file):
    file.write(b"content", 0)
    region = file.region(0, 7)
    assert file.read_cached(100, 0) == b"content"
    assert region.is_cached(0, 7)
    disk.faults.cold_reads = 1.0
    with pytest.raises(BlockingIOError):
        file.read_cached(7, 0)
    assert region.read_cached() is None
    assert not region.is_cached(0, 7)
    assert region.read() == b"content"


@pytest.mark.parametrize("method", ["send", "send_cold"])
def test_a_region_sends_itself_until_the_socket_is_full(disk, file, method):
    content = random.Random(0).randbytes(3 * SEND_BYTES)
    file.write(content, 0)
    region = file.region(0, len(content))
    send = getattr(region, method)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        sender.setblocking(False)
        sent, is_full = 0, False
        while not is_full:
            try:
                sent += send(sender.fileno(), sent, len(content) - sent)
            except BlockingIOError:
                is_full = True
        assert sent < len(content)
        received = bytearray()
        while len(received) < sent:
            received += receiver.recv(1 << 20)
        assert received == content[:sent]
        assert send(sender.fileno(), len(content), 10) == 0, "nothing is left at the end of the file"


def test_another_process_sees_the_files_and_the_locks(disk):
    disk.lock(DATA / ".lock")
    other = disk.another_process()
    with pytest.raises(LockHeld) as raised:
        other.lock(DATA / ".lock")
    assert raised.value.holder == 1
    disk.crash()
    other.lock(DATA / ".lock")


def script(disk: Disk, chance: random.Random) -> None:
    """Random operations, whose errors are of no interest."""
    for _ in range(200):
        path = DATA / chance.choice("abcd")
        try:
            match chance.randrange(5):
                case 0:
                    write_atomically(disk, path, chance.randbytes(chance.randrange(2000)))
                case 1:
                    disk.rename(path, DATA / chance.choice("abcd"))
                case 2:
                    disk.copy(path, DATA / chance.choice("abcd"))
                case 3:
                    disk.unlink(path)
                case 4:
                    disk.list_directory(DATA)
        except OSError:
            continue


def run(seed: int) -> tuple[str, dict[str, bytes]]:
    """The digest of a run with faults and a power cut, and what it left."""
    disk = SimulatedDisk(ManualClock(), seed)
    disk.make_directory(DATA)
    disk.faults.short_writes = disk.faults.failing_writes = disk.faults.failing_syncs = 0.1
    script(disk, random.Random(seed))
    disk = disk.power_cut()
    script(disk, random.Random(seed + 1))
    disk = disk.power_cut()
    disk.faults.failing_reads = 0.0
    left = (
        {name: disk.read_file(DATA / name) for name in names_in(disk.list_directory(DATA))} if disk.exists(DATA) else {}
    )
    return disk.trace.digest(), left


def test_the_same_seed_gives_the_same_trace_and_the_same_survivors():
    outcomes = [run(seed) for seed in range(10)]
    assert [run(seed) for seed in range(10)] == outcomes
    assert len({digest for digest, _ in outcomes}) == 10


def test_names_are_listed_in_an_order_that_follows_from_the_seed():
    orders = set()
    for seed in range(20):
        for names in ("abcd", "dcba"):
            disk = SimulatedDisk(ManualClock(), seed)
            disk.make_directory(DATA)
            for name in names:
                disk.open(DATA / name, OpenMode.CREATE)
            orders.add((seed, *names_in(disk.list_directory(DATA))))
    assert len(orders) == 20, "the order of making them has no influence"
    assert len({order[1:] for order in orders}) > 1


def test_operations_are_observed_with_what_they_are_about_to_do(disk, file):
    seen: list[DiskOperation] = []
    disk.trace.before = seen.append
    file.write(b"content", 3)
    disk.rename(LOG, DATA / "new")
    write, rename = seen
    assert (write.kind, write.path, write.position, write.size) == (OperationKind.WRITE, LOG, 3, 7)
    assert rename.target == DATA / "new"
    assert rename.number == write.number + 1


def test_modification_times_are_those_of_the_clock():
    clock = ManualClock()
    disk = SimulatedDisk(clock)
    file = disk.open(PurePath("/log"), OpenMode.CREATE)
    clock.advance(5.0)
    file.write(b"content", 0)
    assert disk.status(PurePath("/log")).modified_ns == clock.time_ms * 1_000_000
