"""What is done to a group's offsets from outside, for the change log: they are set, or deleted, by no member.

Consumers that assign themselves their partitions commit without being members, too, with every poll. So a commit of no
member is a change only if it goes back, if it comes over the admin API, or if the group is one of consumers with
members, which have left: what moves its offsets then is a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_delete import OffsetDeleteRequest
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeAction, ChangeChannel, ChangedResource, MadeChange
from trio_broker.changes.change_log import MAX_VALUES
from trio_broker.config.entries import ValueChange
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets


class GroupWithProtocol(Protocol):
    """What this module needs of a group."""

    @property
    def protocol_type(self) -> str | None:
        """What its members said they are: ``consumer``; empty in a group that never had any."""
        ...


@attrs.frozen
class MovedOffsets:
    """Offsets that a request will move, before and after, by topic and partition."""

    action: ChangeAction
    values: Mapping[tuple[str, int], ValueChange]

    def made_change(self, group_id: str, response: Any) -> MadeChange | None:
        """The change that was made, of the partitions that ``response`` does not refuse; None if it refuses all."""
        values = tuple(
            self.values[topic.name, partition.partition_index]
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and (topic.name, partition.partition_index) in self.values
        )
        return MadeChange(self.action, ChangedResource.GROUP, group_id, values) if values else None


def moved_offsets(offsets: CommittedOffsets, group: GroupWithProtocol | None, request: object) -> MovedOffsets | None:
    """The offsets that ``request`` will move from outside; None for every other request."""
    if isinstance(request, OffsetCommitRequest) and not request.member_id:
        values = set_offsets(offsets, request, has_had_members=group is not None and bool(group.protocol_type))
        return MovedOffsets(ChangeAction.OFFSETS_RESET, values) if values else None
    if isinstance(request, OffsetDeleteRequest):
        return MovedOffsets(ChangeAction.OFFSETS_DELETED, deleted_offsets(offsets, request))
    return None


def set_offsets(
    offsets: CommittedOffsets, request: OffsetCommitRequest, *, has_had_members: bool
) -> dict[tuple[str, int], ValueChange]:
    """The offsets that ``request`` of no member will move; none if it is a consumer's own commit."""
    moved: dict[tuple[str, int], ValueChange] = {}
    goes_back = False
    for topic in request.topics:
        for partition in topic.partitions:
            index, new = partition.partition_index, partition.committed_offset
            committed = offsets.get(request.group_id, topic.name, index)
            old = None if committed is None else committed.offset
            if old != new:
                goes_back |= old is not None and new < old
                moved[topic.name, index] = offset_change(topic.name, index, old, new)
    is_of_admin = CALLER.get().change_origin.channel in (ChangeChannel.PAGE, ChangeChannel.HTTP)
    return moved if goes_back or has_had_members or is_of_admin else {}


def deleted_offsets(offsets: CommittedOffsets, request: OffsetDeleteRequest) -> dict[tuple[str, int], ValueChange]:
    """The offsets that ``request`` asks to delete."""
    return {
        (topic.name, partition.partition_index): offset_change(
            topic.name, partition.partition_index, committed.offset, None
        )
        for topic in request.topics
        for partition in topic.partitions
        if (committed := offsets.get(request.group_id, topic.name, partition.partition_index)) is not None
    }


def all_offsets(offsets: CommittedOffsets, group_id: str) -> Iterator[ValueChange]:
    """Every offset of a group that is to be deleted."""
    for topic in offsets.topics_of(group_id):
        for index in offsets.partitions_of(group_id, topic):
            if (committed := offsets.get(group_id, topic, index)) is not None:
                yield offset_change(topic, index, committed.offset, None)


def offset_change(topic: str, partition: int, before: int | None, after: int | None) -> ValueChange:
    old, new = (None if offset is None else str(offset) for offset in (before, after))
    return ValueChange(f"{topic}-{partition}", old, new)


def group_deletion(group_id: str, offsets: Iterable[ValueChange], count: int) -> MadeChange:
    """The deletion of a group with ``count`` offsets, of which the first are kept."""
    values = tuple(islice(offsets, MAX_VALUES))
    return MadeChange(ChangeAction.DELETED, ChangedResource.GROUP, group_id, values, count - len(values))
