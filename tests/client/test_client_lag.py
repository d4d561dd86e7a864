"""How far a group is behind."""

from __future__ import annotations

from trio_broker.client.errors import Refused
from trio_broker.client.group_offsets import CommittedOffset
from trio_broker.client.groups import GroupMember
from trio_broker.client.lag import lags, partitions_of
from trio_broker.common.topic_partition import TopicPartition

A0, A1, A2, A3 = (TopicPartition("a", index) for index in range(4))


def member(name: str, *assigned: TopicPartition, is_consumer: bool = True) -> GroupMember:
    return GroupMember(
        member_id=name,
        instance_id=None,
        client_id="app",
        host="/h",
        subscribed_topics=None,
        subscribed_regex=None,
        assigned=assigned if is_consumer else None,
        target=None,
        epoch=None,
        is_classic=True,
    )


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "")


def test_what_is_committed_and_what_is_assigned_is_listed_once_each():
    members = [member("m", A0, A1), member("n", is_consumer=False)]
    assert partitions_of({A1: committed(1), A2: committed(2)}, members) == [A0, A1, A2]


def test_the_lag_is_the_end_of_the_log_less_the_committed_offset():
    first, second = member("m", A0, A1), member("n", is_consumer=False)
    found = lags(
        {A0: committed(4), A2: committed(9), A3: committed(1)},
        [first, second],
        {A0: 10, A1: 10, A2: 5, A3: Refused("partition a-3", 5)},
    )
    assert [(each.partition, each.committed_offset, each.log_end_offset, each.lag_records) for each in found] == [
        (A0, 4, 10, 6),
        (A1, None, 10, None),
        (A2, 9, 5, -4),
        (A3, 1, None, None),
    ]
    assert [each.member for each in found] == [first, first, None, None]
    assert [each.problem is None for each in found] == [True, True, True, False]
