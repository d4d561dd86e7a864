"""The progress of a job: what it does right now, how far it is, and how fast it was in the last seconds.

On a terminal one line is rewritten in place; what others have to say on standard error, such as Spark's JVM, is printed
above it (``print_above``). Elsewhere a line without control characters is printed now and then, so that short jobs stay
silent and the log of a long one has its progress.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

import attrs

from trio_broker.common.amounts import duration_text, short_number_text

MOST_BAR_WIDTH: Final = 24
"""Characters of the bar; a longer one shows no more."""

LEAST_BAR_WIDTH: Final = 8
"""Where the terminal leaves less, there is no bar."""

MIN_SECONDS_BETWEEN_LINES: Final = 0.1
"""More would not be seen, and a slow terminal would slow the job down."""

SECONDS_BETWEEN_PLAIN_LINES: Final = 30.0
"""Between two lines where there is no terminal, and before the first one."""

RATE_SECONDS: Final = 10.0
"""The rate is that of so many last seconds: it shows a job that slows down, and hides the pauses between its tasks."""

READING: Final = "reading"
WRITING: Final = "writing"
COMMITTING: Final = "committing"
WAITING: Final = "waiting for records"

DEFAULT_COLUMNS: Final = 80
"""Of a terminal that does not say how wide it is."""

CLEAR_LINE: Final = "\r\x1b[K"


@attrs.define
class Progress:
    """Shows ``done`` of ``total`` units; without a total, only their number and rate.

    ``set_running`` has the part of the work in progress that may be counted already: a guess, never more than
    ``advance`` adds later. A context manager, which clears the line at its end. Any thread may use it. A thread of its
    own keeps the line up to date, every ``tick_seconds`` unless that is None.
    """

    label: str
    total: int | None = None
    unit: str = "records"
    stream: TextIO | None = None
    clock: Callable[[], float] = time.monotonic
    tick_seconds: float | None = 1.0
    done: int = 0
    _running: int = 0
    _phase: str = "planning"
    _phase_began: float = 0.0
    _is_counting: bool = False
    _samples: deque[tuple[float, int]] = attrs.field(factory=deque)
    _shown: float | None = None
    _is_terminal: bool = False
    _owned_stream: TextIO | None = None
    _ended: threading.Event = attrs.field(factory=threading.Event)
    _ticker: threading.Thread | None = None
    # Reentrant: ``print_above`` shows the line again while it holds the lock.
    _lock: threading.RLock = attrs.field(factory=threading.RLock)

    def __enter__(self) -> Self:
        if self.stream is None:
            self.stream = self._owned_stream = standard_error()
        self._is_terminal = self.stream.isatty()
        self._phase_began = self.clock()
        if not self._is_terminal:
            self._shown = self._phase_began
        self._show(force=True)
        if self.tick_seconds is not None:
            self._ticker = threading.Thread(target=self._tick, args=(self.tick_seconds,), name="progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        with self._lock:
            assert self.stream is not None
            if self._is_terminal:
                self.stream.write(CLEAR_LINE)
                self.stream.flush()
            self.stream = None
            if self._owned_stream not in (None, sys.stderr):
                self._owned_stream.close()

    def phase(self, name: str, *, is_counting: bool = True) -> None:
        """Set what the job does now. The rate counts from the first phase on that ``is_counting``."""
        with self._lock:
            now = self.clock()
            if is_counting and not self._is_counting:
                self._samples = deque([(now, self._counted)])
            self._phase, self._phase_began, self._is_counting = name, now, is_counting
            self._show(force=True)

    def advance(self, count: int) -> None:
        """Add ``count`` finished units."""
        with self._lock:
            self.done += count
            self._running = 0
            self._note_sample()
            self._show(force=True)

    def grow(self, count: int) -> None:
        """Add ``count`` to the total."""
        with self._lock:
            self.total = (self.total or 0) + count
            self._show()

    def set_running(self, count: int) -> None:
        """Set how many units of the work in progress are done."""
        with self._lock:
            if count != self._running:
                self._running = count
                self._note_sample()
            self._show()

    def print_above(self, text: str) -> None:
        """Print a line of another origin, and the progress below it again."""
        with self._lock:
            stream = self.stream or sys.stderr
            stream.write(f"{CLEAR_LINE if self._is_shown_in_place else ''}{text}\n")
            if self._is_shown_in_place:
                stream.write(self.line(self._width()))
            stream.flush()

    def line(self, width: int | None = None) -> str:
        """Return the line as it is shown now, at most ``width`` characters long; without a width it has no bar."""
        with self._lock:
            now, count = self.clock(), self._counted
            begin = f"{self.label}: {self._phase}"
            if not self._is_counting or not count:
                of = f"{self.total:,} {self.unit}  " if self._is_counting and self.total is not None else ""
                return f"{begin}  {of}{duration_text(now - self._phase_began)}"[:width]
            rate = self._rate(now)
            rate_text = f"{short_number_text(rate)} {self.unit}/s"
            if self.total is None:
                return f"{begin}  {count:,} {self.unit}  {rate_text}"[:width]
            share = min(count / self.total, 1.0) if self.total else 1.0
            left = f"  {duration_text((self.total - count) / rate)} left" if share < 1 and rate else ""
            end = f"{share:4.0%}  {count:,} of {self.total:,}  {rate_text}{left}"
            # The bar has a space on its left, besides those around it, and its brackets.
            bar_width = 0 if width is None else min(width - len(begin) - len(end) - 5, MOST_BAR_WIDTH)
            if bar_width < LEAST_BAR_WIDTH:
                return f"{begin}  {end}"[:width]
            return f"{begin}  [{('#' * round(share * bar_width)).ljust(bar_width, '-')}] {end}"

    @property
    def _counted(self) -> int:
        return self.done + self._running

    @property
    def _is_shown_in_place(self) -> bool:
        return self._is_terminal and self.stream is not None

    def _note_sample(self) -> None:
        if self._is_counting:
            self._samples.append((self.clock(), self._counted))

    def _rate(self, now: float) -> float:
        """Return the units in a second: of the last seconds, and before them of the time since the last advance."""
        count = self._counted
        # The second sample becomes the first, as long as the rate from there on covers the seconds and some units.
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_SECONDS and self._samples[1][1] < count:
            self._samples.popleft()
        began, before = self._samples[0]
        return (count - before) / (now - began) if now > began else 0.0

    def _tick(self, seconds: float) -> None:
        while not self._ended.wait(seconds):
            self._show()

    def _show(self, *, force: bool = False) -> None:
        with self._lock:
            if self.stream is None:
                return
            now = self.clock()
            since = float("inf") if self._shown is None else now - self._shown
            if self._is_terminal and (force or since >= MIN_SECONDS_BETWEEN_LINES):
                self.stream.write(CLEAR_LINE + self.line(self._width()))
            elif not self._is_terminal and since >= SECONDS_BETWEEN_PLAIN_LINES:
                self.stream.write(self.line() + "\n")
            else:
                return
            self.stream.flush()
            self._shown = now

    def _width(self) -> int:
        """Return how long the line may be. A full last column makes some terminals begin another line, which
        ``CLEAR_LINE`` would leave."""
        assert self.stream is not None
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return (columns or DEFAULT_COLUMNS) - 1


def standard_error() -> TextIO:
    """Return a stream to standard error that stays what it is while the descriptor 2 is redirected for others."""
    try:
        descriptor = os.dup(sys.stderr.fileno())
    # A test or a notebook may have replaced it by something without a descriptor.
    except (OSError, ValueError):
        return sys.stderr
    return os.fdopen(descriptor, "w", encoding=sys.stderr.encoding, errors="backslashreplace")
