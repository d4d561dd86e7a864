"""The range assignor: in each topic every member has consecutive partitions.

Members with the same subscription get the same indexes in topics with the same number of partitions, which is what
joins of topics by key need. It depends on nothing but the members' order, so it moves more partitions than the uniform
assignor when members join and leave; static members come first, in the order of their instance ids, and so mostly keep
theirs.

Source: Kafka's RangeAssignor.
"""

from __future__ import annotations

from trio_broker.coordinator.consumer.assignors.group_spec import GroupSpec, MemberSubscriptionSpec


def assign(spec: GroupSpec) -> dict[str, dict[bytes, frozenset[int]]]:
    """Divide each topic into a range for each subscriber; the first ones may be larger by one."""
    members = sorted(spec.members, key=_rank)
    assignment: dict[str, dict[bytes, frozenset[int]]] = {member.member_id: {} for member in members}
    for topic_id, partition_count in spec.partition_counts.items():
        subscribers = [member for member in members if topic_id in member.topic_ids]
        if not subscribers:
            continue
        smallest, larger = divmod(partition_count, len(subscribers))
        start = 0
        for place, member in enumerate(subscribers):
            end = start + smallest + (place < larger)
            if start < end:
                assignment[member.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assignment


def _rank(member: MemberSubscriptionSpec) -> tuple[bool, str]:
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id
