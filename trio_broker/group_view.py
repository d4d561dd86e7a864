"""The groups of a running broker, as the admin app sees them: the coordinator's values in the app's terms.

A survey of all groups is kept for a while, so that pages that many people look at cost no more than one, and for longer
where it took long: at most a tenth of the event loop's time goes into surveys, however many groups there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from broker_admin import view
from kafka_wire.errors import KafkaError
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.reporting.lag import ConsumerLag
from trio_broker.coordinator.reporting.lag_collector import GroupLag, GroupLagReport, GroupPartitionLag
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, MemberSnapshot
from trio_broker.coordinator.reporting.timeline import Rebalance
from trio_broker.coordinator.runtime.result import GroupEvent

SURVEY_SECONDS = 2.0
"""How long a survey is good for: nobody sees a lag change faster."""

SURVEY_PAUSE_FACTOR = 9
"""A survey that took a second is good for nine."""

MAX_GROUP_IDS = 50
"""Ids of groups that have rebalanced in one event; when a thousand do at once, their number tells more."""


class GroupView:
    """The groups in the admin app's classes."""

    def __init__(self, coordinator: GroupCoordinator, now_ms: Callable[[], int]) -> None:
        self.coordinator = coordinator
        self._now_ms = now_ms
        self._surveying = trio.Lock()
        self._survey: view.GroupSurvey | None = None
        self._good_until = 0.0
        self._rebalanced: dict[str, None] = {}
        coordinator.subscribe(self._note_rebalance)

    # ---- all of them ----

    async def groups(self) -> view.GroupSurvey:
        """All groups, from a survey that may be some seconds old."""
        async with self._surveying:
            if self._survey is None or trio.current_time() >= self._good_until:
                await self._take_survey(with_partitions=False)
            assert self._survey is not None
            return self._survey

    async def _take_survey(self, *, with_partitions: bool) -> GroupLagReport:
        """Look at all groups anew; what there are thousands of is turned into other values in a thread."""
        began = trio.current_time()
        survey = await self.coordinator.lag_report(with_partitions=with_partitions)
        self._survey = await trio.to_thread.run_sync(group_survey, survey)
        took = trio.current_time() - began
        self._good_until = trio.current_time() + max(SURVEY_SECONDS, SURVEY_PAUSE_FACTOR * took)
        return survey

    async def partition_lags(self) -> Sequence[GroupPartitionLag]:
        """The lag of each group in every partition that it has committed, from a report made now."""
        async with self._surveying:
            return (await self._take_survey(with_partitions=True)).partitions

    # ---- one of them ----

    def group(self, group_id: str) -> view.GroupInfo | None:
        try:
            return group_info(self.coordinator.shard(group_id, allow_empty=True).snapshot(group_id))
        except KafkaError:
            return None

    async def group_offsets(self, group_id: str) -> view.GroupOffsets | None:
        try:
            lags = await self.coordinator.lags(group_id)
        except KafkaError:
            return None
        return group_offsets(group_id, lags)

    def group_timeline(self, group_id: str) -> Sequence[view.RebalanceInfo] | None:
        try:
            timeline = self.coordinator.shard(group_id, allow_empty=True).timeline(group_id)
            return [rebalance_info(rebalance) for rebalance in timeline]
        except KafkaError:
            return None

    # ---- what happens ----

    def _note_rebalance(self, group_id: str) -> None:
        self._rebalanced[group_id] = None

    def pop_rebalanced(self) -> view.GroupsRebalanced | None:
        """The groups that have finished a rebalance since this was asked last; None if there are none."""
        if not self._rebalanced:
            return None
        group_ids, self._rebalanced = tuple(self._rebalanced), {}
        return view.GroupsRebalanced(self._now_ms(), group_ids[:MAX_GROUP_IDS], max(0, len(group_ids) - MAX_GROUP_IDS))


def group_survey(survey: GroupLagReport) -> view.GroupSurvey:
    """The list in the app's terms."""
    return view.GroupSurvey(survey.collected_at_ms, survey.is_complete, tuple(map(group_summary, survey.groups)))


def group_summary(lag: GroupLag) -> view.GroupSummary:
    """A line of the list in the app's terms."""
    group = lag.group
    return view.GroupSummary(
        group_id=group.group_id,
        type=view.GroupType[group.type.name],
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        generation=group.generation,
        member_count=group.member_count,
        partition_count=lag.partition_count,
        partitions_without_lag=lag.partitions_without_lag,
        lag_records=lag.lag_records,
        lag_seconds=lag.lag_seconds,
        last_rebalance_at_ms=lag.last_rebalance_at_ms,
    )


def group_info(group: GroupSnapshot) -> view.GroupInfo:
    return view.GroupInfo(
        group_id=group.group_id,
        type=view.GroupType[group.type.name],
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        generation=group.generation,
        leader=group.leader,
        member_count=group.member_count,
        members=tuple(map(member_info, group.members)),
    )


def member_info(member: MemberSnapshot) -> view.MemberInfo:
    return view.MemberInfo(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=member.subscribed_topics,
        assignment=member.assignment,
        epoch=member.epoch,
    )


def group_offsets(group_id: str, lags: Sequence[ConsumerLag]) -> view.GroupOffsets:
    """A group's partitions with the sum of their lag in records and the maximum in seconds."""
    records = [lag.lag_records for lag in lags if lag.lag_records is not None]
    return view.GroupOffsets(
        group_id=group_id,
        lag_records=sum(records) if records else None,
        lag_seconds=max((lag.lag_seconds for lag in lags if lag.lag_seconds is not None), default=None),
        partition_count=len(lags),
        partitions_without_lag=sum(lag.lag_records is None for lag in lags),
        partitions=tuple(
            view.PartitionOffsets(
                topic=lag.topic,
                partition=lag.partition,
                member_id=lag.member_id,
                committed_offset=lag.committed_offset,
                log_end_offset=lag.log_end_offset,
                lag_records=lag.lag_records,
                lag_seconds=lag.lag_seconds,
            )
            for lag in lags
        ),
    )


def rebalance_info(rebalance: Rebalance) -> view.RebalanceInfo:
    ended_at_ms = rebalance.ended_at_ms
    return view.RebalanceInfo(
        started_at_ms=rebalance.started_at_ms,
        ended_at_ms=ended_at_ms,
        duration_ms=None if ended_at_ms is None else max(0, ended_at_ms - rebalance.started_at_ms),
        generation=rebalance.generation,
        member_count=rebalance.members,
        causes=tuple(map(rebalance_cause, rebalance.causes)),
        further_causes=rebalance.further_causes,
    )


def rebalance_cause(event: GroupEvent) -> view.RebalanceCause:
    return view.RebalanceCause(
        kind=view.CauseKind[event.kind.name],
        at_ms=event.at_ms,
        member_id=event.member_id,
        group_instance_id=event.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        reason=event.reason,
    )
