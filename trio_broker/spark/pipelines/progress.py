"""The progress of a job, on one line of a terminal that is rewritten in place.

Nothing is shown where standard error is no terminal: scripts and services get the summary only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

import attrs

BAR_WIDTH: Final = 24
"""Characters of the bar; with the numbers behind it the line fits into 80 columns."""

MIN_SECONDS_BETWEEN_LINES: Final = 0.1
"""More would not be seen, and a slow terminal would slow the job down."""

CLEAR_LINE: Final = "\r\x1b[K"


@attrs.define
class Progress:
    """Shows ``done`` of ``total`` units; without a total, only their number and rate.

    ``set_running`` has the part of the work in progress that may be counted already: a guess, never more than
    ``advance`` adds later. A context manager, which clears the line at its end.
    """

    label: str
    total: int | None = None
    unit: str = "records"
    stream: TextIO = attrs.field(factory=lambda: sys.stderr)
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    _running: int = 0
    _began: float = 0.0
    _shown: float | None = None

    def __enter__(self) -> Self:
        self._began = self.clock()
        self._show(force=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_shown:
            self.stream.write(CLEAR_LINE)
            self.stream.flush()

    @property
    def is_shown(self) -> bool:
        """Whether there is a terminal to write to."""
        return self.stream.isatty()

    def advance(self, count: int) -> None:
        """Add ``count`` finished units."""
        self.done += count
        self._running = 0
        self._show(force=True)

    def grow(self, count: int) -> None:
        """Add ``count`` to the total."""
        self.total = (self.total or 0) + count
        self._show()

    def set_running(self, count: int) -> None:
        """Set how many units of the work in progress are done."""
        self._running = count
        self._show()

    def line(self) -> str:
        """Return the line as it is shown now."""
        done = self.done + self._running
        seconds = max(self.clock() - self._began, 1e-9)
        rate = f"{short_count(done / seconds)} {self.unit}/s"
        if self.total is None:
            return f"{self.label}  {done:,} {self.unit}  {rate}"
        share = min(done / self.total, 1.0) if self.total else 1.0
        bar = ("#" * round(share * BAR_WIDTH)).ljust(BAR_WIDTH, "-")
        left = f"  {short_duration(seconds * (1 - share) / share)} left" if 0 < share < 1 else ""
        return f"{self.label}  [{bar}] {share:4.0%}  {done:,} of {self.total:,}  {rate}{left}"

    def _show(self, *, force: bool = False) -> None:
        if not self.is_shown:
            return
        now = self.clock()
        if force or self._shown is None or now - self._shown >= MIN_SECONDS_BETWEEN_LINES:
            self._shown = now
            self.stream.write(CLEAR_LINE + self.line())
            self.stream.flush()


def short_count(number: float) -> str:
    """Return a rounded number with a unit: ``950``, ``1.2 M``."""
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.1f}{name}"
    return f"{number:.0f}"


def short_bytes(count: float) -> str:
    """Return a rounded size in powers of 1024: ``1.5 GiB``."""
    for size, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:.0f} B"


def short_duration(seconds: float) -> str:
    """Return a rounded duration: ``42 s``, ``3 min``, ``5.2 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
