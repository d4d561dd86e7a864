"""The groups of a cluster, for the admin app: those that this broker coordinates, and a report on those of all.

A report on all groups is kept for a while, and for longer where it took long: at most a tenth of the event loop's time
goes into reports, however many groups there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

import attrs

from broker_admin.group_diagnosis import OFTEN_SECONDS, RESTLESS_REBALANCES, is_restless
from broker_admin.node_addresses import NODE_API
from broker_admin.views.cluster.groups import CoordinatedGroups, CoordinatedTopicLag, GroupsRebalanced
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_offsets import SpecialTimestamp
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster.coordinators import coordinator_of
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.remote_records import RemoteRecords
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    GroupTopicLag,
    Rebalance,
)
from trio_broker.runtime.clock import Clock

REPORT_SECONDS = 2.0
"""How long a report is good for: a lag that is two seconds old is as useful as a new one."""

REPORT_PAUSE_FACTOR = 9
"""A report that took a second is good for nine."""

COORDINATED_GROUPS = f"{NODE_API}/coordinated-groups"

MAX_GROUP_IDS = 50
"""Ids of groups that have rebalanced in one event; of a thousand at once, only their number is of use."""


class LiveGroupsView:
    """The part of the admin app's view that is about groups. ``peers`` is None where nobody else is to be asked."""

    def __init__(self, coordinator: GroupCoordinator, clock: Clock, peers: LivePeersView | None = None) -> None:
        self.groups = coordinator
        self.peers = peers
        self._clock = clock
        kept = partial(CachedReport, clock=clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR)
        self._report: CachedReport[GroupLagReport] = kept(partial(self.groups.lag_report, with_partitions=False))
        self._of_all: CachedReport[GroupLagReport] = kept(self._put_together)
        self._rebalanced: dict[str, None] = {}
        # The times of the latest rebalances of each group, as many as make it restless.
        self._rebalanced_at_ms: dict[str, deque[int]] = {}
        self.groups.subscribe(self._note_rebalance)

    # ---- all of them ----

    async def report(self) -> GroupLagReport:
        """All groups and their topics, from a report that may be some seconds old."""
        return await (self._of_all if self.peers and self.peers.broker_ids() else self._report).get()

    async def _put_together(self) -> GroupLagReport:
        assert self.peers is not None, "there are others"
        own = await self._report.get()
        others = await self.peers.fetch_each(COORDINATED_GROUPS, CoordinatedGroups)
        put_together = partial(together, own, tuple(others.values.values()), is_complete=not others.missing)
        return await self.peers.services.runtime.workers.run(put_together)

    async def coordinated(self) -> CoordinatedGroups:
        return coordinated_groups(await self._report.get())

    async def new_lag_report(self) -> GroupLagReport:
        """All groups that are coordinated here, and the lag of each in every partition that it has committed, from a
        report made now."""
        return await self._report.replaced(partial(self.groups.lag_report, with_partitions=True))

    def coordinator(self, group_id: str) -> int | None:
        return coordinator_of(self.groups.runtime.image, CONSUMER_OFFSETS_TOPIC, group_id)

    async def find_coordinator(self, group_id: str) -> int | None:
        try:
            return await self.groups.find(group_id)
        except KafkaError:
            return None

    # ---- one of them ----

    def get(self, group_id: str) -> GroupSnapshot | None:
        try:
            return self.groups.machine(group_id, allow_empty=True).snapshot(group_id)
        except KafkaError:
            return None

    async def offsets(self, group_id: str) -> GroupOffsets | None:
        try:
            lags = await self.groups.lags(group_id)
        except KafkaError:
            return None
        return GroupOffsets.of(group_id, await self._with_ends(lags))

    async def _with_ends(self, lags: Sequence[ConsumerLag]) -> Sequence[ConsumerLag]:
        """``lags`` with the ends of those logs of which no replica is here, as their leaders have them."""
        unknown = [each for each in lags if each.log_end_offset is None]
        if not unknown or self.peers is None:
            return lags
        remote = RemoteRecords(self.peers.services)
        ends: dict[tuple[str, int], int] = {}
        for name in dict.fromkeys(each.topic for each in unknown):
            elsewhere = remote.led_elsewhere(name, [each.partition for each in unknown if each.topic == name])
            found = await remote.offsets_at(elsewhere, SpecialTimestamp.LATEST)
            ends |= {(name, index): end for index, end in found.items() if not isinstance(end, KafkaError)}
        return [with_end(each, ends.get((each.topic, each.partition))) for each in lags]

    def lag_history(self, group_id: str) -> GroupLagHistory | None:
        try:
            return self.groups.lag_history(group_id)
        except KafkaError:
            return None

    def timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        try:
            return self.groups.machine(group_id, allow_empty=True).timeline(group_id)
        except KafkaError:
            return None

    # ---- what happens ----

    def _note_rebalance(self, group_id: str) -> None:
        self._rebalanced[group_id] = None
        latest = self._rebalanced_at_ms.setdefault(group_id, deque(maxlen=RESTLESS_REBALANCES))
        latest.append(self._clock.now_ms())

    def restless_groups(self) -> list[str]:
        """The groups that have rebalanced ``RESTLESS_REBALANCES`` times in ``OFTEN_SECONDS``, and not long ago."""
        now_ms = self._clock.now_ms()
        recent = {
            group_id: latest
            for group_id, latest in self._rebalanced_at_ms.items()
            if now_ms - latest[-1] <= OFTEN_SECONDS * 1000
        }
        self._rebalanced_at_ms = recent
        return [group_id for group_id, latest in recent.items() if is_restless(latest, now_ms)]

    def pop_rebalanced(self) -> GroupsRebalanced | None:
        """The groups that have finished a rebalance since the last call; None if there are none."""
        if not self._rebalanced:
            return None
        group_ids, self._rebalanced = tuple(self._rebalanced), {}
        return GroupsRebalanced(self._clock.now_ms(), group_ids[:MAX_GROUP_IDS], max(0, len(group_ids) - MAX_GROUP_IDS))


