"""Walks over the batches of a slice of a log and folds their headers, with or without their checksums.

The records stay compressed, so this runs as fast as bytes come. It is meant for logs that may be damaged, and does not
end where they are: a batch with a wrong checksum is noted and stepped over. Where bytes can be no batch at all nobody
can say where the next one begins. Then reading starts again at later offsets, since whoever serves the log finds them
by its index, or in the next segment. What lies between is noted as unreadable.

A batch belongs to the slice that its base offset lies in, so that slices of one log share nothing; the first slice of a
partition (``includes_cut_batch``) also takes the batch that the slice's start cuts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

import attrs
import numpy as np

from trio_broker.spark.batch_table import BatchTable
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.pipelines.batch_statistics import (
    BadBatch,
    BatchHeaderColumns,
    Damage,
    PartitionStatistics,
    statistics_of,
)
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask

FOLDED_BATCHES: Final = 65_536
"""So many headers are folded at once: 4 MiB of numbers. Fewer would make small chunks slow."""


@attrs.frozen
class ChunkBatches:
    """Those batches of a chunk that belong to a slice: ``chosen`` rows of its table."""

    chunk: Chunk
    chosen: slice

    @property
    def table(self) -> BatchTable:
        """The headers of all the chunk's batches."""
        return self.chunk.table

    @property
    def first_base_offset(self) -> int:
        """The base offset of the first of them."""
        return int(self.table.base_offsets[self.chosen.start])

    def wrong_checksums(self) -> Iterator[int]:
        """Return the rows of the batches whose bytes do not have the checksum that their header says."""
        return self.table.wrong_crcs(self.chunk.data, self.chosen)


def batches_of(
    task: ReadTask, *, includes_cut_batch: bool, first_base_offset: int | None = None
) -> Generator[ChunkBatches, None, None]:
    """Yield the batches that belong to the slice of ``task``, chunk by chunk.

    With ``first_base_offset`` those from there on, if they come, though the slice begin later.

    Raises:
        CorruptData: bytes can be no batch; all batches before them have been yielded.
        SparkJobError: as the transport.
    """
    offsets = task.offsets
    lowest = offsets.start_offset if first_base_offset is None else first_base_offset
    next_offset = lowest
    with closing(task.transport.chunks(offsets)) as chunks:
        for chunk in chunks:
            table = chunk.table
            if includes_cut_batch:
                first = int(np.searchsorted(table.last_offsets, offsets.start_offset))
            else:
                first = int(np.searchsorted(table.base_offsets, lowest))
            end = int(np.searchsorted(table.base_offsets, offsets.end_offset))
            if first < end:
                yield ChunkBatches(chunk, slice(first, end))
            next_offset = max(next_offset, table.next_offset or 0)
            if end < len(table) or next_offset >= offsets.end_offset:
                return
            if table.damage is not None:
                raise CorruptData(offsets.partition, next_offset, table.damage)


def scan_headers(task: ReadTask, *, includes_cut_batch: bool, verify_crc: bool) -> PartitionStatistics:
    """Return the statistics of the batches in the slice of ``task``; damage is told in them.

    Raises:
        SparkJobError: the slice is not there, or nobody serves it.
    """
    fold = _Fold(task.offsets, verify_crc)
    batches = batches_of(task, includes_cut_batch=includes_cut_batch)
    while True:
        try:
            for some in batches:
                fold.add(some)
            return fold.result()
        except CorruptData as failure:
            resumed = _behind_damage(task, fold.next_offset)
            if resumed is None:
                fold.note_damage(task.offsets.end_offset, failure)
                return fold.result()
            fold.note_damage(resumed.base_offset, failure)
            rest = _from(task, resumed.start_offset)
            batches = batches_of(rest, includes_cut_batch=False, first_base_offset=fold.next_offset)


@attrs.frozen
class _Resumed:
    """The first batch behind damage is at ``base_offset``, and comes to those who ask for ``start_offset``."""

    start_offset: int
    base_offset: int


def _behind_damage(task: ReadTask, next_offset: int) -> _Resumed | None:
    """Return where batches come again behind ``next_offset``, None where none do before the end.

    Asked for offsets one, two, four … further until something comes, then for those between that and the last that
    failed: what lies there is to be found as well.
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
    """Return the first batch of ``lowest`` or later that comes to those who ask for ``start``, None for damage.

    Where nothing is left of the slice, that is the batch behind it.
    """
    try:
        with closing(batches_of(_from(task, start), includes_cut_batch=False, first_base_offset=lowest)) as batches:
            for some in batches:
                return _Resumed(start, some.first_base_offset)
    except CorruptData:
        return None
    return _Resumed(start, task.offsets.end_offset)


def _from(task: ReadTask, start: int) -> ReadTask:
    """Return the task that begins at ``start``, which lies in this one."""
    return attrs.evolve(task, offsets=attrs.evolve(task.offsets, start_offset=start))


@attrs.define
class _Fold:
    """The statistics so far, and headers that wait to be folded into them."""

    offsets: OffsetRange
    verify_crc: bool
    next_offset: int = attrs.field(init=False)
    _folded: PartitionStatistics = attrs.field(init=False)
    _waiting: list[BatchHeaderColumns] = attrs.field(factory=list)
    _waiting_count: int = 0
    _bad: list[BadBatch] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.offsets.start_offset
        self._folded = PartitionStatistics(self.offsets.partition)

    def add(self, batches: ChunkBatches) -> None:
        """Take batches, which come behind all that were added before."""
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

    def note_damage(self, end_offset: int, failure: CorruptData) -> None:
        """Note that nothing can be read from the last batch on up to ``end_offset``."""
        self._fold_waiting()
        damage = Damage(self.next_offset, end_offset, str(failure))
        noted = PartitionStatistics(self.offsets.partition, damage_count=1, damages=(damage,))
        self._folded = self._folded.then(noted)

    def result(self) -> PartitionStatistics:
        """Return the statistics of all that was added."""
        self._fold_waiting()
        return self._folded

    def _fold_waiting(self) -> None:
        if not self._waiting:
            return
        headers = BatchHeaderColumns.joined(self._waiting)
        folded = statistics_of(
            self.offsets.partition,
            headers,
            bad_batches=tuple(self._bad),
            checked_batches=len(headers) if self.verify_crc else 0,
        )
        self._folded = self._folded.then(folded)
        self._waiting.clear()
        self._waiting_count = 0
        self._bad.clear()
