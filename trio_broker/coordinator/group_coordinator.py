"""The group coordinator: finds the shard of a group, and waits for the answer.

    handler ─▶ GroupCoordinator ─▶ GroupShard (one per partition of __consumer_offsets) ─▶ the group, a state machine
                                        │                                                      │ effects
                                        ◀── records into the log, alarms, answers to replies ──┘

A group lives on the partition of ``__consumer_offsets`` that its name's hash says, with all its records, and whoever
leads that partition coordinates the group. The topic is created when the first client looks for a coordinator. A shard
is loaded from its log before it answers; until then clients are told to come again.

What a request changes is appended before anything else can happen; its answer goes out when the records are as safe
as ``log.durability`` says. Requests that wait, for other members or for the disk, give their handler slot back.

Source: Kafka's GroupCoordinatorService and CoordinatorRuntime.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.messages.delete_groups import DeletableGroupResult
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafka_wire.messages.list_groups import ListedGroup
from kafka_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafka_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.primitives import random_uuid, uuid_text
from trio_broker.clock import Clock
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import ConfigResourceType
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.coordinator.reporting.description import GroupSnapshot
from trio_broker.coordinator.reporting.lag import ConsumerLag, consumer_lags
from trio_broker.coordinator.reporting.lag_collector import GroupLagReport, LagCollector
from trio_broker.coordinator.reporting.statistics import GroupStatistics, statistics_of
from trio_broker.coordinator.reporting.timeline import Rebalance
from trio_broker.coordinator.runtime.log import GroupLog, coordinator_code
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Now, RequestContext
from trio_broker.coordinator.runtime.shard import GroupShard, ShardContext
from trio_broker.coordinator.runtime.timer import CoordinatorTimer
from trio_broker.log_throttle import LogThrottle
from trio_broker.replication.replica_manager import ReplicaManager, RequiredOffset
from trio_broker.scheduled_task import ScheduledTask, run_scheduled
from trio_broker.yield_budget import YieldBudget

log = logging.getLogger(__name__)

ReleaseHandler = Callable[[], None]
"""Gives the handler slot of the request back; called before a request waits."""

MAX_REMEMBERED_HASHES = 4096
"""Group names whose partition is remembered, since the hash walks a name letter by letter."""

MAX_REMEMBERED_NAME_CHARACTERS = 255
"""Longer names are hashed anew each time, so that nobody fills the memory with them."""

MAX_MEMBER_ID_PREFIX_CHARACTERS = 255
"""How much of a client's own name goes into the member id it is given: it is kept for every member, and for everybody
who once asked."""

PARTITIONS_AT_ONCE = 1_000
"""Partitions of one OffsetFetch that are looked up before others have the event loop."""

LOADING_TASKS = 4
"""Shards loaded side by side: decoding is Python, so more would only wait for each other."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that ``group_id`` lives on; Kafka's tools compute the same one."""
    if len(group_id) <= MAX_REMEMBERED_NAME_CHARACTERS:
        return _remembered_partition(group_id, partition_count)
    return _partition(group_id, partition_count)


def _partition(group_id: str, partition_count: int) -> int:
    java_hash = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        java_hash = (31 * java_hash + (high << 8 | low)) & 0xFFFF_FFFF
    if java_hash >= 0x8000_0000:
        # The absolute value, but for the smallest int, which has none in Java and counts as 0.
        java_hash = (0x1_0000_0000 - java_hash) & 0x7FFF_FFFF
    return java_hash % partition_count


_remembered_partition = lru_cache(MAX_REMEMBERED_HASHES)(_partition)


