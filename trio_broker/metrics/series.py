"""The broker's readings over time: each second of the last hour in memory, each minute of the last week on disk.

A *series* is one number of ``HistorySample``. Of a minute, or of any longer step, a row has the mean of each series,
and of those in ``MAXIMA`` the largest value: the p99 of a minute is not known from those of its seconds, but none of
them was worse than that.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby
from math import isnan, nan
from typing import Final

import attrs
import trio

from trio_broker.metrics.history import SERIES, HistorySample
from trio_broker.metrics.minute_file import MINUTE_MS, MinuteFile

log = logging.getLogger(__name__)

SECONDS_KEPT: Final = 3_600
"""An hour; about a megabyte."""

MAXIMA: Final = frozenset(name for name in SERIES if name.endswith("_p99_ms")) | {"queue_depth"}


@attrs.frozen
class Row:
    """The values of some series, or of all in the order of ``SERIES``, of the step that begins at ``at_ms``."""

    at_ms: int
    values: array[float]


def row_of(sample: HistorySample) -> Row:
    return Row(sample.sampled_at_ms, array("f", [getattr(sample, name) for name in SERIES]))


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
    """The series ``names`` of ``rows``, which are in the order of their times: a row for each step that has any."""
    places = [SERIES.index(name) for name in names]
    chosen = (Row(row.at_ms, array("f", [row.values[place] for place in places])) for row in rows)
    steps = groupby(chosen, key=lambda row: row.at_ms // step_ms)
    return [merged(step * step_ms, list(group), names) for step, group in steps]


class SeriesHistory:
    """The rows of the last hour and week. Without a file the week is not kept."""

    def __init__(self, file: MinuteFile | None = None) -> None:
        self._file = file
        self._seconds: deque[Row] = deque(maxlen=SECONDS_KEPT)
        self._minute: list[Row] = []
        self._unwritten: list[Row] = []
        self._work = trio.Event()
        self._is_failing = False

    def add(self, sample: HistorySample) -> None:
        """Keep a sample; a minute that is over with it will be written."""
        row = row_of(sample)
        self._seconds.append(row)
        if self._minute and self._minute[0].at_ms // MINUTE_MS != row.at_ms // MINUTE_MS:
            begin_ms = self._minute[0].at_ms // MINUTE_MS * MINUTE_MS
            self._unwritten.append(merged(begin_ms, self._minute))
            self._minute = []
            self._work.set()
        self._minute.append(row)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write minutes as they end, until cancelled."""
        task_status.started()
        while True:
            await self._work.wait()
            self._work = trio.Event()
            await self.flush()

    async def flush(self) -> None:
        """Write the minutes that are over; a failure is logged once until writing works again."""
        rows, self._unwritten = self._unwritten, []
        if self._file is None or not rows:
            return
        try:
            await trio.to_thread.run_sync(self._file.write, [(row.at_ms, row.values) for row in rows])
        except OSError as error:
            if not self._is_failing:
                log.error("%s: the history of the last days is not kept: %s", self._file.path, error)
            self._is_failing = True
        else:
            self._is_failing = False

    async def rows(self, from_ms: int, to_ms: int, step_ms: int, names: Sequence[str] = SERIES) -> list[Row]:
        """The series ``names`` of the steps from ``from_ms`` up to ``to_ms``, exclusive; steps without any reading are
        left out.

        Minutes are read where a step is that long, or the last hour does not reach so far back.
        """
        # A copy of the hour. What follows reads the disk and goes over a week of rows, so it leaves the event loop.
        work = partial(self._rows, tuple(self._seconds), from_ms, to_ms, step_ms, names)
        return await trio.to_thread.run_sync(work)

    def _rows(self, kept: Sequence[Row], from_ms: int, to_ms: int, step_ms: int, names: Sequence[str]) -> list[Row]:
        seconds = [row for row in kept if from_ms <= row.at_ms < to_ms]
        if self._file is None or (kept and kept[0].at_ms <= from_ms):
            return in_steps(seconds, step_ms, names)
        in_memory_from_ms = seconds[0].at_ms if seconds else to_ms
        try:
            read = self._file.read(from_ms, min(to_ms, in_memory_from_ms))
        except OSError as error:
            log.warning("%s cannot be read: %s", self._file.path, error)
            read = []
        minutes = [Row(at_ms, values) for at_ms, values in read]
        # The minute in which memory begins may be in the file as well; its seconds are the better account.
        minutes = [row for row in minutes if row.at_ms + MINUTE_MS <= in_memory_from_ms or not seconds]
        return in_steps([*minutes, *seconds], max(step_ms, MINUTE_MS) if minutes else step_ms, names)
