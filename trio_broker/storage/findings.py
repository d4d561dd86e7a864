"""What can be found wrong in a data directory, and how bad each kind is.

Source: docs/commands.md, fsck.
"""

from __future__ import annotations

import enum
from pathlib import PurePath

import attrs

from trio_broker.common.topic_partition import TopicPartition


class FindingKind(enum.Enum):
    """What is damaged. The text stands in reports and in JSON."""

    BATCH = "batch"
    """A record batch: checksum, length, offsets, leader epoch, count, codec or records."""
    LOST_BATCHES = "lost-batches"
    """Offsets that no batch has, where compaction never was; or a log that ends before what is known to be durable."""
    RECORD = "record"
    """A record that a broker wrote for itself and that cannot be decoded; its batch is whole."""
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    SNAPSHOT = "producer-snapshot"
    LEADER_EPOCHS = "leader-epochs"
    CHECKPOINT = "checkpoint"
    """A checkpoint that the broker can do without: recovery points, high watermarks, the cleaner's."""
    LOG_START_CHECKPOINT = "log-start-checkpoint"
    """Where a log begins is written down nowhere else."""
    IDENTITY = "identity"
    """``meta.properties``, ``partition.metadata`` or ``quorum-state``: whose directory or log it is."""

    @property
    def is_derived(self) -> bool:
        """Whether what is damaged can be made anew from the logs, without loss."""
        return self in _DERIVED


_DERIVED = frozenset(
    {
        FindingKind.OFFSET_INDEX,
        FindingKind.TIME_INDEX,
        FindingKind.TRANSACTION_INDEX,
        FindingKind.SNAPSHOT,
        FindingKind.LEADER_EPOCHS,
        FindingKind.CHECKPOINT,
    }
)


@attrs.frozen
class StorageFinding:
    """One damage: in which file, and, of a log, from which byte and offset on."""

    kind: FindingKind
    path: PurePath
    detail: str
    topic_partition: TopicPartition | None = None
    position: int | None = None
    offset: int | None = None
