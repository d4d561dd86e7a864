"""What the controller of several brokers does by itself: it fences silent brokers, balances leaders, lets the broker's
own topics grow, empties brokers that are decommissioned, and takes snapshots. While this broker is not the controller
nothing is done.

Source: Kafka's PeriodicTaskControlManager, and the tasks that its control managers register there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs
import trio

from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import decide_fencing
from trio_broker.cluster.claim_offer import ClaimOffer
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.decommission import decide_decommissions
from trio_broker.cluster.internal_topics import decide_internal_growth
from trio_broker.cluster.leader_elections import decide_leader_balance
from trio_broker.cluster.snapshot_generator import SNAPSHOT_CHECK_MS, SnapshotGenerator
from trio_broker.cluster.write_operations import WriteOperations
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import Steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import Clock

SESSION_CHECKS: Final = 8
"""How often within one timeout sessions are looked at: an eighth of it longer, and a silent broker is fenced."""

GROWTH_CHECK_MS: Final = 5000
"""How long a broker that has joined waits for replicas of the broker's own topics; a look costs less than 1 ms."""

DECOMMISSION_CHECK_MS: Final = 1000
"""How long the next replicas wait for their move when some have moved."""

log = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class PeriodicTasks:
    """See the head of the file. ``run`` is a task of each broker that serves: others reach it as the controller."""

    operations: WriteOperations
    sessions: BrokerHeartbeatManager
    offer: ClaimOffer
    snapshots: SnapshotGenerator
    config: BrokerConfig
    clock: Clock

    async def run(self) -> None:
        """Do all of it, until cancelled."""
        settings = self.config.node
        tasks = (
            ScheduledTask("sessions of brokers", self._session_check_ms, self.fence_stale_brokers),
            ScheduledTask(
                "balance of leaders",
                lambda: settings.leader_imbalance_check_interval_seconds * 1000,
                self.balance_leaders,
            ),
            ScheduledTask("replicas of internal topics", lambda: GROWTH_CHECK_MS, self.grow_internal_topics),
            ScheduledTask("decommissions", lambda: DECOMMISSION_CHECK_MS, self.advance_decommissions),
        )
        async with trio.open_nursery() as nursery:
            for task in tasks:
                start_scheduled(nursery, attrs.evolve(task, run=partial(self._as_controller, task.run)))
            # Also elsewhere: a snapshot is of what was published at the look before.
            start_scheduled(
                nursery,
                ScheduledTask("snapshots of the metadata", lambda: SNAPSHOT_CHECK_MS, self.snapshots.take_if_due),
            )

    async def _as_controller(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do ``work`` while this broker is the controller; what is left of it is its successor's."""
        if self.operations.is_active:
            with contextlib.suppress(NotController):
                await work()

    def _session_check_ms(self) -> int:
        return max(self.config.node.broker_session_timeout_ms // SESSION_CHECKS, 1)

    async def balance_leaders(self) -> None:
        """Give preferred replicas their leadership back, some at a time."""
        while await self.operations.decide(
            lambda: decide_leader_balance(self.operations.image, self.operations.settings), follows=False
        ):
            pass

    async def grow_internal_topics(self) -> None:
        """Give the broker's own topics the replicas that there are brokers for."""
        await self.operations.decide(
            lambda: decide_internal_growth(self.operations.image, self.operations.settings), follows=False
        )

    async def advance_decommissions(self) -> None:
        """Move the next replicas away from brokers that are leaving, and unregister those that have left."""
        left = await self.operations.decide(
            lambda: decide_decommissions(self.operations.image, self.operations.settings), follows=False
        )
        for broker_id in left:
            log.info("broker %d has left the cluster", broker_id)

    async def fence_stale_brokers(self) -> None:
        """Fence the brokers whose sessions have ended, one after the other, unless others shall lead first."""
        image, now = self.operations.image, self.clock.monotonic()
        if self.sessions.stale_broker(image, now) is None or self.offer.make_if_alone(
            self.operations.writer.require_active(), image, now
        ):
            return
        while await self.operations.decide(self._fence_stalest, written=self._fenced, follows=False) is not None:
            pass

    def _fence_stalest(self) -> Steps[ControllerResult[int | None]]:
        image = self.operations.image
        broker_id = self.sessions.stale_broker(image, self.clock.monotonic())
        if broker_id is None:
            return ControllerResult(None, ())
        log.warning("broker %d is fenced: its session has ended", broker_id)
        decision = yield from decide_fencing(image, self.operations.settings, broker_id)
        return ControllerResult(broker_id, decision.records)

    def _fenced(self, broker_id: int | None) -> None:
        if broker_id is not None:
            self.sessions.end(broker_id)
