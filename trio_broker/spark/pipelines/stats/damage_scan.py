"""Counts the batches of a slice of a log by their headers, checking their checksums if asked to.

The scan is made for logs that may be damaged, and goes on behind damage: a batch with a wrong checksum is recorded and
skipped. Bytes that are no batch do not say where the next batch begins. Reading then starts again at later offsets,
which the broker or the reader of the files finds by the index, or in the next segment. The offsets between are recorded
as unreadable.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import attrs

from trio_broker.spark.errors import CorruptData
from trio_broker.spark.header_scan import ChunkBatches, batches_of
from trio_broker.spark.pipelines.stats.batch_statistics import (
    BadBatch,
    BatchHeaderColumns,
    Damage,
    PartitionStatistics,
    joined,
    statistics_of,
)
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask

FOLDED_BATCHES: Final = 65_536
"""Headers that are folded at once: 4 MiB of numbers. Chunks of few batches would be slow to fold one by one."""


def scan_headers(task: ReadTask, *, includes_cut_batch: bool, verify_crc: bool) -> PartitionStatistics:
    """Return the statistics of the batches in the slice of ``task``; they include damage.

    Raises:
        SparkJobError: the slice does not exist, or cannot be read.
    """
    fold = _Fold(task.offsets, verify_crc)
    batches = batches_of(task, includes_cut_batch=includes_cut_batch)
    while True:
        try:
            for some in batches:
                fold.add(some)
            return fold.result()
        except CorruptData as failure:
            resumed = _find_resumption(task, fold.next_offset)
            if resumed is None:
                fold.add_damage(task.offsets.end_offset, failure)
                return fold.result()
            fold.add_damage(resumed.base_offset, failure)
            remaining = _starting_at(task, resumed.start_offset)
            batches = batches_of(remaining, includes_cut_batch=False, first_base_offset=fold.next_offset)


@attrs.frozen
class _Resumed:
    """The first batch behind damage is at ``base_offset``, and is returned to a read from ``start_offset`` on."""

    start_offset: int
    base_offset: int


def _find_resumption(task: ReadTask, next_offset: int) -> _Resumed | None:
    """Return where reading succeeds again behind ``next_offset``, None if it does not before the end.

    Offsets one, two, four … further are tried until a read succeeds, then a binary search between that offset and the
    last one that failed finds the first offset that can be read.
    """
    failed, last, step = max(next_offset, task.offsets.start_offset), task.offsets.end_offset - 1, 1
    found: _Resumed | None = None
    while found is None:
        if failed >= last:
            return None
        start = min(failed + step, last)
        found = _first_batch_from(task, start, next_offset)
        if found is None:
            failed, step = start, 2 * step
    while (end := min(found.start_offset, found.base_offset)) - failed > 1:
        middle = (failed + end) // 2
        earlier = _first_batch_from(task, middle, next_offset)
        if earlier is None:
            failed = middle
        else:
            found = earlier
    return found


def _first_batch_from(task: ReadTask, start: int, lowest: int) -> _Resumed | None:
    """Return the first batch at ``lowest`` or later that a read from ``start`` on returns, None for damage.

    Where the slice has none left, that is the offset behind the slice.
    """
    try:
        with closing(
            batches_of(_starting_at(task, start), includes_cut_batch=False, first_base_offset=lowest)
        ) as batches:
            for some in batches:
                return _Resumed(start, some.first_base_offset)
    except CorruptData:
        return None
    return _Resumed(start, task.offsets.end_offset)


def _starting_at(task: ReadTask, start: int) -> ReadTask:
    """Return the task with its slice beginning at ``start``."""
    return attrs.evolve(task, offsets=attrs.evolve(task.offsets, start_offset=start))


@attrs.define
class _Fold:
    """The statistics so far, of parts, and the headers that wait to be counted."""

    offsets: OffsetRange
    verify_crc: bool
    next_offset: int = attrs.field(init=False)
    _parts: list[PartitionStatistics] = attrs.field(factory=list)
    _waiting: list[BatchHeaderColumns] = attrs.field(factory=list)
    _waiting_count: int = 0
    _bad: list[BadBatch] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.offsets.start_offset

    def add(self, batches: ChunkBatches) -> None:
        """Add batches, which lie behind all that were added before."""
        table = batches.table
        if self.verify_crc:
            self._bad += (
                BadBatch(
                    base_offset=int(table.base_offsets[row]),
                    last_offset=int(table.last_offsets[row]),
                    size_bytes=int(table.sizes[row]),
                    origin=batches.chunk.origin,
                )
                for row in batches.wrong_checksums()
            )
        self._waiting.append(BatchHeaderColumns.of(table, batches.chosen))
        self._waiting_count += len(self._waiting[-1])
        self.next_offset = int(table.last_offsets[batches.chosen.stop - 1]) + 1
        if self._waiting_count >= FOLDED_BATCHES:
            self._fold_waiting()

    def add_damage(self, end_offset: int, failure: CorruptData) -> None:
        """Record that nothing can be read from the last batch on up to ``end_offset``."""
        # The order counts: statistics of what lies before the damage come before it.
        self._fold_waiting()
        damage = Damage(self.next_offset, end_offset, str(failure))
        self._parts.append(PartitionStatistics(self.offsets.partition, damage_count=1, damages=(damage,)))

    def result(self) -> PartitionStatistics:
        """Return the statistics of everything added."""
        self._fold_waiting()
        return joined(self._parts or [PartitionStatistics(self.offsets.partition)])

    def _fold_waiting(self) -> None:
        if not self._waiting:
            return
        headers = BatchHeaderColumns.joined(self._waiting)
        self._parts.append(
            statistics_of(
                self.offsets.partition,
                headers,
                bad_batches=tuple(self._bad),
            )
        )
        self._waiting.clear()
        self._waiting_count = 0
        self._bad.clear()
