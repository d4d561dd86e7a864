"""What an assignor takes and returns.

Source: Kafka's GroupSpec and MemberSubscriptionAndAssignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from trio_broker.coordinator.consumer.member import Target


@attrs.frozen(kw_only=True)
class MemberSubscriptionSpec:
    """One member: the topics it is subscribed to, and its present target, which may have topics that it left."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[bytes]
    target: Target


@attrs.frozen(kw_only=True)
class GroupSpec:
    """All members, and the number of partitions of every topic that any of them is subscribed to.

    Members and topics are in a deterministic order, so that equal groups get equal assignments.
    """

    members: tuple[MemberSubscriptionSpec, ...]
    partition_counts: Mapping[bytes, int]

    @property
    def is_homogeneous(self) -> bool:
        """Whether all are subscribed to the same topics."""
        return len({member.topic_ids for member in self.members}) <= 1


Assignor = Callable[[GroupSpec], dict[str, dict[bytes, frozenset[int]]]]
"""Returns the partitions of each member by topic. Every partition of a topic with subscribers is assigned to one."""
