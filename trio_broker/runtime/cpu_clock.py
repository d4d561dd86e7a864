"""The CPU times of a broker, which tests replace: what its event loop and its process used, and how long tasks of the
machine waited for a CPU.

A loop that is busy by the wall clock and has used little CPU time meanwhile was not working: other processes had the
CPUs. Linux counts such waits for the whole machine as *pressure* (PSI): the time in which some task that could run did
not.

As what ``measurement`` measures, these times are for display: nothing may be decided by them.

Source: Documentation/accounting/psi.rst of the Linux kernel.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Protocol

import attrs

PRESSURE_FILE = Path("/proc/pressure/cpu")

SOME_TASK_WAITED = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)
"""The microseconds since the machine started in which at least one task waited for a CPU."""


@attrs.frozen
class CpuTimes:
    """Counters in nanoseconds, each since some moment of its own.

    ``loop_ns`` is the CPU time of the calling thread, ``process_ns`` that of all threads of this process, and
    ``pressure_ns`` the time in which some task of this machine waited for a CPU; None where the kernel does not count
    that.
    """

    loop_ns: int = 0
    process_ns: int = 0
    pressure_ns: int | None = None


class CpuClock(Protocol):
    """Reads the CPU times; called in the thread of the event loop."""

    def times(self) -> CpuTimes:
        """What has been used and waited for up to now."""
        ...


class SystemCpuClock:
    """Reads those of this thread, process and machine."""

    def __init__(self, pressure_file: Path = PRESSURE_FILE) -> None:
        self._pressure_file = pressure_file

    def times(self) -> CpuTimes:
        return CpuTimes(time.thread_time_ns(), time.process_time_ns(), self._pressure_ns())

    def _pressure_ns(self) -> int | None:
        # No file without PSI; EOPNOTSUPP from read where it is switched off (psi=0).
        try:
            found = SOME_TASK_WAITED.search(self._pressure_file.read_text())
        except (OSError, UnicodeDecodeError):
            return None
        return None if found is None else int(found[1]) * 1000


@attrs.define
class ManualCpuClock:
    """Shows the times that it is given: by default those of a machine without PSI, on which nothing uses any CPU."""

    shown: CpuTimes = CpuTimes()

    def times(self) -> CpuTimes:
        return self.shown
