"""The offset of a time in a log without a broker.

A time index holds the highest timestamps of a segment's batches, so that whole segments are skipped, and says where in
the right one to begin. From there headers are read, and the records of the first batch that may hold the time. Behind
the recovery point of a broker that did not stop cleanly an index may lack its last entries: all headers are read there.

Source: Kafka's UnifiedLog.fetchOffsetByTimestamp; docs/formats/indexes.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch, read_batch_header
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.files.manifest import LogSegment, PartitionLog
from trio_broker.spark.files.segment_files import open_file, start_position
from trio_broker.spark.files.transport import SegmentReader
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.index_file import MAX_INDEX_BYTES
from trio_broker.storage.time_index import TimeIndex


def offset_for_time(
    log: PartitionLog, paths: Mapping[int, Path], time_ms: int, end_offset: int, *, indexed_up_to: int
) -> int | None:
    """Return the first record below ``end_offset`` that is at least as young as ``time_ms``, None where none is.

    Segments that end at ``indexed_up_to`` or before have complete time indexes.

    Raises:
        CorruptData: a batch that may hold the time, or one before it, is damaged.
        OSError: a file cannot be read.
    """
    for segment in log.segments_between(log.log_start_offset, end_offset):
        path, start_offset = paths[segment.base_offset], log.log_start_offset
        index = _time_index(path, segment) if segment.next_offset <= indexed_up_to else None
        if index is not None:
            if index.last_entry.timestamp_ms < time_ms:
                continue
            start_offset = min(max(start_offset, index.lookup(time_ms).offset), end_offset)
        with open_file(segment, path) as file:
            wanted = OffsetRange(log.partition, start_offset, end_offset)
            for chunk in SegmentReader(file, log.partition).chunks(wanted, start_position(file, start_offset, ())):
                for row in (chunk.table.max_timestamps >= time_ms).nonzero()[0].tolist():
                    found = _first_record(chunk, row, time_ms, wanted)
                    if found is not None:
                        return found
    return None


def _time_index(log_path: Path, segment: LogSegment) -> TimeIndex | None:
    """Return a segment's time index, None where there is no good one, or an empty one."""
    name = log_path.name.replace(file_names.LOG_SUFFIX, file_names.TIME_INDEX_SUFFIX)
    try:
        index = TimeIndex.load(RealDisk(), log_path.with_name(name), segment.base_offset, MAX_INDEX_BYTES)
    except CorruptIndex:
        return None
    return index if len(index) else None


def _first_record(chunk: Chunk, row: int, time_ms: int, offsets: OffsetRange) -> int | None:
    start = int(chunk.table.positions[row])
    data = chunk.data[start : start + int(chunk.table.sizes[row])]
    try:
        for record in RecordBatch(read_batch_header(data), data).records():
            if record.timestamp >= time_ms and offsets.start_offset <= record.offset < offsets.end_offset:
                return record.offset
    except KafkaError as error:
        raise CorruptData(offsets.partition, int(chunk.table.base_offsets[row]), str(error)) from error
    return None