class GroupCoordinator:
    """All groups that this broker coordinates."""

    def __init__(self, replicas: ReplicaManager, controller: Controller, config: BrokerConfig, clock: Clock) -> None:
        self.replicas = replicas
        self.controller = controller
        self.config = config
        self.clock = clock
        self.settings = config.group_coordinator
        self._shards: dict[int, GroupShard] = {}
        self._partition_count = 0
        self._timers: CoordinatorTimer[str] = CoordinatorTimer(self._on_timeout)
        self._lag_collector = LagCollector(replicas, clock, controller.image)
        self._rebalance_listeners: list[Callable[[str], None]] = []
        self._creating = trio.Lock()
        self._throttled_log = LogThrottle(log, clock)
        controller.subscribe(self._follow)

    # ---- living ---------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load what there is, ring alarms and let offsets expire, until cancelled."""
        interval_ms = self.settings.offsets_retention_check_interval_ms
        expiry = ScheduledTask("offset expiry", lambda: interval_ms, self.expire_offsets)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._timers.run)
            nursery.start_soon(run_scheduled, expiry)
            task_status.started()
            await self._take_over()

    def stop_waiting(self) -> None:
        """The broker stops: whoever waits for other members is answered now, and nobody begins to wait."""
        for shard in self._shards.values():
            shard.close(ErrorCode.NOT_COORDINATOR)

    async def _take_over(self) -> None:
        """Coordinate the groups of those partitions of ``__consumer_offsets`` that this broker has."""
        topic = self.replicas.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return
        if not self._shards:
            # Kafka, too, goes by the number at the start: groups would change their partition if it grew.
            self._partition_count = len(self.controller.image.topics[CONSUMER_OFFSETS_TOPIC].partitions)
        new = []
        for index, partition in topic.partitions.items():
            if index not in self._shards and index < self._partition_count:
                self._shards[index] = GroupShard(GroupLog(partition, self.replicas), self._shard_context())
                new.append(self._shards[index])
        limiter = trio.CapacityLimiter(LOADING_TASKS)
        async with trio.open_nursery() as nursery:
            for shard in new:
                nursery.start_soon(load, shard, limiter)

    def _shard_context(self) -> ShardContext:
        return ShardContext(
            settings=self.settings,
            now=lambda: Now(trio.current_time(), self.clock.now_ms()),
            image=self.controller.image,
            schedule=self._timers.schedule,
            log_throttled=self._throttled_log.warning,
            on_rebalance=self._notify_rebalance,
        )

    async def _follow(self, delta: MetadataDelta) -> None:
        """Topics came, went or grew."""
        if any(topic.name == CONSUMER_OFFSETS_TOPIC for topic in delta.deleted_topics):
            log.warning("%s was deleted: all groups and their offsets are gone", CONSUMER_OFFSETS_TOPIC)
            for shard in self._shards.values():
                shard.close(ErrorCode.NOT_COORDINATOR)
            self._shards.clear()
        if CONSUMER_OFFSETS_TOPIC in delta.changed_topics:
            await self._take_over()
        for resource in delta.changed_configs:
            if resource.type is ConfigResourceType.GROUP:
                for shard in self._active_shards():
                    shard.settings_changed(resource.name)
        for shard in self._active_shards():
            await shard.forget_topics(delta.deleted_topics)
            if delta.deleted_topics or delta.changed_topics:
                shard.topics_changed()
            await trio.lowlevel.checkpoint()

    def _on_timeout(self, group_id: str) -> None:
        shard = self._shards.get(partition_for(group_id, self._partition_count)) if self._shards else None
        if shard is not None and shard.is_active:
            shard.on_timeout(group_id)

    async def expire_offsets(self) -> None:
        """Forget offsets that were kept long enough, and groups of which nothing is left."""
        budget = YieldBudget()
        for shard in self._active_shards():
            for group_id in list(shard.groups):
                while shard.expire(group_id):
                    await budget.maybe_yield()
                await budget.maybe_yield()

    # ---- finding --------------------------------------------------------------------------------------------------

    async def find(self, group_id: str) -> None:
        """Make sure that this broker coordinates ``group_id``.

        Raises:
            KafkaError: ``COORDINATOR_NOT_AVAILABLE``: not now.
        """
        if CONSUMER_OFFSETS_TOPIC not in self.controller.image.topics:
            await self._create_topic()
        shard = self._shards.get(partition_for(group_id, self._partition_count)) if self._shards else None
        if shard is None or shard.is_closed or shard.log.partition.failure is not None:
            text = f"the partition of {CONSUMER_OFFSETS_TOPIC} for group {group_id!r} is not available"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _create_topic(self) -> None:
        async with self._creating:
            if CONSUMER_OFFSETS_TOPIC in self.controller.image.topics:
                return
            topic = NewTopic(
                name=CONSUMER_OFFSETS_TOPIC,
                num_partitions=self.config.group_coordinator.offsets_topic_num_partitions,
                replication_factor=self.config.group_coordinator.offsets_topic_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self.config.group_coordinator.offsets_topic_segment_bytes),
                },
            )
            [outcome] = await self.controller.create_topics([topic])
        if isinstance(outcome, KafkaError):
            log.error("%s cannot be created: %s", CONSUMER_OFFSETS_TOPIC, outcome)
            raise KafkaError(str(outcome), code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _shard(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard:
        """The shard of ``group_id``, ready to answer. Simple consumers of long ago commit for the empty group.

        Raises:
            KafkaError: ``INVALID_GROUP_ID``, ``NOT_COORDINATOR``, ``COORDINATOR_LOAD_IN_PROGRESS``.
        """
        if not group_id and not may_be_empty:
            raise KafkaError("a group's id is not empty", code=ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.get(partition_for(group_id, self._partition_count)) if self._shards else None
        if shard is None:
            raise KafkaError(f"group {group_id!r} is not coordinated here", code=ErrorCode.NOT_COORDINATOR)
        shard.require_active()
        return shard

    def _active_shards(self) -> Iterator[GroupShard]:
        for shard in list(self._shards.values()):
            if shard.is_active:
                yield shard

    # ---- members --------------------------------------------------------------------------------------------------

    async def join_group(
        self, request: JoinGroupRequest, context: RequestContext, release_handler: ReleaseHandler
    ) -> JoinGroupResponse:
        """Let a member join; the answer comes when the whole group has joined."""
        shard, future = self._shard(request.group_id), ResponseFuture()
        named_after = (request.group_instance_id or context.client_id)[:MAX_MEMBER_ID_PREFIX_CHARACTERS]
        shard.join(request, context, future, f"{named_after}-{uuid.uuid4()}")
        response: JoinGroupResponse = await self._response_of(shard, future, release_handler)
        return response

    async def sync_group(
        self, request: SyncGroupRequest, context: RequestContext, release_handler: ReleaseHandler
    ) -> SyncGroupResponse:
        """Give a member its assignment; the answer comes when the leader has brought it."""
        shard, future = self._shard(request.group_id), ResponseFuture()
        shard.sync(request, context, future)
        response: SyncGroupResponse = await self._response_of(shard, future, release_handler)
        return response

    async def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        """A sign of life of a classic member."""
        return HeartbeatResponse(error_code=self._shard(request.group_id).heartbeat(request, context))

    async def leave_group(
        self, request: LeaveGroupRequest, context: RequestContext, release_handler: ReleaseHandler
    ) -> LeaveGroupResponse:
        """Let members go."""
        shard, future = self._shard(request.group_id), ResponseFuture()
        shard.leave(request, context, future)
        response: LeaveGroupResponse = await self._response_of(shard, future, release_handler)
        return response

    async def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, release_handler: ReleaseHandler
    ) -> ConsumerGroupHeartbeatResponse:
        """Everything that a member of a consumer group says: joining, living, owning, leaving."""
        shard, future = self._shard(request.group_id), ResponseFuture()
        shard.consumer_heartbeat(request, context, future, uuid_text(random_uuid()))
        response: ConsumerGroupHeartbeatResponse = await self._response_of(shard, future, release_handler)
        return response

    # ---- offsets --------------------------------------------------------------------------------------------------

    async def commit_offsets(
        self, request: OffsetCommitRequest, context: RequestContext, release_handler: ReleaseHandler
    ) -> OffsetCommitResponse:
        """Remember positions. Topics go by name; that they exist is the caller's to check."""
        shard = self._shard(request.group_id, may_be_empty=True)
        response = shard.commit(request, context)
        await self._until_safe(shard, release_handler)
        return response

    async def fetch_offsets(
        self, request: OffsetFetchRequestGroup, release_handler: ReleaseHandler
    ) -> OffsetFetchResponseGroup:
        """The positions of one group, never one that a power cut could still take back."""
        shard = self._shard(request.group_id, may_be_empty=True)
        large = sum(len(topic.partition_indexes) for topic in request.topics or ()) > PARTITIONS_AT_ONCE
        response = await _fetched_in_parts(shard, request) if large else shard.fetch(request)
        await self._until_safe(shard, release_handler)
        return response

    async def delete_offsets(
        self, request: OffsetDeleteRequest, release_handler: ReleaseHandler
    ) -> OffsetDeleteResponse:
        """Forget positions of topics that nobody in the group is subscribed to."""
        shard = self._shard(request.group_id)
        response = shard.delete_offsets(request)
        await self._until_safe(shard, release_handler)
        return response

    async def delete_groups(
        self, group_ids: Sequence[str], release_handler: ReleaseHandler
    ) -> list[DeletableGroupResult]:
        """Delete each group that has no members, with its offsets; how each fared, in the order of ``group_ids``."""
        codes: dict[str, ErrorCode] = {}
        asked: dict[GroupShard, list[str]] = {}
        budget = YieldBudget()
        for group_id in group_ids:
            try:
                shard = self._shard(group_id, may_be_empty=True)
                asked.setdefault(shard, []).append(group_id)
                codes[group_id] = shard.delete_group(group_id)
            except KafkaError as error:
                codes[group_id] = error.code
            await budget.maybe_yield()
        for shard, its_groups in asked.items():
            try:
                await self._until_safe(shard, release_handler)
            except KafkaError as error:
                codes |= dict.fromkeys(its_groups, error.code)
        return [DeletableGroupResult(group_id=group_id, error_code=codes[group_id]) for group_id in group_ids]

    # ---- looking --------------------------------------------------------------------------------------------------

    def list_groups(self, states: set[str], types: set[str]) -> list[ListedGroup]:
        """The groups in one of ``states`` and of one of ``types``, both in lower case; an empty set lets all through.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``: the list would not be whole.
        """
        groups: list[ListedGroup] = []
        for shard in self._shards.values():
            shard.require_active()
            groups += (group.listed() for group in shard.groups.values())
        return [
            group
            for group in groups
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]

    def describe_group(self, group_id: str) -> DescribedGroup:
        """A classic group and its members.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND`` and the refusals of every request.
        """
        return self._shard(group_id, may_be_empty=True).describe(group_id)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """A consumer group and its members; errors as ``describe_group``."""
        return self._shard(group_id).describe_consumer_group(group_id)

    def descriptions(self) -> list[GroupSnapshot]:
        """All groups that are loaded, for people."""
        return [shard.description(group_id) for shard in self._active_shards() for group_id in shard.groups]

    def description(self, group_id: str) -> GroupSnapshot:
        """One group, for people; errors as ``describe_group``."""
        return self._shard(group_id, may_be_empty=True).description(group_id)

    def timeline(self, group_id: str) -> Sequence[Rebalance]:
        """Why the group rebalanced lately; errors as ``describe_group``."""
        return self._shard(group_id, may_be_empty=True).timeline(group_id)

    async def lags(self, group_id: str) -> list[ConsumerLag]:
        """How far the group is behind, in every partition it has committed; errors as ``describe_group``."""
        shard = self._shard(group_id, may_be_empty=True)
        return await consumer_lags(shard.description(group_id), shard.offsets, self.replicas, self.clock.now_ms())

    async def lag_report(self, *, with_partitions: bool = False) -> GroupLagReport:
        """All groups with their lag at one glance. Takes as long as there are groups, and lets others in between."""
        return await self._lag_collector.collect(self._shards.values(), with_partitions=with_partitions)

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call ``listener`` with the id of each group that has finished a rebalance, on the event loop."""
        self._rebalance_listeners.append(listener)

    def _notify_rebalance(self, group_id: str) -> None:
        for listener in self._rebalance_listeners:
            listener(group_id)

    def statistics(self) -> GroupStatistics:
        return statistics_of(self._shards.values())

    # ---- waiting --------------------------------------------------------------------------------------------------

    async def _response_of(self, shard: GroupShard, future: ResponseFuture, release_handler: ReleaseHandler) -> Any:
        """What the group answers, once it is true for good."""
        response = await future.wait(release_handler)
        if future.required_offset > shard.log.partition.high_watermark:
            await self._until_safe(shard, release_handler, future.required_offset)
        return response

    async def _until_safe(
        self, shard: GroupShard, release_handler: ReleaseHandler, required_offset: int | None = None
    ) -> None:
        """Wait until everything that the shard has written, or all before ``required_offset``, is safe.

        Raises:
            KafkaError: it could not be made safe, or not in time; whether it holds will show after a restart.
        """
        if required_offset is None:
            required_offset = shard.log.partition.log_end_offset
        if shard.log.partition.high_watermark >= required_offset:
            return
        [code] = await self.replicas.wait_until_replicated(
            [RequiredOffset(shard.log.partition, required_offset)],
            timeout_seconds=self.config.group_coordinator.offsets_commit_timeout_ms / 1000,
            release_handler=release_handler,
        )
        if code:
            text = f"{shard.log.partition.topic_partition}: not safe: {code.name}"
            raise KafkaError(text, code=coordinator_code(code))


async def _fetched_in_parts(shard: GroupShard, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    """As ``shard.fetch``, for a request that names topics and so many partitions that others have to come between."""
    budget = YieldBudget()
    answered = []
    for topic in request.topics or ():
        indexes = topic.partition_indexes
        whole = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=[])
        for start in range(0, len(indexes), PARTITIONS_AT_ONCE):
            part = OffsetFetchRequestTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_indexes=indexes[start : start + PARTITIONS_AT_ONCE],
            )
            asked = OffsetFetchRequestGroup(
                group_id=request.group_id,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                topics=[part],
            )
            shard.require_active()
            response = shard.fetch(asked)
            if response.error_code:
                return response
            whole.partitions += response.topics[0].partitions
            await budget.maybe_yield()
        answered.append(whole)
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=answered)


async def load(shard: GroupShard, limiter: trio.CapacityLimiter) -> None:
    """Load ``shard``; one that cannot be read stays closed, and the others go on."""
    async with limiter:
        await shard.load()
