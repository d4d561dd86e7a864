"""Row ids: a header that says which row of which job a record is, so that consumers recognise a row that was written
twice.

Spark repeats tasks that fail, and whole micro-batches after a restart. Each attempt is a new producer for the brokers,
so they cannot see that the records are the same. The id shows it: it depends only on the query, the micro-batch, the
task's number in it and the row's number in the task. The header ``HEADER`` holds 37 bytes, integers big-endian:

======  =====  ============  ========================================================================================
offset  bytes  field
======  =====  ============  ========================================================================================
0       1      version       1
1       16     query_id      the streaming query's id, as its checkpoint keeps it; for other jobs an id of their own
17      8      batch_id      the micro-batch; -1 for a job that has none
25      4      task          the number of the task in the micro-batch
29      8      row           the number of the row in the task, from 0
======  =====  ============  ========================================================================================

``Deduplicator`` is for consumers. It needs no memory of single records: in one partition the rows of one task come in
their order, however often they come, and micro-batches come one after the other. So a record is new exactly if its
(batch_id, row) is above the highest seen for its (query_id, task) in this partition.

The query must guarantee two things: the repeated task has the same rows in the same order, and the topic keeps its
number of partitions. Compacted topics do not qualify: the first copy of a row may be gone.

Source: docs/spark-sink.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import attrs

from trio_broker.common.topic_partition import TopicPartition

HEADER: Final = "trio-broker-row"
"""The key of the header."""

VERSION: Final = 1

NO_BATCH: Final = -1
"""The batch id of a job that is no streaming query."""

_ROW_ID = struct.Struct(">B16sqiq")
_PREFIX = struct.Struct(">B16sqi")

ROW_ID_BYTES: Final = _ROW_ID.size


@attrs.frozen
class TaskId:
    """One task of one micro-batch of one query, the same for every attempt."""

    query_id: UUID
    batch_id: int
    task: int

    @property
    def prefix(self) -> bytes:
        """The beginning of the header's value in every record of the task."""
        return _PREFIX.pack(VERSION, self.query_id.bytes, self.batch_id, self.task)


@attrs.frozen
class RowId:
    """One row."""

    task_id: TaskId
    row: int

    def to_bytes(self) -> bytes:
        """Return the value of the header."""
        return self.task_id.prefix + self.row.to_bytes(8, "big")

    @classmethod
    def from_bytes(cls, value: bytes) -> RowId:
        """Read the value of the header.

        Raises:
            ValueError: these are not 37 bytes that begin with a known version.
        """
        if len(value) != ROW_ID_BYTES or value[0] != VERSION:
            raise ValueError(f"{len(value)} bytes are no row id of version {VERSION}: {value[:40].hex()}")
        _, query_id, batch_id, task, row = _ROW_ID.unpack(value)
        return cls(TaskId(UUID(bytes=query_id), batch_id, task), row)


def find_row_id(headers: Sequence[tuple[str, bytes | None]] | None) -> RowId | None:
    """Return the row id among the headers of a record, as Python's Kafka clients return them; None if it has none.

    The last one counts: a record that is read and written again still has the header of its first writing.

    Raises:
        ValueError: the header holds something else.
    """
    for key, value in reversed(headers or ()):
        if key == HEADER:
            return RowId.from_bytes(value or b"")
    return None


@attrs.define
class Deduplicator:
    """Distinguishes new records from repeated ones. One object for all partitions that a consumer reads, each from its
    start or from a stored position.

    ``highest`` is the whole state, to be stored with the consumer's offsets: an entry for each task number of each
    query and partition.
    """

    highest: dict[tuple[TopicPartition, UUID, int], tuple[int, int]] = attrs.field(factory=dict)

    def is_new(self, partition: TopicPartition, row_id: RowId) -> bool:
        """Return whether the row was not seen before in ``partition``; call it once for each record, in their order."""
        task_id = row_id.task_id
        place = (partition, task_id.query_id, task_id.task)
        position = (task_id.batch_id, row_id.row)
        seen = self.highest.get(place)
        if seen is not None and position <= seen:
            return False
        self.highest[place] = position
        return True
