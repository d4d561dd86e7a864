"""The group coordinator: passes requests to the shard of their group, and reports on all groups.

    handler ─▶ GroupCoordinator ─▶ Shard (one per partition of __consumer_offsets) ─▶ GroupMachine ─▶ the group
                  │                  │                                                    │ GroupResult
                  ▼                  ◀── records into the log, timers, response futures ──┘
           CoordinatorRuntime: shards, loading, durability

Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar, cast

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafka_wire.messages.delete_groups import DeletableGroupResult
from kafka_wire.messages.list_groups import ListedGroup
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_delete import OffsetDeleteRequest
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kafka_wire.schema import Request
from trio_broker.changes.change import MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import ConfigResourceType, MetadataImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.concurrency.barrier import Barrier
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import InTurns, YieldBudget, list_in_turns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.group import Group
from trio_broker.coordinator.group_machine import GroupMachine
from trio_broker.coordinator.offset_deletion import delete_group, delete_offsets_in, expire_offsets
from trio_broker.coordinator.offsets.offset_changes import all_offsets, group_deletion, moved_offsets
from trio_broker.coordinator.offsets.requests import least_batch_bytes
from trio_broker.coordinator.reporting.lag import consumer_lags
from trio_broker.coordinator.reporting.lag_collector import LagCollector
from trio_broker.coordinator.reporting.lag_history import SAMPLE_INTERVAL_MS
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupLagHistory, GroupLagReading, GroupLagReport
from trio_broker.coordinator.reporting.statistics import GroupStatistics, statistics_of
from trio_broker.coordinator.request_parts import answered_in_turn, parts_of
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.coordinator.runtime.shard import Shard
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)

R = TypeVar("R")

MAX_FOLLOWING_HEARTBEATS = 2
"""One for the target of a large group, and one for its member."""

LAG_SAMPLE_PAUSE_FACTOR = 100
"""A reading of all groups that took long is followed by a pause: at most a hundredth of the time goes into them."""


def refused_deletion(group_id: str, error: KafkaError) -> DeletableGroupResult:
    """The answer for a group that is not deleted."""
    return DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=str(error))


class GroupCoordinator:
    """All groups that this broker coordinates."""

    def __init__(
        self,
        replicas: ReplicaManager,
        controller: ControllerClient,
        metadata_cache: MetadataCache,
        changes: ChangeLog,
        config: BrokerConfig,
        runtime: Runtime,
    ) -> None:
        self.replicas = replicas
        self.clock = clock = runtime.clock
        self._random = runtime.random
        self.changes = changes
        self.settings = config.group_coordinator
        self.runtime: CoordinatorRuntime[GroupMachine] = CoordinatorRuntime(
            topic=CONSUMER_OFFSETS_TOPIC,
            new_topic=self._offsets_topic,
            new_machine=self._new_machine,
            commit_timeout_seconds=self.settings.offsets_commit_timeout_ms / 1000,
            replicas=replicas,
            controller=controller,
            metadata_cache=metadata_cache,
            clock=clock,
            expiry_clock=runtime.expiry_clock,
        )
        self._lag_collector = LagCollector(replicas, clock, metadata_cache)
        self._rebalance_listeners: list[Callable[[str], None]] = []
        self._listener_barrier = Barrier("a listener to rebalances", "the group goes on")
        self._lag_sample_seconds = 0.0
        self._deleting: set[str] = set()

    # ---- running --------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load all shards, run timers and let offsets expire, until cancelled."""
        interval_ms = self.settings.offsets_retention_check_interval_ms
        expiry = ScheduledTask("offset expiry", lambda: interval_ms, self.expire_offsets)
        lag_history = ScheduledTask("lag history", self._lag_sample_interval_ms, self.sample_lag)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.runtime.run)
            start_scheduled(nursery, expiry)
            start_scheduled(nursery, lag_history)
            task_status.started()

    def _new_machine(self) -> GroupMachine:
        return GroupMachine(self._random, lambda: self.settings, self.runtime.metadata_cache, self._notify_rebalance)

    def _offsets_topic(self) -> NewTopic:
        return NewTopic(
            name=CONSUMER_OFFSETS_TOPIC,
            num_partitions=self.settings.offsets_topic_num_partitions,
            replication_factor=self.settings.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(self.settings.offsets_topic_segment_size),
            },
        )

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow ``delta``: the shards' own topic, settings of groups, and topics that groups read."""
        self.runtime.apply_metadata(delta)
        groups = (each.name for each in delta.changed_configs if each.type is ConfigResourceType.GROUP)
        async for group_id in InTurns(groups):
            for shard in self.runtime.active_shards():
                shard.machine.settings_changed(group_id, image)
        has_other_assignments = delta.has_other_assignments
        for shard in self.runtime.active_shards():
            await delete_offsets_in(self.runtime, shard, delta.deleted_topics)
            if has_other_assignments:
                shard.machine.topics_changed()
            await trio.lowlevel.checkpoint()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow the settings of groups that may be changed while the broker runs."""
        if config.group_coordinator != self.settings:
            self.settings = config.group_coordinator
            for shard in self.runtime.active_shards():
                shard.machine.broker_settings_changed(self.runtime.image)

    def topic_opened(self, name: str) -> None:
        """Load the shards whose partitions could not be opened before."""
        if name == self.runtime.topic:
            self.runtime.load_led_partitions()

    async def expire_offsets(self) -> None:
        """Delete offsets that have expired, and groups that have neither offsets nor members left."""
        await expire_offsets(self.runtime)

    # ---- requests -------------------------------------------------------------------------------------------------

    async def find(self, group_id: str) -> int:
        """``find_steps`` in the calling task."""
        return await run_steps(self.find_steps(group_id))

    def find_steps(self, group_id: str) -> Steps[int]:
        """The id of the broker that coordinates ``group_id``.

        Raises:
            KafkaError: ``COORDINATOR_NOT_AVAILABLE``: not now.
        """
        return self.runtime.find(group_id)

    def shard(self, group_id: str, *, allow_empty: bool = False) -> Shard[GroupMachine]:
        """The shard of ``group_id``, ready to answer. Old simple consumers commit for the empty group id.

        Raises:
            KafkaError: ``INVALID_GROUP_ID``, ``NOT_COORDINATOR``; ``COORDINATOR_LOAD_IN_PROGRESS``, also while the
                offsets of the group are being deleted.
        """
        if group_id in self._deleting:
            raise KafkaError(f"group {group_id!r} is being deleted", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if not group_id and not allow_empty:
            raise KafkaError("a group's id is not empty", code=ErrorCode.INVALID_GROUP_ID)
        return self.runtime.shard_for(group_id)

    def machine(self, group_id: str, *, allow_empty: bool = False) -> GroupMachine:
        """What describes ``group_id``; errors as ``shard``."""
        return self.shard(group_id, allow_empty=allow_empty).machine

    async def call(
        self, group_id: str, request: Request[R], context: RequestContext, release_handler: ReleaseHandler
    ) -> R:
        """``call_steps`` in the calling task."""
        return await run_steps(self.call_steps(group_id, request, context, release_handler))

    def call_steps(
        self, group_id: str, request: Request[R], context: RequestContext, release_handler: ReleaseHandler
    ) -> Steps[R]:
        """The response of the group to ``request``, when the records that it depends on are durable.

        JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, OffsetCommit and OffsetDelete; the topics
        of the last two go by name, and the caller checks that they exist. A large one is answered in parts.

        Raises:
            KafkaError: those of ``shard`` and of ``CoordinatorRuntime.call``.
        """
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            heartbeat = yield from self._heartbeat_steps(group_id, request, context, release_handler)
            return cast(R, heartbeat)
        if isinstance(request, OffsetCommitRequest):
            self.require_room(request)
        if (parts := parts_of(request)) is None:
            return (yield from self._call_steps(group_id, request, context, release_handler))
        answer = partial(self._call_steps, group_id, context=context, release_handler=release_handler)
        whole: R = yield from answered_in_turn(parts, answer)
        return whole

    def _heartbeat_steps(
        self,
        group_id: str,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[ConsumerGroupHeartbeatResponse]:
        """The response to a heartbeat; in a large group, to those that follow it (``following_heartbeat``)."""
        response = yield from self._call_steps(group_id, request, context, release_handler)
        for _ in range(MAX_FOLLOWING_HEARTBEATS):
            group = self.machine(group_id).groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                break
            following = group.following_heartbeat(request, response)
            if following is None:
                break
            yield trio.lowlevel.checkpoint
            later = yield from self._call_steps(group_id, following, context, release_handler)
            if later.error_code:
                # Another event has taken the member away; its own next heartbeat finds out.
                break
            if later.assignment is None:
                later.assignment = response.assignment
            response = later
        return response

    def _call_steps(
        self, group_id: str, request: Request[R], context: RequestContext, release_handler: ReleaseHandler
    ) -> Steps[R]:
        shard, moved = self.shard(group_id, allow_empty=isinstance(request, OffsetCommitRequest)), None
        if isinstance(request, OffsetCommitRequest | OffsetDeleteRequest):
            machine = shard.machine
            moved = moved_offsets(machine.offsets, machine.groups.get(group_id), request)
        response: R = yield from self.runtime.call(shard, group_id, request, context, release_handler)
        if moved is not None and (made := moved.made_change(group_id, response)) is not None:
            self.changes.record(made)
        return response

    def require_room(self, request: OffsetCommitRequest) -> None:
        """Refuse a commit that no batch can hold, before the work is done: a hundred thousand partitions fit into a
        request.

        Raises:
            KafkaError: ``INVALID_COMMIT_OFFSET_SIZE``, or those of ``shard``.
        """
        shard = self.shard(request.group_id, allow_empty=True)
        if (size := least_batch_bytes(request)) > shard.log.max_batch_bytes:
            text = f"group {request.group_id!r:.200}: a commit of {size} bytes or more"
            raise KafkaError(text, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)

    def end_transaction(self, partition: int, end: TransactionEnd) -> int:
        """Put the marker into a partition of ``__consumer_offsets``: what was committed in the transaction counts now,
        or never. Returns the offset after the marker.

        Raises:
            KafkaError: ``NOT_COORDINATOR``, ``COORDINATOR_LOAD_IN_PROGRESS``, or the log refused; nothing was appended.
        """
        if (shard := self.runtime.shards.get(partition)) is None:
            text = f"partition {partition} of {self.runtime.topic} is not here"
            raise KafkaError(text, code=ErrorCode.NOT_COORDINATOR)
        return shard.end_transaction(end)

    def own_partition_of(self, group_id: str) -> Partition:
        """The partition of ``__consumer_offsets`` that has ``group_id``, which is coordinated here.

        Raises:
            KafkaError: those of ``shard``.
        """
        return self.shard(group_id, allow_empty=True).log.partition

    async def fetch_offsets(
        self, request: OffsetFetchRequestGroup, release_handler: ReleaseHandler, *, require_stable: bool = False
    ) -> OffsetFetchResponseGroup:
        """``fetch_offsets_steps`` in the calling task."""
        return await run_steps(self.fetch_offsets_steps(request, release_handler, require_stable=require_stable))

    def fetch_offsets_steps(
        self, request: OffsetFetchRequestGroup, release_handler: ReleaseHandler, *, require_stable: bool = False
    ) -> Steps[OffsetFetchResponseGroup]:
        """The committed offsets of one group; none that a power failure could still take back.

        Raises:
            KafkaError: those of ``shard``, or the offsets were not made durable in time.
        """
        shard = self.shard(request.group_id, allow_empty=True)
        response = yield from shard.machine.fetch(request, require_stable=require_stable)
        shard.require_active()
        required_offset = shard.log.required_offset
        if shard.log.partition.high_watermark < required_offset:
            yield partial(self.runtime.until_durable, shard, required_offset, release_handler)
        return response

    async def delete_groups(
        self, group_ids: Sequence[str], release_handler: ReleaseHandler, *, validate_only: bool = False
    ) -> list[DeletableGroupResult]:
        """Delete each group that has no members, with its offsets; one result for each of ``group_ids``, in order.

        With ``validate_only`` nothing is deleted, and the results are those that there would be.
        """
        refused: dict[str, DeletableGroupResult] = {}
        asked: dict[Shard[GroupMachine], list[str]] = {}
        deletions: dict[str, MadeChange] = {}
        budget = YieldBudget()
        for group_id in group_ids:
            try:
                shard = self.shard(group_id, allow_empty=True)
                asked.setdefault(shard, []).append(group_id)
                shard.machine.require_deletable(group_id)
                if not validate_only:
                    offsets = shard.machine.offsets
                    made = group_deletion(group_id, all_offsets(offsets, group_id), offsets.count_of(group_id))
                    # No request sees it half deleted.
                    self._deleting.add(group_id)
                    try:
                        await delete_group(self.runtime, shard, group_id, budget)
                    finally:
                        self._deleting.remove(group_id)
                    deletions[group_id] = made
            except KafkaError as error:
                refused[group_id] = refused_deletion(group_id, error)
            await budget.maybe_yield()
        for shard, its_groups in asked.items():
            try:
                await self.runtime.until_durable(shard, shard.log.required_offset, release_handler)
            except KafkaError as error:
                refused |= {group_id: refused_deletion(group_id, error) for group_id in its_groups}
        for group_id, made in deletions.items():
            if group_id not in refused:
                self.changes.record(made)
        results = (refused.get(group_id) or DeletableGroupResult(group_id=group_id) for group_id in group_ids)
        return await run_steps(list_in_turns(results))

    # ---- reporting ------------------------------------------------------------------------------------------------

    def list_groups(self, states: set[str], types: set[str]) -> Iterator[ListedGroup]:
        """The groups in one of ``states`` and of one of ``types``, both in lower case; an empty set stands for all.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``: the list would not be complete.
        """
        groups: list[Group] = []
        for shard in self.runtime.led_shards():
            groups += shard.machine.groups.values()
        return (
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.type.value,
            )
            for group in groups
            if (not states or group.state.value.lower() in states) and (not types or group.type.value in types)
        )

    async def lags(self, group_id: str) -> list[ConsumerLag]:
        """The lag of a group in every partition it has committed or owns; errors as ``GroupMachine.snapshot``."""
        machine = self.machine(group_id, allow_empty=True)
        group, now_ms = machine.snapshot(group_id), self.clock.now_ms()
        return await consumer_lags(group, machine.offsets, self.replicas, now_ms, machine.expires_at_ms)

    async def lag_report(self, *, with_partitions: bool = False) -> GroupLagReport:
        """All groups with their lag. Takes the longer the more groups there are, and yields."""
        return await self._lag_collector.collect(self.runtime.shards.values(), with_partitions=with_partitions)

    async def sample_lag(self) -> None:
        """Add a reading of each group's lag to the history."""
        began = trio.current_time()
        await self._lag_collector.sample(self.runtime.shards.values())
        self._lag_sample_seconds = trio.current_time() - began

    def _lag_sample_interval_ms(self) -> int:
        return max(SAMPLE_INTERVAL_MS, round(LAG_SAMPLE_PAUSE_FACTOR * self._lag_sample_seconds * 1000))

    def lag_history(self, group_id: str) -> GroupLagHistory:
        """The lag of a group in the last hour; errors as ``GroupMachine.snapshot``."""
        self.machine(group_id, allow_empty=True).snapshot(group_id, with_members=False)
        history = self._lag_collector.history
        return GroupLagHistory(
            interval_ms=SAMPLE_INTERVAL_MS, samples=history.samples(group_id), rates=history.rates(group_id)
        )

    def lag_peaks(self, from_ms: int, to_ms: int) -> dict[str, tuple[float | None, ...]]:
        """What ``LagHistory.peaks`` has of a minute that is just over."""
        return self._lag_collector.history.peaks(from_ms, to_ms)

    def latest_lags(self) -> list[GroupLagReading]:
        """The lag of the groups that are furthest behind, at most 200, as of a reading some seconds ago."""
        return self._lag_collector.history.latest()

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the id of each group that has finished a rebalance, on the event loop."""
        self._rebalance_listeners.append(listener)

    def _notify_rebalance(self, group_id: str) -> None:
        for listener in self._rebalance_listeners:
            with self._listener_barrier:
                listener(group_id)

    def statistics(self) -> GroupStatistics:
        return statistics_of(self.runtime.shards.values())
