"""Which commits of no member are changes, and what a deletion takes."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.config.entries import ValueChange
from trio_broker.coordinator.offsets.offset_changes import group_deletion, moved_offsets


@attrs.frozen
class Committed:
    """The offset that a group has committed everywhere."""

    offset: int | None

    def get(self, group_id: str, topic: str, partition: int) -> Any:
        return None if self.offset is None else self


@attrs.frozen
class Group:
    protocol_type: str | None


def commit(offset: int, member_id: str = "") -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(2)
    ]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    return OffsetCommitRequest(group_id="g", member_id=member_id, topics=topics)


@pytest.mark.parametrize(
    ("before", "after", "member_id", "group", "channel", "is_change"),
    [
        (5, 9, "", None, ChangeChannel.KAFKA, False),
        (5, 9, "", Group(""), ChangeChannel.KAFKA, False),
        (None, 0, "", None, ChangeChannel.KAFKA, False),
        (5, 4, "", None, ChangeChannel.KAFKA, True),
        (5, 9, "", Group("consumer"), ChangeChannel.KAFKA, True),
        (5, 9, "", None, ChangeChannel.PAGE, True),
        (5, 5, "", Group("consumer"), ChangeChannel.PAGE, False),
        (5, 4, "member-1", Group("consumer"), ChangeChannel.KAFKA, False),
    ],
)
async def test_a_commit_is_a_change_if_a_tool_or_a_step_back_made_it(
    before: int | None, after: int, member_id: str, group: Group | None, channel: ChangeChannel, is_change: bool
) -> None:
    CALLER.set(ChangeOrigin(channel))
    offsets: Any = Committed(before)
    assert (moved_offsets(offsets, group, commit(after, member_id)) is not None) == is_change


async def test_partitions_that_were_refused_are_not_part_of_the_change() -> None:
    offsets: Any = Committed(5)
    CALLER.set(ChangeOrigin(ChangeChannel.KAFKA))
    moved = moved_offsets(offsets, None, commit(4))
    assert moved is not None
    codes = (ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE)
    partitions = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    topic = OffsetCommitResponseTopic(name="orders", partitions=partitions)
    made = moved.made_change("g", OffsetCommitResponse(topics=[topic]))
    assert made is not None
    assert made.values == (ValueChange("orders-0", "5", "4"),)
    topic.partitions[0].error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert moved.made_change("g", OffsetCommitResponse(topics=[topic])) is None


def test_of_a_deleted_group_with_many_offsets_the_first_are_kept() -> None:
    values = [ValueChange(f"t-{number}", "1", None) for number in range(150)]
    made = group_deletion("g", iter(values), 150)
    assert (len(made.values), made.further_values) == (100, 50)
