"""Where a log without a broker ends, and what is damage in its middle.

Only the last segment has an end to be found; what is wrong in another one is in the middle of the log. In the last one
a broker's start would cut whatever is wrong and all behind it. For a reader of a backup that would make records vanish
in silence which were acknowledged and are still there. So the log ends where something is wrong only if

* the broker did not stop cleanly, and all below the recovery point, which was synced, is there; and
* it is a torn tail: a batch that the end of the file cuts, or zeros, and no batch behind; or what is wrong lies behind
  the high watermark, which no consumer has seen.

All else stays in the log, to be met by whoever reads it. The batches behind it are looked for, so that the log's end
is known, and readers that may skip damage find them even if no index leads there: a broker that rebuilds an index ends
it before damage.

Source: Kafka's LogSegment.recover for torn tails; docs/formats/checkpoints.md.
"""

from __future__ import annotations

import logging

import attrs

from trio_broker.spark.files.manifest import IndexEntry
from trio_broker.spark.files.offline_batches import ReadBatches, find_batch, read_batches
from trio_broker.spark.files.segment_files import OpenSegment, start_position

log = logging.getLogger(__name__)


@attrs.frozen
class Checkpoints:
    """What a data directory's checkpoints say of one partition; None where they say nothing.

    ``recovery_point`` is the offset below which everything was synced; ``was_clean`` makes it count for everything.
    """

    was_clean: bool = False
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None


@attrs.frozen
class SegmentEnd:
    """Where the valid part of the last segment ends, and why not with the file, if so.

    ``behind_damage`` are the first batches behind what is damaged before that.
    """

    position: int
    next_offset: int
    problem: str | None = None
    behind_damage: tuple[IndexEntry, ...] = ()


@attrs.frozen
class Stop:
    """Where a walk over batches came to an end; ``problem`` says why it was not that of the file."""

    position: int
    next_offset: int
    problem: str | None = None
    may_be_torn: bool = False


def find_end(file: OpenSegment, known: Checkpoints) -> SegmentEnd:
    """Walk to the end of the last segment, as far as nobody knows that it is good; see the head of this file.

    After anything but a clean stop checksums are compared.
    """
    recovery_point = known.recovery_point or 0
    # An index knows a place near the end; what is before that was synced.
    start = start_position(file, 2**62 if known.was_clean else recovery_point, ())
    next_offset = file.segment.base_offset
    behind: list[IndexEntry] = []
    while True:
        stop = walk(file, start, next_offset, check_sums=not known.was_clean)
        if stop.problem is None:
            return SegmentEnd(stop.position, stop.next_offset, None, tuple(behind))
        found = find_batch(file, stop.position + 1, stop.next_offset)
        if is_end(stop, known, is_last=found is None):
            if stop.next_offset < (known.high_watermark or 0):
                log.warning(
                    "%s: torn at byte %d, offset %d, though the high watermark was %d",
                    file.path,
                    stop.position,
                    stop.next_offset,
                    known.high_watermark,
                )
            return SegmentEnd(stop.position, stop.next_offset, stop.problem, tuple(behind))
        if found is None:
            # Nobody knows how many offsets the rest has; one is enough to be met by a reader.
            least = max(stop.next_offset + 1, recovery_point, known.high_watermark or 0)
            return SegmentEnd(file.segment.size_bytes, least, None, tuple(behind))
        behind.append(found)
        start, next_offset = found.position, stop.next_offset


def is_end(stop: Stop, known: Checkpoints, *, is_last: bool) -> bool:
    """Return whether the log ends with what is wrong there; ``is_last`` tells that no batch is behind it."""
    if known.was_clean or stop.next_offset < (known.recovery_point or 0):
        return False
    return (stop.may_be_torn and is_last) or stop.next_offset >= (known.high_watermark or 0)


def walk(file: OpenSegment, position: int, next_offset: int, *, check_sums: bool) -> Stop:
    """Go from batch to batch, beginning at ``position``, until something is wrong or the file ends."""
    size = file.segment.size_bytes
    for read in read_batches(file, position):
        table = read.table
        for row in range(len(table)):
            problem = _problem(read, row, next_offset, check_sum=check_sums)
            if problem is not None:
                return Stop(position, next_offset, problem)
            position = read.position + int(table.positions[row] + table.sizes[row])
            next_offset = int(table.last_offsets[row]) + 1
        if table.damage is not None:
            return Stop(position, next_offset, table.damage, may_be_torn=_is_zeros(file, position))
    if position == size:
        return Stop(position, next_offset)
    return Stop(position, next_offset, f"{size - position} bytes are no whole batch", may_be_torn=True)


def _problem(read: ReadBatches, row: int, next_offset: int, *, check_sum: bool) -> str | None:
    """Return why the batch in this row of the table cannot be the next one, None when it can."""
    base_offset = int(read.table.base_offsets[row])
    if base_offset < next_offset:
        return f"a batch at offset {base_offset} behind offset {next_offset - 1}"
    if check_sum and not read.has_right_checksum(row):
        return f"a batch at offset {base_offset} with a wrong checksum"
    return None


def _is_zeros(file: OpenSegment, position: int) -> bool:
    """Return whether there is nothing but zeros from ``position`` on: what a file system leaves that lost power."""
    size = file.segment.size_bytes
    buffer = bytearray(1 << 20)
    while position < size:
        view = memoryview(buffer)[: min(len(buffer), size - position)]
        count = file.read_into(view, position)
        if not count:
            break
        if any(view[:count]):
            return False
        position += count
    return True
