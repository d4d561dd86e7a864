"""Readings over time: each second of the broker's last hour in memory, each minute of the last week on disk; and those
minutes of the topics that carry most and of the groups that are furthest behind.

A *series* is one number of ``HistorySample``. Of a minute, or of any longer step, a row has the mean of each series,
and of those in ``MAXIMA`` the largest value: the p99 of a minute is not known from those of its seconds, but none of
them was worse than that.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from math import isnan, nan
from pathlib import PurePath
from typing import Final, TypeAlias

import attrs
import trio

from trio_broker.metrics.history import SERIES, HistorySample
from trio_broker.metrics.minute_file import MINUTE_MS, MinuteFile, MinuteRow
from trio_broker.metrics.named_minute_file import NamedMinuteFile, NamedValues, Scale
from trio_broker.runtime.workers import Workers

log = logging.getLogger(__name__)

SECONDS_KEPT: Final = 3_600
"""An hour; about a megabyte."""

TOPIC_SERIES: Final = ("records_in_per_second", "bytes_in_per_second", "bytes_out_per_second", "records_out_per_second")
"""The numbers of a topic. The last of them is of the last hour only: a week of it would need a third more room."""

GROUP_SERIES: Final = ("lag_records", "lag_seconds", "consumed_per_second")
"""The numbers of a group."""

TOPIC_SCALES: Final = (
    Scale("records_in_per_second", 2.0**-6, 2.0**24),
    Scale("bytes_in_per_second", 1.0, 2.0**34),
    Scale("bytes_out_per_second", 1.0, 2.0**34),
)
"""From a record a minute to 16 million a second; to 16 GiB/s."""

GROUP_SCALES: Final = (
    Scale("lag_records", 1.0, 2.0**40),
    Scale("lag_seconds", 2.0**-4, 2.0**23),
    Scale("consumed_per_second", 2.0**-6, 2.0**24),
)
"""To 10^12 records and three months."""

MAXIMA: Final = frozenset(name for name in SERIES if name.endswith("_p99_ms")) | {
    "queue_depth",
    "unread_wait_ms",
    "lag_records",
    "lag_seconds",
}


@attrs.frozen
class Row:
    """The values of some series, or of all in the order of ``SERIES``, of the step that begins at ``at_ms``."""

    at_ms: int
    values: array[float]


def row_of(sample: HistorySample) -> Row:
    return Row(sample.sampled_at_ms, array("f", [number(getattr(sample, name)) for name in SERIES]))


def number(value: float | None) -> float:
    """``value``, and not a number where it is not known."""
    return nan if value is None else value


def merged(at_ms: int, rows: Sequence[Row], names: Sequence[str] = SERIES) -> Row:
    """One row of the series ``names`` for ``rows``, of which there is at least one and which have just these."""
    columns = zip(names, zip(*(row.values for row in rows), strict=True), strict=True)
    return Row(at_ms, array("f", [summary(column, is_maximum=name in MAXIMA) for name, column in columns]))


def summary(column: Sequence[float], *, is_maximum: bool) -> float:
    """The mean or the maximum of what was measured; not a number where nothing was."""
    measured = [value for value in column if not isnan(value)]
    if not measured:
        return nan
    return max(measured) if is_maximum else sum(measured) / len(measured)


def in_steps(rows: Iterable[Row], step_ms: int, names: Sequence[str] = SERIES) -> list[Row]:
    """A row for each step that has any of ``rows``, which are of the series ``names`` and ordered by time."""
    steps = groupby(rows, key=lambda row: row.at_ms // step_ms)
    return [merged(step * step_ms, list(group), names) for step, group in steps]


ReadMinutes: TypeAlias = "Callable[[int, int], list[MinuteRow]]"
"""Reads the minutes of some series from a time up to another, from a disk."""


def rows_between(
    kept: Sequence[Row], read: ReadMinutes, from_ms: int, to_ms: int, step_ms: int, names: Sequence[str]
) -> list[Row]:
    """The steps from ``from_ms`` up to ``to_ms``, exclusive; ``kept`` are the rows in memory, in order.

    Minutes are read where memory does not reach so far back; steps are then of a minute at least. It blocks.
    """
    recent = [row for row in kept if from_ms <= row.at_ms < to_ms]
    if kept and kept[0].at_ms <= from_ms:
        return in_steps(recent, step_ms, names)
    in_memory_from_ms = recent[0].at_ms if recent else to_ms
    try:
        minutes = [Row(at_ms, values) for at_ms, values in read(from_ms, min(to_ms, in_memory_from_ms))]
    except OSError as error:
        log.warning("the history of the last days cannot be read: %s", error)
        minutes = []
    # The minute in which memory begins may be in the file as well; what memory has is the better account.
    minutes = [row for row in minutes if row.at_ms + MINUTE_MS <= in_memory_from_ms or not recent]
    return in_steps([*minutes, *recent], max(step_ms, MINUTE_MS) if minutes else step_ms, names)


@attrs.define
class HistoryWriter:
    """Writes minutes into their files as they end, all in one task."""

    workers: Workers
    _unwritten: list[tuple[PurePath, Callable[[], None]]] = attrs.field(factory=list, init=False)
    _work: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failing: set[PurePath] = attrs.field(factory=set, init=False)

    def add(self, path: PurePath, write: Callable[[], None]) -> None:
        """Have ``write``, which writes to ``path`` and blocks, called in a thread."""
        self._unwritten.append((path, write))
        self._work.set()

    async def run(self) -> None:
        """Write minutes as they end, until cancelled."""
        while True:
            await self._work.wait()
            self._work = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Write the minutes that are over; a failure is logged once until writing works again."""
        unwritten, self._unwritten = self._unwritten, []
        for path, write in unwritten:
            try:
                await self.workers.run(write)
            except Exception as error:
                if path not in self._failing:
                    is_bug = not isinstance(error, OSError)
                    log.error("%s: the history of the last days is not kept: %s", path, error, exc_info=is_bug)
                self._failing.add(path)
            else:
                self._failing.discard(path)


