"""Groups of a broker that is not there: five of different shape, for ``FakeBrokerView``.

A healthy classic group, a consumer group that has fallen behind, one that is in the middle of a rebalance, a connect
group without offsets, and an empty one whose offsets are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from broker_admin.group_detail import max_known, sum_known
from broker_admin.view import (
    CauseKind,
    GroupInfo,
    GroupOffsets,
    GroupSummary,
    GroupType,
    MemberInfo,
    PartitionOffsets,
    RebalanceCause,
    RebalanceInfo,
)


@attrs.define
class FakeGroup:
    """One group with everything that a broker knows of it."""

    info: GroupInfo
    partitions: list[PartitionOffsets] = attrs.field(factory=list)
    rebalances: list[RebalanceInfo] = attrs.field(factory=list)

    def offsets(self) -> GroupOffsets:
        return GroupOffsets(
            group_id=self.info.group_id,
            lag_records=sum_known(each.lag_records for each in self.partitions),
            lag_seconds=max_known(each.lag_seconds for each in self.partitions),
            partition_count=len(self.partitions),
            partitions_without_lag=sum(each.lag_records is None for each in self.partitions),
            partitions=tuple(self.partitions),
        )

    def summary(self) -> GroupSummary:
        offsets, last = self.offsets(), self.rebalances[-1] if self.rebalances else None
        return GroupSummary(
            group_id=self.info.group_id,
            type=self.info.type,
            state=self.info.state,
            protocol_type=self.info.protocol_type,
            protocol=self.info.protocol,
            generation=self.info.generation,
            member_count=self.info.member_count,
            partition_count=offsets.partition_count,
            partitions_without_lag=offsets.partitions_without_lag,
            lag_records=offsets.lag_records,
            lag_seconds=offsets.lag_seconds,
            last_rebalance_at_ms=last.started_at_ms if last else None,
        )


def fake_group(
    group_id: str,
    members: Sequence[MemberInfo] = (),
    *,
    type: GroupType = GroupType.CLASSIC,
    state: str = "Stable",
    protocol_type: str = "consumer",
    protocol: str = "range",
    generation: int = 1,
) -> FakeGroup:
    """A group of ``members``, the first of which leads it."""
    leader = members[0].member_id if members and type is GroupType.CLASSIC else None
    info = GroupInfo(
        group_id, type, state, protocol_type, protocol, generation, leader, len(members), tuple(members)
    )  # fmt: skip
    return FakeGroup(info)


def fake_member(
    client_id: str, number: int, assignment: dict[str, tuple[int, ...]] | None, *, epoch: int | None = None
) -> MemberInfo:
    """A member as clients name them: the client id and a UUID."""
    return MemberInfo(
        member_id=f"{client_id}-{number:08x}-5f1c-4d0e-9b7a-0242ac120002",
        group_instance_id=None,
        client_id=client_id,
        client_host=f"/10.0.0.{number}",
        subscribed_topics=tuple(sorted(assignment or ())),
        assignment=assignment,
        epoch=epoch,
    )


def fake_partition(
    topic: str, partition: int, member: MemberInfo | None, end: int, lag: int, seconds: float | None
) -> PartitionOffsets:
    return PartitionOffsets(topic, partition, member.member_id if member else None, end - lag, end, lag, seconds)


def fake_cause(kind: CauseKind, at_ms: int, member: MemberInfo, reason: str = "") -> RebalanceCause:
    return RebalanceCause(
        kind, at_ms, member.member_id, member.group_instance_id, member.client_id, member.client_host, reason
    )


def fake_rebalance(
    started_at_ms: int, duration_ms: int | None, generation: int, member_count: int, *causes: RebalanceCause
) -> RebalanceInfo:
    ended_at_ms = None if duration_ms is None else started_at_ms + duration_ms
    return RebalanceInfo(started_at_ms, ended_at_ms, duration_ms, generation, member_count, causes)


def fake_groups(now_ms: int) -> dict[str, FakeGroup]:
    """The five, as they are at ``now_ms``."""
    groups = [checkout(now_ms), clicks_to_warehouse(now_ms), fraud_scores(now_ms), connect_sinks(now_ms), nightly()]
    return {group.info.group_id: group for group in groups}


def checkout(now_ms: int) -> FakeGroup:
    """Healthy: three members, one of which was replaced some minutes ago."""
    first = fake_member("checkout-a", 11, {"orders": (0,)})
    second = fake_member("checkout-b", 12, {"orders": (1,)})
    third = attrs.evolve(fake_member("checkout-c", 13, {"orders": (2,)}), group_instance_id="checkout-c")
    group = fake_group("checkout", (first, second, third), protocol="cooperative-sticky", generation=7)
    group.partitions = [
        fake_partition("orders", 0, first, 52_000, 0, 0.0),
        fake_partition("orders", 1, second, 52_097, 3, 0.041),
        fake_partition("orders", 2, third, 52_194, 0, 0.0),
    ]
    group.rebalances = [
        fake_rebalance(
            now_ms - 5_400_000, 3_012, 4, 2,
            fake_cause(CauseKind.MEMBER_JOINED, now_ms - 5_400_000, first),
            fake_cause(CauseKind.MEMBER_JOINED, now_ms - 5_399_000, second),
        ),
        fake_rebalance(
            now_ms - 2_700_000, 480, 5, 3,
            fake_cause(CauseKind.MEMBER_JOINED, now_ms - 2_700_000, third),
            fake_cause(CauseKind.MEMBER_REJOINED, now_ms - 2_699_900, first, "group is already rebalancing"),
            fake_cause(CauseKind.MEMBER_REJOINED, now_ms - 2_699_700, second, "group is already rebalancing"),
        ),
        fake_rebalance(
            now_ms - 900_000, 10_240, 6, 2,
            fake_cause(CauseKind.MEMBER_TIMED_OUT, now_ms - 900_000, second, "no heartbeat for 45000 ms"),
        ),
        fake_rebalance(
            now_ms - 845_000, 95, 7, 3,
            fake_cause(CauseKind.MEMBER_JOINED, now_ms - 845_000, second, "rebalance failed due to UnknownMemberId"),
        ),
    ]  # fmt: skip
    return group


def clicks_to_warehouse(now_ms: int) -> FakeGroup:
    """A consumer group that falls behind: one of two members reads five partitions of six."""
    first = fake_member("warehouse-loader", 21, {"clickstream": (0, 1, 2, 3, 4)}, epoch=12)
    second = fake_member("warehouse-loader", 22, {"clickstream": (5,)}, epoch=12)
    group = fake_group(
        "clicks/to warehouse", (first, second), type=GroupType.CONSUMER, protocol="uniform", generation=12
    )
    group.partitions = [
        fake_partition("clickstream", index, second if index == 5 else first, 184_000 + 97 * index, lag, seconds)
        for index, (lag, seconds) in enumerate(
            [(18_204, 1_260.0), (17_050, 1_190.5), (903, 61.2), (12, 0.8), (0, 0.0), (0, 0.0)]
        )
    ]
    group.rebalances = [
        fake_rebalance(
            now_ms - 1_500_000, 1_904, 12, 2,
            fake_cause(CauseKind.MEMBER_LEFT, now_ms - 1_500_000, fake_member("warehouse-loader", 23, {})),
        )
    ]  # fmt: skip
    return group


def fraud_scores(now_ms: int) -> FakeGroup:
    """In the middle of a rebalance, caused by a fenced member; two partitions have no committed offset yet."""
    members = [fake_member(f"fraud-{letter}", 31 + index, {}) for index, letter in enumerate("abcdef")]
    group = fake_group("fraud-scores", members, state="PreparingRebalance", generation=31)
    group.partitions = [
        fake_partition("orders", 0, None, 52_000, 420, 19.0),
        PartitionOffsets("orders", 1, members[0].member_id, None, 52_097, None, None),
        PartitionOffsets("orders", 2, members[1].member_id, None, 52_194, None, None),
    ]
    group.rebalances = [
        fake_rebalance(
            now_ms - 2_000, None, 31, 6,
            fake_cause(CauseKind.MEMBER_FENCED, now_ms - 2_000, members[0], "another instance took its place"),
            *(fake_cause(CauseKind.MEMBER_REJOINED, now_ms - 1_500, member) for member in members),
        )
    ]  # fmt: skip
    return group


def connect_sinks(now_ms: int) -> FakeGroup:
    """Workers of Kafka Connect, whose assignments are their own affair."""
    workers = [attrs.evolve(fake_member(f"connect-{index}", 41 + index, None), assignment=None) for index in range(2)]
    group = fake_group("connect-sinks", workers, protocol_type="connect", protocol="sessioned", generation=3)
    group.rebalances = [
        fake_rebalance(
            now_ms - 7_000_000, 3_100, 3, 2, fake_cause(CauseKind.MEMBER_JOINED, now_ms - 7_000_000, workers[1])
        )
    ]
    return group


def nightly() -> FakeGroup:
    """A job that is not running: no members, offsets kept."""
    group = fake_group("nightly-report", state="Empty", protocol="", generation=90)
    group.partitions = [fake_partition("audit-log", 0, None, 912, 400, 31_000.0)]
    return group
