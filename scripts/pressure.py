"""Whether a machine is short of CPU, by what Linux counts in ``/proc/pressure/cpu`` (PSI).

Tests extend their waits by it (``tests/waits.py``), and ``scripts/lanes.py`` says it of a whole run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from trio_broker.runtime.cpu_clock import PRESSURE_FILE, SystemCpuClock

EXTENDED_WAITS = "EXTENDED_WAITS"
"""The environment variable that names a file for notes on the waits of tests, one a line; processes inherit it."""

EXTENDED, IN_VAIN = "extended", "in vain"
"""The notes: a wait was extended, and what it waited for did not come all the same."""

MUCH_PRESSURE = 0.5
"""Of the time. A quiet machine has as much from the lanes of the checks alone, and more."""

OWN_SHARE = 0.7
"""Of the processors: what used more had them nearly to itself, and pressure was of its own making."""


def processor_count() -> int:
    """Of those that this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def stalled_seconds() -> float | None:
    """For how long, since the machine started, some process waited for a processor; None where nobody counts it."""
    waited_ns = SystemCpuClock(PRESSURE_FILE).times().pressure_ns
    return None if waited_ns is None else waited_ns / 1e9


@dataclass(frozen=True)
class Notes:
    """How many waits were extended, and in how many of them nothing came all the same."""

    extended: int = 0
    in_vain: int = 0

    def __add__(self, other: Notes) -> Notes:
        return Notes(self.extended + other.extended, self.in_vain + other.in_vain)

    def __str__(self) -> str:
        return f"{self.extended} waits were extended, {self.in_vain} of them in vain"


def read_notes(path: Path) -> Notes:
    """What processes wrote into the file that ``EXTENDED_WAITS`` named, which need not exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    return Notes(lines.count(EXTENDED), lines.count(IN_VAIN))


@dataclass(frozen=True)
class CpuOfRun:
    """The CPU that a run got, and that it had to wait for."""

    seconds: float
    cpu_seconds: float
    stalled_seconds: float | None
    """While it ran; None where nobody counts it."""
    processors: int = field(default_factory=processor_count)

    @property
    def pressure(self) -> float | None:
        """The share of the time in which some process waited for a processor."""
        return None if self.stalled_seconds is None else min(1.0, self.stalled_seconds / max(self.seconds, 1e-9))

    @property
    def used(self) -> float:
        """The share of the processors that the run had."""
        return min(1.0, self.cpu_seconds / max(self.seconds * self.processors, 1e-9))

    @property
    def was_short(self) -> bool:
        """Whether others had the CPU that the run waited for."""
        return self.pressure is not None and self.pressure > MUCH_PRESSURE and self.used < OWN_SHARE

    def __str__(self) -> str:
        if self.pressure is None:
            return f"Whether this machine was short of CPU is not known: it has no {PRESSURE_FILE}"
        found = "was short of CPU" if self.was_short else "was not short of CPU"
        return f"This machine {found} (PSI {self.pressure:.0%}; the checks had {self.used:.0%} of its processors)"
