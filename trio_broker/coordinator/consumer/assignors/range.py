"""The range assignor: in each topic every member has partitions that stand side by side.

Members with the same subscription get the same indexes in topics with the same number of partitions, which is what
joining topics by key needs. It looks at nothing but the members' order, so it moves more partitions than the uniform
assignor when members come and go; static members come first, in the order of their instance ids, and so mostly keep
theirs.

Source: Kafka's RangeAssignor.
"""

from __future__ import annotations

from trio_broker.coordinator.consumer.assignors.group_spec import GroupSpec, MemberSubscriptionSpec


def assign(spec: GroupSpec) -> dict[str, dict[bytes, frozenset[int]]]:
    """Cut each topic into ranges, as many as it has subscribers; the first ones are larger by one if need be."""
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
