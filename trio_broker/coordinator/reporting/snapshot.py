"""Groups as values for lists, metrics and the admin API, the same for both protocols.

The attributes of these classes are the names in the JSON of the API (docs/decisions/0031). Nothing here acts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence

import attrs

from trio_broker.coordinator.group_event import GroupEvent


class GroupType(enum.Enum):
    """The protocol that a group's members speak, by the names that ListGroups uses."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@attrs.frozen(kw_only=True)
class MemberSnapshot:
    """One member. ``assignment`` maps topics to partitions, None where the assignment is not a consumer's.

    ``epoch`` is the member's own epoch in a consumer group, None in a classic one.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]] | None
    epoch: int | None = None


@attrs.frozen(kw_only=True)
class GroupSnapshot:
    """One group. ``generation`` is the generation id or the group epoch, ``protocol`` the assignor's name or empty.

    ``members`` is empty where they were not asked for, ``member_count`` counts them in any case. ``pending_offsets``
    were committed in transactions that have not ended; a member that begins there waits for that (KIP-447).
    """

    group_id: str
    type: GroupType
    protocol_type: str
    protocol: str
    state: str
    generation: int
    leader: str | None
    member_count: int
    members: tuple[MemberSnapshot, ...] = ()
    pending_offsets: int = 0


@attrs.frozen(kw_only=True)
class ConsumerLag:
    """How far a group has come in one partition; ``member_id`` is its current owner.

    ``log_end_offset`` is the end of what consumers may read, the high watermark. ``lag_seconds`` is how long ago the
    first record was appended that the group has not consumed: 0 when there is none. ``committed_at_ms`` is when the
    offset was committed, ``expires_at_ms`` when it will be deleted if nobody commits and no member joins. None stands
    for what is not known, or will not be: no commit, no such partition any more, no time of the next record.
    """

    topic: str
    partition: int
    member_id: str | None
    committed_offset: int | None
    log_end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None
    committed_at_ms: int | None = None
    expires_at_ms: int | None = None


@attrs.frozen(kw_only=True)
class GroupOffsets:
    """A group's committed offsets by topic and partition, the sum of its lag in records and the maximum in seconds.

    ``partitions_without_lag`` counts those where none is known. ``partition_count`` counts all, also where
    ``partitions`` holds a part of them.
    """

    group_id: str
    lag_records: int | None
    lag_seconds: float | None
    partition_count: int
    partitions_without_lag: int
    partitions: tuple[ConsumerLag, ...]

    @classmethod
    def of(cls, group_id: str, lags: Sequence[ConsumerLag]) -> GroupOffsets:
        """All of ``lags`` with their sum and maximum."""
        return cls(
            group_id=group_id,
            lag_records=sum_known(lag.lag_records for lag in lags),
            lag_seconds=max_known(lag.lag_seconds for lag in lags),
            partition_count=len(lags),
            partitions_without_lag=sum(lag.lag_records is None for lag in lags),
            partitions=tuple(lags),
        )


def sum_known(values: Iterable[int | None]) -> int | None:
    """The sum of those that are known, None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def max_known(values: Iterable[float | None]) -> float | None:
    """The largest of those that are known, None if none is."""
    return max((value for value in values if value is not None), default=None)


class LagTrend(enum.Enum):
    """How a lag in records develops."""

    GROWING = "growing"
    STEADY = "steady"
    SHRINKING = "shrinking"


@attrs.frozen(kw_only=True)
class GroupRates:
    """How fast a group reads, over the last ``over_seconds`` in which that is known: two minutes at most.

    ``consumed_per_second`` is by what it has committed. ``catches_up_in_seconds`` is when the lag is gone if both rates
    stay as they are: 0 if there is none, None if there is one that does not shrink.
    """

    over_seconds: float
    consumed_per_second: float
    produced_per_second: float
    lag_change_per_second: float
    trend: LagTrend
    catches_up_in_seconds: float | None


@attrs.frozen
class LagSample:
    """The lag of a group at one time, and what it consumed since the sample before; None where it was not known."""

    at_ms: int
    lag_records: int | None
    lag_seconds: float | None
    consumed_per_second: float | None = None


@attrs.frozen
class GroupLagReading:
    """The lag of a group at the last reading, and how fast it read up to then; see ``GroupLag``."""

    group_id: str
    lag_records: int | None
    lag_seconds: float | None
    rates: GroupRates | None


@attrs.frozen(kw_only=True)
class GroupLagHistory:
    """The lag of a group in the last hour, oldest first; empty for groups that are least behind, beyond 200."""

    interval_ms: int
    samples: tuple[LagSample, ...]
    rates: GroupRates | None


@attrs.frozen(kw_only=True)
class GroupLag:
    """One group, without its members, and its lag, as a list shows it.

    ``partition_count`` counts the partitions that the group has committed or that its members own. No lag is known in
    ``partitions_without_lag`` of them: nothing is committed there, or the partition does not exist. ``lag_records`` is
    the sum over the others, None without any; ``lag_seconds`` the maximum, as far as it is known. ``rates`` are None
    for groups that are least behind, beyond 200, and until two readings were taken.
    """

    group: GroupSnapshot
    last_rebalance_at_ms: int | None
    partition_count: int
    partitions_without_lag: int
    lag_records: int | None
    lag_seconds: float | None
    rates: GroupRates | None = None


@attrs.frozen(kw_only=True)
class GroupTopicLag:
    """The lag of one group in one topic; the numbers are as in ``GroupLag``."""

    group: GroupLag
    topic: str
    partition_count: int
    partitions_without_lag: int
    lag_records: int | None
    lag_seconds: float | None


@attrs.frozen
class GroupPartitionLag:
    """The lag of one group in one partition, without the member that owns the partition."""

    group_id: str
    lag: ConsumerLag


@attrs.frozen(kw_only=True)
class GroupLagReport:
    """All groups by id, and the topics of each in the same order.

    ``partitions`` is empty unless it was asked for; ``is_complete`` is false while shards load.
    """

    collected_at_ms: int
    is_complete: bool
    groups: tuple[GroupLag, ...]
    topics: tuple[GroupTopicLag, ...] = ()
    partitions: tuple[GroupPartitionLag, ...] = ()


@attrs.frozen(kw_only=True)
class Rebalance:
    """One rebalance: from the time when members had to stop until all had their new assignment.

    ``ended_at_ms`` and ``duration_ms`` are None while it goes on. ``member_count`` and ``generation`` are those after
    it. ``causes`` are the first events that led to it or came in its course, oldest first; ``further_causes`` counts
    those that were not kept.
    """

    started_at_ms: int
    ended_at_ms: int | None
    duration_ms: int | None
    generation: int
    member_count: int
    causes: tuple[GroupEvent, ...]
    further_causes: int = 0
