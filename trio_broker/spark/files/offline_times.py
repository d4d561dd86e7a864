"""Which offset a time stands for in a log without a broker.

A time index says how young the batches of a segment are at most, so that whole segments are passed over, and where in
the right one to begin. From there headers are read, and the records of the first batch that may hold it. Where an index
cannot be relied on, behind the recovery point of a broker that did not stop properly, all headers are.

Source: Kafka's UnifiedLog.fetchOffsetByTimestamp; docs/formats/indexes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch, read_batch_header
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.files.manifest import LogSegment, PartitionLog
from trio_broker.spark.files.offline_batches import open_whole, read_all_batches
from trio_broker.spark.files.segment_files import OpenSegment, start_position
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.time_index import TimeIndex

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable

MAX_INDEX_BYTES: Final = 2**31 - 1
"""An index of any size is read."""


def offset_for_time(
    log: PartitionLog, paths: Mapping[int, Path], time_ms: int, end_offset: int, *, indexed_up_to: int
) -> int | None:
    """Return the first record below ``end_offset`` that is at least as young as ``time_ms``, None where none is.

    Segments that end at ``indexed_up_to`` or before have time indexes to rely on.

    Raises:
        CorruptData: the records of a batch cannot be read, or what comes before it is none.
        OSError: a file cannot be read.
    """
    for segment in log.segments_between(log.log_start_offset, end_offset):
        index = None
        if segment.next_offset <= indexed_up_to:
            index = _time_index(paths[segment.base_offset], segment)
            if index is not None and index.last_entry.timestamp_ms < time_ms:
                continue
        with open_whole(segment.base_offset, paths[segment.base_offset]) as file:
            file.segment = segment
            from_offset = log.log_start_offset
            if index is not None:
                from_offset = max(from_offset, index.lookup(time_ms).offset)
            found = _search(file, log, time_ms, from_offset)
        if found is not None:
            return found if found < end_offset else None
    return None


def _time_index(log_path: Path, segment: LogSegment) -> TimeIndex | None:
    """Return a segment's time index, None where there is none or it says nothing."""
    name = log_path.name.replace(file_names.LOG_SUFFIX, file_names.TIME_INDEX_SUFFIX)
    try:
        index = TimeIndex.load(log_path.with_name(name), segment.base_offset, MAX_INDEX_BYTES)
    except CorruptIndex:
        return None
    return index if len(index) else None


def _search(file: OpenSegment, log: PartitionLog, time_ms: int, from_offset: int) -> int | None:
    position = start_position(file, from_offset, ())
    for read in read_all_batches(file, position, log.partition):
        table = read.table
        young = (table.max_timestamps >= time_ms) & (table.last_offsets >= log.log_start_offset)
        for row in young.nonzero()[0].tolist():
            found = _first_record(log, read.view, table, row, time_ms)
            if found is not None:
                return found
    return None


def _first_record(log: PartitionLog, view: memoryview, table: BatchTable, row: int, time_ms: int) -> int | None:
    start = int(table.positions[row])
    data = view[start : start + int(table.sizes[row])]
    try:
        for record in RecordBatch(read_batch_header(data), data).records():
            if record.timestamp >= time_ms and record.offset >= log.log_start_offset:
                return record.offset
    except KafkaError as error:
        raise CorruptData(log.partition, int(table.base_offsets[row]), str(error)) from error
    return None