def coordinated_groups(report: GroupLagReport) -> CoordinatedGroups:
    """``report`` as it is passed to another broker, each group once."""
    return CoordinatedGroups(
        collected_at_ms=report.collected_at_ms,
        is_complete=report.is_complete,
        groups=report.groups,
        topics=tuple(
            CoordinatedTopicLag(
                group_id=each.group.group.group_id,
                topic=each.topic,
                partition_count=each.partition_count,
                partitions_without_lag=each.partitions_without_lag,
                lag_records=each.lag_records,
                lag_seconds=each.lag_seconds,
            )
            for each in report.topics
        ),
    )


def together(own: GroupLagReport, others: Sequence[CoordinatedGroups], *, is_complete: bool) -> GroupLagReport:
    """One report on the groups of all brokers. One that has just moved may be known to two; the newer report counts."""
    groups = {each.group.group_id: each for each in own.groups}
    topics = list(own.topics)
    for other in sorted(others, key=lambda each: each.collected_at_ms):
        moved = {each.group.group_id: each for each in other.groups}
        topics = [each for each in topics if each.group.group.group_id not in moved]
        groups |= moved
        topics += [
            GroupTopicLag(
                group=moved[each.group_id],
                topic=each.topic,
                partition_count=each.partition_count,
                partitions_without_lag=each.partitions_without_lag,
                lag_records=each.lag_records,
                lag_seconds=each.lag_seconds,
            )
            for each in other.topics
        ]
    return GroupLagReport(
        collected_at_ms=own.collected_at_ms,
        is_complete=is_complete and own.is_complete and all(each.is_complete for each in others),
        groups=tuple(sorted(groups.values(), key=lambda each: each.group.group_id)),
        topics=tuple(sorted(topics, key=lambda each: each.group.group.group_id)),
    )


def with_end(lag: ConsumerLag, end: int | None) -> ConsumerLag:
    """``lag`` in a log that ends at ``end``, if that is known; how old it is is not."""
    if end is None or lag.log_end_offset is not None:
        return lag
    records = None if lag.committed_offset is None else max(0, end - lag.committed_offset)
    return attrs.evolve(lag, log_end_offset=end, lag_records=records, lag_seconds=None if records else 0.0)
