"""A search over the partitions of a topic, in the order of time, within a budget.

The partitions are merged by the timestamps of their next records, at equal times by partition; towards older records
the order is the reverse in all of time, partition and offset. A search goes on turn by turn. A turn ends when as many
records were found as were asked for, or none are left; and before that when its time, the bytes it may read, or the
size of the answer are spent: its result then says how far the search came. Another turn goes on from there, and so does
another search, by the cursor.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from operator import itemgetter
from time import perf_counter
from typing import Any, TypeAlias

import attrs
import trio

from broker_admin.filters.record_filter import RecordFilter, Verdict
from broker_admin.messages.pace import run_in_slices
from broker_admin.messages.partition_scan import PartitionScan
from broker_admin.messages.query import ScanRange, make_cursor
from broker_admin.messages.rows import Decoders, MessageRow, RecordVariables, Show
from broker_admin.views.cluster.messages import MessagesView
from trio_broker.common.record_json import time_of

SEARCH_SECONDS = 2.0
"""A search in one turn takes about this long at the most: as long as one waits for an answer. The cursor goes on."""

MIN_TURN_RECORDS = 1000
"""A turn searches so many records however long they take, but for ``SEARCH_BYTES``: on a machine without a free CPU one
that ended by the clock alone would end before its first record. Where the machine is free they take some tenths of a
second."""

SEARCH_BYTES = 64 * 1024 * 1024
"""What a turn may read: about what two seconds are enough for, as records are small."""

ANSWER_BYTES = 8 * 1024 * 1024
"""Of all records in one answer: what a browser still shows without delay."""

MEMORY_BYTES = 16 * 1024 * 1024
"""What the pieces of all partitions may take together while a search runs."""

MIN_PIECE_BYTES = 32 * 1024
MAX_PIECE_BYTES = 1024 * 1024
"""Of one partition at a time: a fetch of a megabyte takes a millisecond or two from the page cache."""


RecordOrder: TypeAlias = tuple[int, int, int]
"""By timestamp, then partition, then offset."""


class SearchEnd(enum.Enum):
    """Why a search ended."""

    LIMIT = "limit"
    END = "end"
    TIME = "time"
    BYTES = "bytes"
    SIZE = "size"


@attrs.frozen
class UnsearchedPartition:
    """A partition that could not be searched, or not to its end."""

    partition: int
    error: str


@attrs.frozen
class SearchResult:
    """What a search found since its last result, and how far it came since its beginning.

    ``ended_by`` is None while a stream of results goes on. ``understood`` says what a filter that is no expression was
    taken for. ``left_records`` counts the offsets that are yet to be searched, of which compaction may have left fewer
    records, and ``left_bytes`` is about their size. ``failed_records`` had no value for the filter, the first of them
    because of ``first_failure``. ``reached_ms`` and ``reached_offset`` are of the last record that was looked at, the
    offset only if one partition was searched. ``next_cursor`` is None at the beginning of the log; at its end it leads
    to records that are yet to come.
    """

    records: tuple[MessageRow, ...]
    ended_by: SearchEnd | None
    understood: str
    searched_records: int
    searched_bytes: int
    left_records: int
    left_bytes: int
    seconds: float
    failed_records: int
    first_failure: str
    reached_ms: int | None
    reached_offset: int | None
    errors: tuple[UnsearchedPartition, ...]
    next_cursor: str | None


class MessageSearch:
    """One search under way. ``filter_`` None lets every record match; ``show`` makes what is found of a record.

    ``errors`` are the partitions that cannot be searched at all.
    """

    def __init__(
        self,
        ranges: list[ScanRange],
        *,
        forward: bool,
        limit: int,
        filter_: RecordFilter | None,
        decoders: Decoders,
        show: Show,
        errors: Mapping[int, str],
    ) -> None:
        piece_bytes = max(MIN_PIECE_BYTES, min(MAX_PIECE_BYTES, MEMORY_BYTES // max(1, len(ranges))))
        # Without a filter the newest records of each partition are enough, and few of them suffice.
        first_window = limit if filter_ is None else 2**62
        self.scans = [
            PartitionScan(each, forward=forward, piece_bytes=piece_bytes, first_window=first_window) for each in ranges
        ]
        self.forward = forward
        self.limit = limit
        self.filter = filter_
        self.decoders = decoders
        self.show = show
        self.errors = errors
        self.rows: list[tuple[RecordOrder, Any]] = []
        self.found_records = 0
        self.searched_records = 0
        self.seconds = 0.0
        self.ended_by: SearchEnd | None = None
        self._answer_bytes = 0
        self._reached: Any = None
        # Of the turn under way.
        self._ends_at = 0.0
        self._records_before_its_end = 0
        # Those that stand at a record, by its timestamp; and those that have to load before they do.
        self._heap: list[tuple[tuple[int, int], PartitionScan]] = []
        self._to_load = [scan for scan in self.scans if not scan.is_done]

    async def turn(
        self, view: MessagesView, topic: str, limiter: trio.CapacityLimiter, *, seconds: float | None = None
    ) -> None:
        """Search on, for ``seconds`` or as long as a search of one turn; ``limiter`` bounds the threads of all."""
        began = perf_counter()
        self._ends_at = began + (SEARCH_SECONDS if seconds is None else seconds)
        self._records_before_its_end = self.searched_records + MIN_TURN_RECORDS
        bytes_before_its_end = self.searched_bytes + SEARCH_BYTES
        self.ended_by = None
        while self.ended_by is None:
            if self._to_load and self.searched_bytes >= bytes_before_its_end:
                self.ended_by = SearchEnd.BYTES
                break
            loaded, self._to_load = self._to_load, []
            for scan in loaded:
                await scan.load(view, topic)
            await run_in_slices(self._walk(loaded), limiter)
        self.seconds += perf_counter() - began

    @property
    def searched_bytes(self) -> int:
        return sum(scan.fetched_bytes for scan in self.scans)

    def _is_over(self) -> bool:
        """Whether the turn has taken its time, and searched what it has to."""
        return self.searched_records >= self._records_before_its_end and perf_counter() >= self._ends_at

    def _walk(self, loaded: list[PartitionScan]) -> Iterator[None]:
        """Take records in order until a partition has to load or the turn has ended. Runs in a worker thread."""
        for scan in loaded:
            if scan.advance():
                self._heap.append((scan.order, scan))
            elif not scan.is_done:
                self._to_load.append(scan)
            yield
        heap = self._heap
        heapify(heap)
        while heap and not self._to_load:
            scan = heap[0][1]
            self._take(scan)
            if self._is_full():
                return
            if scan.advance():
                heapreplace(heap, (scan.order, scan))
            else:
                heappop(heap)
                if not scan.is_done:
                    self._to_load.append(scan)
            if self._is_over():
                break
            yield
        if not heap and not self._to_load:
            self.ended_by = SearchEnd.END
        elif self._is_over():
            self.ended_by = SearchEnd.TIME

    def _take(self, scan: PartitionScan) -> None:
        """Search the record at which ``scan`` stands."""
        record = scan.record
        variables = RecordVariables(record, scan.partition, self.decoders, scan.own_format)
        scan.taken()
        self.searched_records += 1
        self._reached = record
        if self.filter is None or self.filter.verdict(variables) is Verdict.MATCHES:
            shown = self.show(variables, scan.batch)
            self.rows.append(((record.timestamp, scan.partition, record.offset), shown.row))
            self.found_records += 1
            self._answer_bytes += shown.size_bytes

    def _is_full(self) -> bool:
        if self.found_records >= self.limit:
            self.ended_by = SearchEnd.LIMIT
        elif self._answer_bytes >= ANSWER_BYTES:
            self.ended_by = SearchEnd.SIZE
        return self.ended_by is not None

    def result(self, *, goes_on: bool = False) -> SearchResult:
        """What was found since the last result, after a turn; ``goes_on`` when another turn follows."""
        assert self.ended_by is not None
        rows, self.rows = self.rows, []
        reached = self._reached
        open_scans = [scan for scan in self.scans if self.forward or not scan.is_done]
        positions = {scan.partition: scan.position for scan in open_scans if scan.error is None}
        errors = {**self.errors, **{scan.partition: scan.error for scan in self.scans if scan.error is not None}}
        # A partition's own order need not be that of its producers' clocks, so that the merge alone may leave a newer
        # record behind an older one. One partition is shown in the order of its log.
        if len(self.scans) > 1:
            rows.sort(key=itemgetter(0), reverse=not self.forward)
        return SearchResult(
            records=tuple(row for _, row in rows),
            ended_by=None if goes_on else self.ended_by,
            understood="" if self.filter is None else self.filter.understood,
            searched_records=self.searched_records,
            searched_bytes=self.searched_bytes,
            left_records=sum(scan.left_offsets for scan in self.scans),
            left_bytes=int(sum(scan.left_offsets * scan.bytes_per_offset for scan in self.scans)),
            seconds=round(self.seconds, 3),
            failed_records=0 if self.filter is None else self.filter.failures,
            first_failure="" if self.filter is None else self.filter.first_failure,
            reached_ms=None if reached is None else time_of(reached),
            reached_offset=reached.offset if reached is not None and len(self.scans) == 1 else None,
            errors=tuple(UnsearchedPartition(partition, error) for partition, error in sorted(errors.items())),
            next_cursor=make_cursor(self.forward, positions) if positions else None,
        )
