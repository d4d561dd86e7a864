"""Changes of groups: their offsets reset or deleted, static members removed, the group deleted.

Every change may be a dry run, which is refused for the same reasons and changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs


class ResetTarget(enum.Enum):
    """Where a reset puts the offsets; those that need a value have it in the attribute of ``OffsetReset`` named so."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    """The committed offset, the end of the log without one: nothing moves, what is not committed yet is."""
    OFFSET = "offset"
    SHIFT_BY = "shift_by"
    TIME = "time"
    DURATION = "duration"
    GROUP = "group"
    FILE = "file"


@attrs.frozen(kw_only=True)
class ResetScope:
    """A topic of a reset, or those of its ``partitions`` that are named."""

    topic: str
    partitions: tuple[int, ...] | None = None


@attrs.frozen(kw_only=True)
class OffsetReset:
    """What a reset is to do. Without ``topics`` it is about all partitions that the group has committed.

    ``time`` and ``duration`` are of ISO 8601: the first record at or after the time (UTC without a zone), or of the
    last so long. ``group`` is another group, whose offsets are taken; without ``topics`` all that it has. ``file`` has
    lines ``topic,partition,offset``, as ``kafka-consumer-groups.sh --export`` writes them, and names the partitions.
    """

    target: ResetTarget
    topics: tuple[ResetScope, ...] = ()
    offset: int | None = None
    shift_by: int | None = None
    time: str | None = None
    duration: str | None = None
    group: str | None = None
    file: str | None = None


@attrs.frozen(kw_only=True)
class PartitionReset:
    """The offset of one partition before and after a reset.

    ``skipped_records`` and ``repeated_records`` count offsets of the log that the group passes over or reads again;
    None if nothing was committed. ``remark`` says why the new offset is not the one asked for. ``error`` is the name of
    Kafka's error code where it could not be set.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int
    skipped_records: int | None
    repeated_records: int | None
    log_start_offset: int
    log_end_offset: int
    remark: str | None
    error: str | None = None


@attrs.frozen(kw_only=True)
class ResetOffsets:
    """A reset, made or with ``dry_run`` planned; the counts are sums over ``partitions``.

    ``creates_group`` says that there was no such group before.
    """

    dry_run: bool
    group_id: str
    creates_group: bool
    skipped_records: int
    repeated_records: int
    partitions: tuple[PartitionReset, ...]


@attrs.frozen(kw_only=True)
class DeletedGroup:
    """A group that was deleted, or with ``dry_run`` would be, and how many offsets it had committed."""

    dry_run: bool
    group_id: str
    committed_offsets: int


@attrs.frozen(kw_only=True)
class DeletedOffset:
    """A committed offset that was, or would be, deleted; ``error`` is the name of Kafka's error code if it was not."""

    topic: str
    partition: int
    committed_offset: int
    error: str | None = None


@attrs.frozen(kw_only=True)
class DeletedOffsets:
    """Committed offsets of a group that were deleted, or with ``dry_run`` would be."""

    dry_run: bool
    group_id: str
    partitions: tuple[DeletedOffset, ...]


@attrs.frozen(kw_only=True)
class RemovedMember:
    """A static member that was removed, or with ``dry_run`` would be. Its partitions go to the other members."""

    dry_run: bool
    group_id: str
    group_instance_id: str
    member_id: str
    client_id: str
    client_host: str
    partition_count: int


class GroupRefused(Exception):
    """A change of a group is refused, and nothing was changed.

    ``error`` is the name of Kafka's error code, ``reason`` one sentence that says what to do where that is known.
    ``field`` is the path to the value of the request that is at fault, if one is.
    """

    def __init__(self, error: str, reason: str, field: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.field = field


class GroupChangesView(Protocol):
    """The changes of a broker's groups that the admin app can make."""

    async def reset_offsets(self, group_id: str, reset: OffsetReset, *, dry_run: bool) -> ResetOffsets:
        """Set the offsets from which a group without members continues; a group that does not exist is created.

        Raises:
            GroupRefused: as it says.
        """
        ...

    async def delete(self, group_id: str, *, dry_run: bool) -> DeletedGroup:
        """Delete a group without members, with its offsets.

        Raises:
            GroupRefused: as it says.
        """
        ...

    async def delete_offsets(self, group_id: str, scopes: Sequence[ResetScope], *, dry_run: bool) -> DeletedOffsets:
        """Delete what a group has committed in ``scopes``, everything if there are none.

        Raises:
            GroupRefused: as it says; what members are subscribed to is refused by partition.
        """
        ...

    async def remove_static_member(
        self, group_id: str, group_instance_id: str, *, dry_run: bool, changed_by: str
    ) -> RemovedMember:
        """Remove the member with a group instance id; the group rebalances, because of ``changed_by``.

        Raises:
            GroupRefused: as it says.
        """
        ...
