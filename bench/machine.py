"""What the machine says of itself and of a process: CPU time, memory, limits, what it is. Linux only.

CPU time comes from the process's own clock, to the nanosecond, and counts all its threads, user and kernel: the
broker's system calls are its cost too. Work that the kernel does elsewhere (writing back dirty pages, disk interrupts)
is nobody's in these numbers, for the floors as for the broker.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

LIBC = ctypes.CDLL(None, use_errno=True)


def process_cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, all threads, user and system; by the clock of ``clock_getcpuclockid``."""
    return time.clock_gettime((~pid << 3) | 2)


@attrs.define
class Spent:
    """What a phase took: wall time and a process's CPU time, in seconds; set when the phase ends.

    ``machine_busy`` is the share of all cores' time, 0 to 1, that anything at all was running: where it is near 1, more
    threads cannot help.
    """

    wall: float = 0.0
    cpu: float = 0.0
    machine_busy: float = 0.0


@attrs.frozen
class CoreTime:
    """What all cores did since the machine started, in ticks of the kernel's clock. Waiting for a disk is not busy."""

    busy: int
    total: int

    @classmethod
    def now(cls) -> CoreTime:
        with open("/proc/stat") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
        idle, waiting_for_disk = ticks[3], ticks[4]
        return cls(sum(ticks) - idle - waiting_for_disk, sum(ticks))

    def busy_since(self, before: CoreTime) -> float:
        """The share of the time since ``before`` that was busy; 0 when less than a tick went by."""
        total = self.total - before.total
        return (self.busy - before.busy) / total if total else 0.0


@contextmanager
def spent_by(*pids: int) -> Iterator[Spent]:
    """Watch what processes spend together while the block runs."""
    spent = Spent()
    cores = CoreTime.now()
    began, cpu = time.perf_counter(), sum(map(process_cpu_seconds, pids))
    yield spent
    spent.cpu = sum(map(process_cpu_seconds, pids)) - cpu
    spent.wall = time.perf_counter() - began
    spent.machine_busy = CoreTime.now().busy_since(cores)


def resident_bytes(pid: int) -> int:
    """The memory a process holds in RAM, shared pages included (RSS)."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def private_bytes(pid: int) -> int:
    """The memory in RAM that is this process's alone (USS)."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("Private_Clean", "Private_Dirty"):
            total += int(rest.split()[0]) * 1024
    return total


def raise_file_limit(wanted: int) -> int:
    """Allow this process and its children ``wanted`` open files, or as many as it may; return how many it got."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)


def drop_from_page_cache(path: Path) -> None:
    """Write the file's dirty pages to the disk and forget all its pages, so that the next read is a real one."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def forget_contents(path: Path) -> None:
    """Make the whole file a hole: its pages and blocks go at once, its size stays. Raises OSError where that fails.

    What a measurement wrote gives way to the next one without a disk ever having seen it.
    """
    fd = os.open(path, os.O_RDWR)
    try:
        keep_size_punch_hole = 0x01 | 0x02
        size = ctypes.c_int64(os.fstat(fd).st_size)
        if size.value and LIBC.fallocate(fd, keep_size_punch_hole, ctypes.c_int64(0), size):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(fd)


def file_system_of(directory: Path) -> str:
    """The type of the file system that ``directory`` lies in: the one with the longest mount point above it."""
    resolved = directory.resolve()
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, fs_type, *_ = line.split()
        point = Path(mount)
        if resolved.is_relative_to(point) and len(point.parts) >= len(best.parts):
            best, kind = point, fs_type
    return kind


def description(directory: Path) -> dict[str, str | int]:
    """What belongs beside every result: the machine, the Python, the file system that was written to."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpus": os.cpu_count() or 0,
        "cpu": models[0] if models else platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "file_system": file_system_of(directory),
        "load_average": f"{os.getloadavg()[0]:.2f}",
    }
