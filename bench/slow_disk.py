"""A disk whose syncs and cold reads take longer, for machines whose own is too fast to show what waiting costs.

On a virtual disk with a write cache in the host's memory one sync may take 0.2 ms, less than the broker needs to answer
three requests: nothing there ever waits for the disk. Cloud volumes take 1 to 4 ms, disks that turn 8. Here each sync
sleeps first, without the interpreter lock, and then syncs in earnest; waits of different threads overlap, as in a
device with a queue. Reads of the disk and of the page cache look alike in Python, but broker and floor announce a read
of the disk with ``posix_fadvise(WILLNEED)``: that is where a read's wait is put.

    python -m bench.slow_disk 2 start --port 0        # trio-broker, each sync and each cold read 2 ms longer

The floors of the same run take the same disk through the functions of this module.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

real_fdatasync = os.fdatasync
real_fsync = os.fsync
real_posix_fadvise = os.posix_fadvise


@attrs.define
class Disk:
    """How much longer every sync and every cold read takes, in seconds."""

    delay_seconds: float = 0.0


DISK = Disk()


def fdatasync(fd: int) -> None:
    """Sync, on the disk as it is set."""
    if DISK.delay_seconds:
        time.sleep(DISK.delay_seconds)
    real_fdatasync(fd)


def fsync(fd: int) -> None:
    """Sync with metadata, on the disk as it is set."""
    if DISK.delay_seconds:
        time.sleep(DISK.delay_seconds)
    real_fsync(fd)


def posix_fadvise(fd: int, position: int, count: int, advice: int) -> None:
    """Give the kernel advice; before a read, wait as the disk would make one wait."""
    if DISK.delay_seconds and advice == os.POSIX_FADV_WILLNEED:
        time.sleep(DISK.delay_seconds)
    real_posix_fadvise(fd, position, count, advice)


@contextmanager
def delayed_by(delay_ms: float) -> Iterator[None]:
    """Make this process's floors feel the slower disk for a while."""
    DISK.delay_seconds = delay_ms / 1000
    try:
        yield
    finally:
        DISK.delay_seconds = 0.0


def main(arguments: list[str]) -> None:
    """Run the ``trio-broker`` command on the slower disk."""
    from trio_broker.cli import main as broker_command

    DISK.delay_seconds = float(arguments[0]) / 1000
    os.fdatasync = fdatasync  # type: ignore[assignment]
    os.fsync = fsync  # type: ignore[assignment]
    os.posix_fadvise = posix_fadvise
    broker_command(arguments[1:])


if __name__ == "__main__":
    # Under its own name: the module that runs as __main__ would otherwise be another one with another DISK.
    from bench.slow_disk import main as run

    run(sys.argv[1:])
