"""Headers of batches by their offsets, over all segments of a log: as few looks into the files as the indexes allow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from kafka_wire.records.batch import BatchHeader
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.storage.batch_scan import LocatedHeader
from trio_broker.storage.log_reader import segments_from
from trio_broker.storage.segment import Segment


def header_at(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds ``offset``, or of the next one behind it; None behind the last.

    Raises:
        CorruptRecordBatch: that batch is damaged.
    """
    if not segments:
        return None
    for segment in segments_from(segments, offset):
        if segment.size and (span := segment.find(offset)) is not None:
            located = next(segment.headers(span.position), None)
            return None if located is None else located.header
    return None


def good_headers(segment: Segment, position: int = 0) -> Iterator[LocatedHeader]:
    """Walk over the good batches of a segment from ``position`` on. What is damaged is left out."""
    with contextlib.suppress(CorruptRecordBatch):
        yield from segment.headers(position)
