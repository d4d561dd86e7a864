"""Large requests about a group are answered in parts, and their clients do not notice."""

from __future__ import annotations

import pytest

from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from trio_broker.coordinator.request_parts import MAX_ITEMS_PER_PART, add_answer, parts_of


def commit(sizes: dict[str, int]) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
                for index in range(count)
            ],
        )
        for name, count in sizes.items()
    ]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=3, member_id="m", topics=topics)


def answered(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@pytest.mark.parametrize(
    "request_",
    [
        commit({"a": 1}),
        commit({"a": MAX_ITEMS_PER_PART}),
        commit(dict.fromkeys(map(str, range(MAX_ITEMS_PER_PART)), 1)),
        LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")] * MAX_ITEMS_PER_PART),
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"),
    ],
)
def test_small_requests_are_not_divided(request_):
    assert parts_of(request_) is None


@pytest.mark.parametrize(
    "sizes",
    [
        {"a": MAX_ITEMS_PER_PART + 1},
        {"a": 3 * MAX_ITEMS_PER_PART},
        {"a": 10, "b": 1200, "c": 1, "d": 499},
        dict.fromkeys(map(str, range(1201)), 1),
        dict.fromkeys(map(str, range(1201)), 0),
        {"a": 500, "b": 500, "c": 1},
    ],
)
def test_a_commit_is_divided_between_partitions_and_answered_as_a_whole(sizes: dict[str, int]):
    request = commit(sizes)
    parts = list(parts_of(request) or ())
    assert len(parts) > 1
    assert all(0 < sum(len(topic.partitions) for topic in part.topics) <= MAX_ITEMS_PER_PART for part in parts) or not (
        sum(sizes.values())
    )
    assert all(len(part.topics) <= MAX_ITEMS_PER_PART for part in parts)
    assert {(part.group_id, part.member_id, part.generation_id_or_member_epoch) for part in parts} == {("g", "m", 3)}
    whole, *others = map(answered, parts)
    for other in others:
        add_answer(whole, other)
    assert whole == answered(request)


def test_members_leave_in_parts_in_their_order():
    members = [MemberIdentity(member_id=str(number)) for number in range(2 * MAX_ITEMS_PER_PART + 1)]
    parts = list(parts_of(LeaveGroupRequest(group_id="g", members=members)) or ())
    assert [len(part.members) for part in parts] == [MAX_ITEMS_PER_PART, MAX_ITEMS_PER_PART, 1]
    whole, *others = (
        LeaveGroupResponse(
            members=[MemberResponse(member_id=each.member_id, group_instance_id=None) for each in part.members]
        )
        for part in parts
    )
    for other in others:
        add_answer(whole, other)
    assert [member.member_id for member in whole.members] == [member.member_id for member in members]
