"""The lag of a group: its committed offsets beside the ends of the logs, and the member that reads each partition.

Source: Kafka's ConsumerGroupCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trio_broker.client.errors import Refused
from trio_broker.client.group_offsets import CommittedOffset
from trio_broker.client.groups import GroupMember
from trio_broker.client.offsets import Found
from trio_broker.common.topic_partition import TopicPartition


@attrs.frozen
class PartitionLag:
    """One partition for which the group has a committed offset, an assigned member, or both.

    ``log_end_offset`` is None if its leader did not answer, and ``problem`` then says why. A committed offset behind
    the end of the log gives a negative lag: the topic was created again, or lost records.
    """

    partition: TopicPartition
    committed_offset: int | None
    log_end_offset: int | None
    member: GroupMember | None
    problem: str | None

    @property
    def lag_records(self) -> int | None:
        """The number of offsets between the commit and the end of the log; None if either of them is unknown."""
        if self.committed_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed_offset


def partitions_of(
    committed: Mapping[TopicPartition, CommittedOffset], members: Iterable[GroupMember]
) -> list[TopicPartition]:
    """Return every partition that a group has committed to or is assigned, in order."""
    assigned = {partition for member in members for partition in member.assigned or ()}
    return sorted(assigned | committed.keys())


def lags(
    committed: Mapping[TopicPartition, CommittedOffset],
    members: Iterable[GroupMember],
    ends: Mapping[TopicPartition, Found],
) -> list[PartitionLag]:
    """Return the lag of every partition of a group, in order; ``ends`` has the end of each one's log."""
    members = tuple(members)
    owners = {partition: member for member in members for partition in member.assigned or ()}
    return [
        _lag(partition, committed.get(partition), ends[partition], owners.get(partition))
        for partition in partitions_of(committed, members)
    ]


def _lag(
    partition: TopicPartition, committed: CommittedOffset | None, end: Found, member: GroupMember | None
) -> PartitionLag:
    return PartitionLag(
        partition=partition,
        committed_offset=None if committed is None else committed.offset,
        log_end_offset=None if isinstance(end, Refused) else end,
        member=member,
        problem=str(end) if isinstance(end, Refused) else None,
    )