class SeriesHistory:
    """The rows of the last hour and week. Without a file the week is not kept."""

    def __init__(self, file: MinuteFile | None, writer: HistoryWriter) -> None:
        self._file = file
        self.writer = writer
        self._seconds: deque[Row] = deque(maxlen=SECONDS_KEPT)
        self._minute: list[Row] = []

    @property
    def seconds(self) -> Sequence[Row]:
        """All series of the seconds of the last hour, oldest first; a copy."""
        return tuple(self._seconds)

    def add(self, sample: HistorySample) -> None:
        """Keep a sample; a minute that is over with it will be written."""
        row = row_of(sample)
        self._seconds.append(row)
        if self._minute and self._minute[0].at_ms // MINUTE_MS != row.at_ms // MINUTE_MS:
            over = merged(self._minute[0].at_ms // MINUTE_MS * MINUTE_MS, self._minute)
            if self._file is not None:
                self.writer.add(self._file.path, partial(self._file.write, [(over.at_ms, over.values)]))
            self._minute = []
        self._minute.append(row)

    async def rows(self, from_ms: int, to_ms: int, step_ms: int, names: Sequence[str] = SERIES) -> list[Row]:
        """The series ``names`` of the steps from ``from_ms`` up to ``to_ms``, exclusive; steps without any reading are
        left out.

        Minutes are read where the last hour does not reach so far back; steps are then of a minute at least.
        """
        # A copy of the hour. What follows reads the disk and goes over a week of rows, so it leaves the event loop.
        work = partial(self._rows, tuple(self._seconds), from_ms, to_ms, step_ms, names)
        return await self.writer.workers.run(work)

    def _rows(self, kept: Sequence[Row], from_ms: int, to_ms: int, step_ms: int, names: Sequence[str]) -> list[Row]:
        places = [SERIES.index(name) for name in names]

        def chosen(values: array[float]) -> array[float]:
            return array("f", [values[place] for place in places])

        def read(from_ms: int, to_ms: int) -> list[MinuteRow]:
            return [] if self._file is None else self._file.read(from_ms, to_ms, names)

        recent = [Row(row.at_ms, chosen(row.values)) for row in kept]
        return rows_between(recent, read, from_ms, to_ms, step_ms, names)


@attrs.define
class NamedSeriesHistory:
    """The last week of topics, or of groups, by name; the last hour is kept by the part of the broker that measures it.

    ``collect`` returns what was measured from a time up to another, by name and in the order of the file's numbers.
    """

    file: NamedMinuteFile
    collect: Callable[[int, int], NamedValues]
    writer: HistoryWriter
    _minute: int | None = attrs.field(default=None, init=False)

    def tick(self, now_ms: int) -> None:
        """Have the minute written that is over, if one is; called once a second."""
        minute = now_ms // MINUTE_MS
        if self._minute is not None and minute != self._minute:
            at_ms = self._minute * MINUTE_MS
            if values := self.collect(at_ms, at_ms + MINUTE_MS):
                self.writer.add(self.file.path, partial(self.file.write, at_ms, values))
        self._minute = minute

    async def rows(
        self, name: str, kept: Sequence[Row], from_ms: int, to_ms: int, step_ms: int, names: Sequence[str]
    ) -> list[Row]:
        """The series ``names`` of one topic or group, of which ``kept`` are the rows in memory; those that the file
        does not have are not numbers there."""
        written = [scale.series for scale in self.file.scales]
        places = [written.index(series) if series in written else None for series in names]

        def read(from_ms: int, to_ms: int) -> list[MinuteRow]:
            return [
                (at_ms, array("f", [nan if place is None else values[place] for place in places]))
                for at_ms, values in self.file.read(name, from_ms, to_ms)
            ]

        return await self.writer.workers.run(partial(rows_between, kept, read, from_ms, to_ms, step_ms, names))
