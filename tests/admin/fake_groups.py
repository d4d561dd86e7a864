"""Groups for ``FakeBroker``, five of different shape.

A healthy classic group, a consumer group that has fallen behind, one that is in the middle of a rebalance, a connect
group without offsets, and an empty one whose offsets are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupLag,
    GroupOffsets,
    GroupSnapshot,
    GroupType,
    MemberSnapshot,
    Rebalance,
)


@attrs.define
class FakeGroup:
    """One group with everything that a broker knows of it."""

    snapshot: GroupSnapshot
    partitions: Sequence[ConsumerLag] = ()
    rebalances: Sequence[Rebalance] = ()

    def offsets(self) -> GroupOffsets:
        return GroupOffsets.of(self.snapshot.group_id, self.partitions)

    def lag(self) -> GroupLag:
        offsets = self.offsets()
        return GroupLag(
            group=attrs.evolve(self.snapshot, members=()),
            last_rebalance_at_ms=self.rebalances[-1].started_at_ms if self.rebalances else None,
            partition_count=offsets.partition_count,
            partitions_without_lag=offsets.partitions_without_lag,
            lag_records=offsets.lag_records,
            lag_seconds=offsets.lag_seconds,
        )


def fake_group(group_id: str, members: Sequence[MemberSnapshot] = (), **changes: Any) -> FakeGroup:
    """A stable classic group of ``members``, the first of which leads it, but for ``changes``."""
    values: dict[str, Any] = {
        "type": GroupType.CLASSIC,
        "protocol_type": "consumer",
        "protocol": "range",
        "state": "Stable",
        "generation": 1,
        "leader": members[0].member_id if members else None,
        "member_count": len(members),
        "members": tuple(members),
    }
    return FakeGroup(GroupSnapshot(group_id=group_id, **(values | changes)))


def fake_member(
    client_id: str, number: int, assignment: Mapping[str, tuple[int, ...]] | None, **changes: Any
) -> MemberSnapshot:
    """A member as clients name them, by the client id and a UUID, but for ``changes``."""
    values: dict[str, Any] = {
        "member_id": f"{client_id}-{number:08x}-5f1c-4d0e-9b7a-0242ac120002",
        "group_instance_id": None,
        "client_id": client_id,
        "client_host": f"/10.0.0.{number}",
        "subscribed_topics": tuple(sorted(assignment or ())),
        "assignment": assignment,
    }
    return MemberSnapshot(**(values | changes))


def fake_partition(
    topic: str, partition: int, member: MemberSnapshot | None, end: int, lag: int | None, seconds: float | None = None
) -> ConsumerLag:
    """A partition that ends at ``end``; without ``lag`` nothing is committed there."""
    return ConsumerLag(
        topic=topic,
        partition=partition,
        member_id=member.member_id if member else None,
        committed_offset=None if lag is None else end - lag,
        log_end_offset=end,
        lag_records=lag,
        lag_seconds=seconds,
    )


def fake_rebalance(
    started_at_ms: int,
    duration_ms: int | None,
    generation: int,
    member_count: int,
    *causes: tuple[GroupEventKind, MemberSnapshot, str],
) -> Rebalance:
    """A rebalance by ``causes``: what happened to which member, and the reason that it gave."""
    events = [
        GroupEvent(
            kind=kind,
            at_ms=started_at_ms,
            generation=generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            reason=reason,
        )
        for kind, member, reason in causes
    ]
    return Rebalance(
        started_at_ms=started_at_ms,
        ended_at_ms=None if duration_ms is None else started_at_ms + duration_ms,
        duration_ms=duration_ms,
        generation=generation,
        member_count=member_count,
        causes=tuple(events),
    )


def fake_groups(now_ms: int) -> dict[str, FakeGroup]:
    """The five, as they are at ``now_ms``."""
    groups = [checkout(now_ms), clicks_to_warehouse(now_ms), fraud_scores(now_ms), connect_sinks(now_ms), nightly()]
    return {group.snapshot.group_id: group for group in groups}


def checkout(now_ms: int) -> FakeGroup:
    """Healthy: three members, one of which was replaced some minutes ago."""
    first = fake_member("checkout-a", 11, {"orders": (0,)})
    second = fake_member("checkout-b", 12, {"orders": (1,)})
    third = fake_member("checkout-c", 13, {"orders": (2,)}, group_instance_id="checkout-c")
    joined, again = GroupEventKind.MEMBER_JOINED, GroupEventKind.MEMBER_REJOINED
    reason = "group is already rebalancing"
    group = fake_group("checkout", (first, second, third), protocol="cooperative-sticky", generation=7)
    group.partitions = [
        fake_partition("orders", 0, first, 52_000, 0, 0.0),
        fake_partition("orders", 1, second, 52_097, 3, 0.041),
        fake_partition("orders", 2, third, 52_194, 0, 0.0),
    ]
    group.rebalances = [
        fake_rebalance(now_ms - 5_400_000, 3_012, 4, 2, (joined, first, ""), (joined, second, "")),
        fake_rebalance(
            now_ms - 2_700_000, 480, 5, 3,
            (joined, third, ""), (again, first, reason), (again, second, reason),
        ),
        fake_rebalance(
            now_ms - 900_000, 10_240, 6, 2,
            (GroupEventKind.MEMBER_TIMED_OUT, second, "no heartbeat for 45000 ms"),
        ),
        fake_rebalance(now_ms - 845_000, 95, 7, 3, (joined, second, "rebalance failed due to UnknownMemberId")),
    ]  # fmt: skip
    return group


def clicks_to_warehouse(now_ms: int) -> FakeGroup:
    """A consumer group that falls behind: one of two members reads five partitions of six."""
    first = fake_member("warehouse-loader", 21, {"clickstream": (0, 1, 2, 3, 4)}, epoch=12)
    second = fake_member("warehouse-loader", 22, {"clickstream": (5,)}, epoch=12)
    lags = [(18_204, 1_260.0), (17_050, 1_190.5), (903, 61.2), (12, 0.8), (0, 0.0), (0, 0.0)]
    group = fake_group(
        "clicks/to warehouse", (first, second), type=GroupType.CONSUMER, protocol="uniform", generation=12, leader=None
    )
    group.partitions = [
        fake_partition("clickstream", index, second if index == 5 else first, 184_000 + 97 * index, lag, seconds)
        for index, (lag, seconds) in enumerate(lags)
    ]
    gone = fake_member("warehouse-loader", 23, {})
    group.rebalances = [fake_rebalance(now_ms - 1_500_000, 1_904, 12, 2, (GroupEventKind.MEMBER_LEFT, gone, ""))]
    return group


def fraud_scores(now_ms: int) -> FakeGroup:
    """In the middle of a rebalance, caused by a fenced member; two partitions have no committed offset yet."""
    members = [fake_member(f"fraud-{letter}", 31 + index, {}) for index, letter in enumerate("abcdef")]
    group = fake_group("fraud-scores", members, state="PreparingRebalance", generation=31)
    group.partitions = [
        fake_partition("orders", 0, None, 52_000, 420, 19.0),
        fake_partition("orders", 1, members[0], 52_097, None),
        fake_partition("orders", 2, members[1], 52_194, None),
    ]
    causes = [
        (GroupEventKind.MEMBER_FENCED, members[0], "another instance took its place"),
        *((GroupEventKind.MEMBER_REJOINED, member, "") for member in members),
    ]
    group.rebalances = [fake_rebalance(now_ms - 2_000, None, 31, 6, *causes)]
    return group


def connect_sinks(now_ms: int) -> FakeGroup:
    """Workers of Kafka Connect, whose assignments only Connect can read."""
    workers = [fake_member(f"connect-{index}", 41 + index, None) for index in range(2)]
    group = fake_group("connect-sinks", workers, protocol_type="connect", protocol="sessioned", generation=3)
    group.rebalances = [fake_rebalance(now_ms - 7_000_000, 3_100, 3, 2, (GroupEventKind.MEMBER_JOINED, workers[1], ""))]
    return group


def nightly() -> FakeGroup:
    """A job that is not running: no members, offsets kept."""
    group = fake_group("nightly-report", state="Empty", protocol="", generation=90)
    group.partitions = [fake_partition("audit-log", 0, None, 912, 400, 31_000.0)]
    return group
