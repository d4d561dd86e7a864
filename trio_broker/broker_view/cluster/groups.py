"""The groups of a running broker, for the admin app.

A report on all groups is kept for a while, and for longer where it took long: at most a tenth of the event loop's time
goes into reports, however many groups there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from broker_admin.group_diagnosis import OFTEN_SECONDS, RESTLESS_REBALANCES, is_restless
from broker_admin.views.cluster.groups import GroupsRebalanced
from kafka_wire.errors import KafkaError
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.reporting.snapshot import (
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    Rebalance,
)
from trio_broker.runtime.clock import Clock

REPORT_SECONDS = 2.0
"""How long a report is good for: a lag that is two seconds old is as useful as a new one."""

REPORT_PAUSE_FACTOR = 9
"""A report that took a second is good for nine."""

MAX_GROUP_IDS = 50
"""Ids of groups that have rebalanced in one event; of a thousand at once, only their number is of use."""


class LiveGroupsView:
    """The part of the admin app's view that is about groups."""

    def __init__(self, coordinator: GroupCoordinator, clock: Clock) -> None:
        self.coordinator = coordinator
        self._clock = clock
        self._report = CachedReport(
            partial(coordinator.lag_report, with_partitions=False), clock,
            seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR,
        )  # fmt: skip
        self._rebalanced: dict[str, None] = {}
        # The times of the latest rebalances of each group, as many as make it restless.
        self._rebalanced_at_ms: dict[str, deque[int]] = {}
        coordinator.subscribe(self._note_rebalance)

    # ---- all of them ----

    async def report(self) -> GroupLagReport:
        """All groups and their topics, from a report that may be some seconds old."""
        return await self._report.get()

    async def new_lag_report(self) -> GroupLagReport:
        """All groups, and the lag of each in every partition that it has committed, from a report made now."""
        return await self._report.replaced(partial(self.coordinator.lag_report, with_partitions=True))

    # ---- one of them ----

    def get(self, group_id: str) -> GroupSnapshot | None:
        try:
            return self.coordinator.machine(group_id, allow_empty=True).snapshot(group_id)
        except KafkaError:
            return None

    async def offsets(self, group_id: str) -> GroupOffsets | None:
        try:
            return GroupOffsets.of(group_id, await self.coordinator.lags(group_id))
        except KafkaError:
            return None

    def lag_history(self, group_id: str) -> GroupLagHistory | None:
        try:
            return self.coordinator.lag_history(group_id)
        except KafkaError:
            return None

    def timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        try:
            return self.coordinator.machine(group_id, allow_empty=True).timeline(group_id)
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
