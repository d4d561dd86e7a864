"""Reads the batches of a slice of a log by their headers alone.

Records stay compressed, so that a scan is as fast as the bytes can be read. A batch belongs to the slice that its base
offset lies in, so that slices of one log share nothing; the first slice of a partition (``includes_cut_batch``) also
takes the batch that the slice's start cuts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

import attrs
import numpy as np

from trio_broker.spark.batch_table import BatchTable
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.tasks import ReadTask


@attrs.frozen
class ChunkBatches:
    """The batches of a chunk that belong to a slice: the ``chosen`` rows of its table."""

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
        """Yield the rows of the batches whose bytes do not match the checksum in their header."""
        return self.table.wrong_crcs(self.chunk.data, self.chosen)


def batches_of(
    task: ReadTask, *, includes_cut_batch: bool, first_base_offset: int | None = None
) -> Generator[ChunkBatches, None, None]:
    """Yield the batches that belong to the slice of ``task``, chunk by chunk.

    With ``first_base_offset`` the batches from that offset on belong to it too, where the transport has them.

    Raises:
        CorruptData: bytes are no batch; all batches before them have been yielded.
        SparkJobError: as ``task.transport.chunks``.
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
