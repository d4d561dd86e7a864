"""The records of a broker: read in batches, and appended."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from trio_broker.common.record_json import StoredRecord


@attrs.frozen
class ReadablePartition:
    """What can be read of a partition: the offsets from ``log_start_offset`` up to ``end_offset``, exclusive.

    Of one that cannot be read ``error`` says why, and both offsets are 0.
    """

    partition: int
    log_start_offset: int
    end_offset: int
    size_bytes: int
    error: str | None = None


class BatchOutcome(enum.Enum):
    """What has become of a batch that was written in a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    """read_committed consumers never see it."""
    OPEN = "open"
    """Its transaction is open, so read_committed consumers do not see it yet."""


@attrs.frozen
class BatchInfo:
    """What a batch says of itself. ``record_count`` counts those that compaction has left.

    ``producer_id`` is None without an idempotent producer, and then epoch and sequence are too. ``timestamp_type`` is
    ``create_time`` or ``log_append_time``. ``outcome`` is None for a batch that is in no transaction, and for a marker.
    """

    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    codec: str
    timestamp_type: str
    leader_epoch: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    transactional: bool
    control: bool
    outcome: BatchOutcome | None = None


@attrs.frozen
class OwnFormat:
    """Key and value of a record in one of the broker's own formats, as what ``json`` can write."""

    key: Any
    value: Any


@attrs.frozen
class FetchedLogBatch:
    """One batch. ``records`` inflates it and walks over it, ``own_format`` reads what only the broker writes, None
    where clients write.

    Both run in worker threads. ``records`` raises ``UnreadableBatch``.
    """

    info: BatchInfo
    records: Callable[[], Iterator[StoredRecord]]
    own_format: Callable[[StoredRecord], OwnFormat | None] | None


class UnreadableBatch(Exception):
    """A batch breaks its format, or would take too much memory when it is inflated."""


@attrs.frozen
class PartitionBatches:
    """What was fetched from one partition: whole batches, of which the first may begin before what was asked for.

    ``batches`` reads the file; it runs in a worker thread. ``error`` says why nothing could be read.
    """

    partition: int
    size_bytes: int
    end_offset: int
    batches: Callable[[], Iterator[FetchedLogBatch]]
    error: str | None = None


@attrs.frozen
class NewMessage:
    """A record to append. Without a ``partition`` its key chooses one, or chance; ``timestamp_ms`` None means now."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@attrs.frozen
class AppendedMessage:
    """Where a record was appended; or, with ``error``, why it was not."""

    partition: int
    offset: int | None
    error: str | None = None


class MessagesView(Protocol):
    """The records of a broker, as the admin app sees them."""

    def contents_enabled(self) -> bool:
        """Whether keys and values may be shown, and records appended, here (``admin.messages.enabled``)."""
        ...

    async def readable_partitions(self, topic: str) -> Sequence[ReadablePartition] | None:
        """The partitions of a topic, by number; None if there is no such topic."""
        ...

    def takes_records(self, topic: str) -> bool:
        """Whether records can be appended to a topic: it is there, and none of the broker's own."""
        ...

    async def offsets_at(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> Mapping[int, int]:
        """The first offset of each partition whose record is at least as young as the time, or the partition's end."""
        ...

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_bytes: int, max_wait_seconds: float = 0.0
    ) -> Sequence[PartitionBatches]:
        """Fetch from each partition's position on, as a consumer does that reads uncommitted.

        ``max_bytes`` bounds all of it together, but for the first batch, which comes whole. With ``max_wait_seconds``
        it waits until there is something.
        """
        ...

    async def append(
        self, topic: str, messages: Sequence[NewMessage], *, dry_run: bool = False
    ) -> Sequence[AppendedMessage] | None:
        """Append records as a producer with acks=all does, one result for each; None if there is no such topic."""
        ...
