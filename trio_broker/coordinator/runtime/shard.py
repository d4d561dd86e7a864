"""One partition of ``__consumer_offsets``, and the groups and committed offsets that live on it.

The runner of the state machines: it tells a group what happens, and does what the group says. Records go into the log
before anything else: either all that an event changes is written, or the event is answered with why not. Everything
happens between two checkpoints, so nothing can come between.

Committed offsets without a group are a group all the same, of the simplest kind: its consumers assign partitions
themselves, and it is described as an empty classic group.

Source: Kafka's CoordinatorRuntime, GroupCoordinatorShard and GroupMetadataManager.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Iterable, Sequence

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafka_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.groups import GroupMetadataKey, GroupRecord, encode_group_record
from trio_broker.cluster.metadata_delta import DeletedTopic
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.resource_config import group_config
from trio_broker.coordinator import migration
from trio_broker.coordinator.classic import protocols as classic_protocols
from trio_broker.coordinator.classic import responses as classic_responses
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.member import JOIN_EPOCH
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.offsets.expiry import expired_offsets
from trio_broker.coordinator.offsets.requests import (
    commit_records,
    delete_records,
    fetched_offsets,
    group_tombstones,
    least_batch_bytes,
    topic_tombstones,
)
from trio_broker.coordinator.reporting.description import GroupSnapshot
from trio_broker.coordinator.reporting.timeline import Rebalance, Timeline
from trio_broker.coordinator.runtime.loading import LoadedGroups
from trio_broker.coordinator.runtime.log import GroupLog, coordinator_code
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEvent, Now, RequestContext
from trio_broker.yield_budget import YieldBudget

log = logging.getLogger(__name__)

Group = ClassicGroup | ConsumerGroup

LOAD_ATTEMPTS = 3
"""How often a shard is read before it stays closed: compaction may move segments under the first reading."""

LOAD_RETRY_SECONDS = 1.0

TOMBSTONES_PER_BATCH = 1000
"""Offsets forgotten in one batch: about 100 KB, well below the smallest ``message.max.bytes`` anybody sets."""

COMMIT_BY_EPOCH_SINCE_VERSION = 9
"""KIP-848: from this version of OffsetCommit on, an unknown group is GROUP_ID_NOT_FOUND."""


class ShardState(enum.Enum):
    LOADING = enum.auto()
    ACTIVE = enum.auto()
    CLOSED = enum.auto()


@attrs.frozen
class ShardContext:
    """What a shard needs of the broker. ``schedule`` sets a group's timer; ``image`` is the cluster's current metadata.

    ``on_rebalance`` is called with each group that has finished a rebalance. ``log_throttled`` logs what clients can
    cause at any rate: the kind, of which there are few, limits it, then comes the text.
    """

    settings: GroupCoordinatorConfig
    now: Callable[[], Now]
    image: MetadataImage
    schedule: Callable[[str, float | None], None]
    log_throttled: Callable[[str, str], None]
    on_rebalance: Callable[[str], None] = lambda group_id: None


class GroupShard:
    """The groups of one partition. ``commits`` and ``rebalances`` count since the start."""

    def __init__(self, log: GroupLog, shard_context: ShardContext) -> None:
        self.log = log
        self.state = ShardState.LOADING
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.commits = 0
        self.rebalances = 0
        self._timelines: dict[str, Timeline] = {}
        self._settings = shard_context.settings
        self._now = shard_context.now
        self._image = shard_context.image
        self._schedule = shard_context.schedule
        self._on_rebalance = shard_context.on_rebalance
        self._log_throttled = shard_context.log_throttled

    # ---- opening and closing --------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    @property
    def is_closed(self) -> bool:
        return self.state is ShardState.CLOSED

    def require_active(self) -> None:
        """Refuse while the shard cannot answer.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``, ``NOT_COORDINATOR``.
        """
        if self.state is ShardState.ACTIVE and self.log.partition.failure is None:
            return
        if self.state is ShardState.LOADING:
            text = f"{self.log.partition.topic_partition} is being loaded"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(f"{self.log.partition.topic_partition} is closed", code=ErrorCode.NOT_COORDINATOR)

    async def load(self) -> None:
        """Read everything back; the shard is active then, or closed if its log cannot be read."""
        for attempt in range(1, LOAD_ATTEMPTS + 1):
            try:
                await self._load()
            except Exception:
                log.exception("%s cannot be loaded, attempt %d", self.log.partition.topic_partition, attempt)
                await trio.sleep(LOAD_RETRY_SECONDS)
            else:
                return
        self.close(ErrorCode.NOT_COORDINATOR)

    async def _load(self) -> None:
        loaded = LoadedGroups(self._settings)
        async for part in self.log.slices():
            for record in part.records:
                try:
                    loaded.fold(record)
                except WireError as error:
                    log.error("%s: a record is passed over: %s", self.log.partition.topic_partition, error)
            await trio.lowlevel.checkpoint()
        await self.log.ready_to_append()
        if self.state is not ShardState.LOADING:
            return  # closed meanwhile
        self.groups, self.offsets = loaded.groups(self._now()), loaded.offsets
        for group_id in loaded.consumer:
            self.settings_changed(group_id)
        self.state = ShardState.ACTIVE
        for tombstones in loaded.contradictory.values():
            self._append(tombstones)
        for group in self.groups.values():
            self._schedule(group.group_id, group.next_deadline())

    def close(self, code: ErrorCode) -> None:
        """Give up: whoever waits is answered with ``code``, and nobody is answered any more."""
        self.state = ShardState.CLOSED
        for group in self.groups.values():
            self._complete_futures(group.abandon(code))
            self._schedule(group.group_id, None)
        self.groups = {}

    # ---- members --------------------------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, context: RequestContext, future: ResponseFuture, new_member_id: str
    ) -> None:
        """A member of the classic protocol joins, or joins again."""
        if classic_protocols.are_too_much(request.protocols):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            future.set_result(classic_responses.join_error(context.version, code, request.member_id))
            return
        now, group = self._now(), self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            result = group.classic_join(request, context, future, now, self._image, new_member_id=new_member_id)
            self._commit_result(group, result, now)
            return
        if group is None and request.member_id:
            future.set_result(
                classic_responses.join_error(context.version, ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            )
            return
        gone: list[GroupRecord] = []
        if isinstance(group, ConsumerGroup):
            gone = group.tombstones()
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup(request.group_id, self._settings, now)
        result = group.join(request, context, future, now, new_member_id=new_member_id)
        if not group.is_unused:
            result.records[:0] = gone
        self._commit_result(group, result, now)

    def sync(self, request: SyncGroupRequest, context: RequestContext, future: ResponseFuture) -> None:
        """A member of the classic protocol asks for its assignment."""
        now, group = self._now(), self.groups.get(request.group_id)
        if group is None:
            future.set_result(classic_responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        elif isinstance(group, ClassicGroup):
            self._commit_result(group, group.sync(request, context, future, now), now)
        else:
            self._commit_result(group, group.classic_sync(request, context, future, now, self._image), now)

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> ErrorCode:
        """A member of the classic protocol lives."""
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ClassicGroup):
            return group.heartbeat(request, context, self._now())
        return group.classic_heartbeat(request, context, self._now())

    def leave(self, request: LeaveGroupRequest, context: RequestContext, future: ResponseFuture) -> None:
        """Members leave, or are removed by an administrator."""
        now, group = self._now(), self.groups.get(request.group_id)
        if group is None:
            future.set_result(classic_responses.leave_error(request, context.version, ErrorCode.UNKNOWN_MEMBER_ID))
        elif isinstance(group, ClassicGroup):
            self._commit_result(group, group.leave(request, context, future, now), now)
        else:
            self._commit_result(group, group.classic_leave(request, context, future, now, self._image), now)

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        future: ResponseFuture,
        new_member_id: str,
    ) -> None:
        """A member of the consumer protocol says what it has to say."""
        now, known = self._now(), self.groups.get(request.group_id)
        if isinstance(known, ClassicGroup):
            self._upgrade(known, request, context, future, now, new_member_id)
            return
        group = known or ConsumerGroup(request.group_id, self._settings_of(request.group_id))
        result = group.heartbeat(request, context, future, now, self._image, new_member_id=new_member_id)
        self._commit_result(group, result, now)

    def _upgrade(
        self,
        classic: ClassicGroup,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        future: ResponseFuture,
        now: Now,
        new_member_id: str,
    ) -> None:
        """A member of the consumer protocol comes to a classic group, which becomes a consumer group if it may."""
        try:
            if request.member_epoch != JOIN_EPOCH or not migration.may_upgrade(classic):
                raise migration.CannotUpgrade("it is a classic group")
            group, records = migration.upgraded(classic, self._settings_of(classic.group_id), now, self._image)
        except migration.CannotUpgrade as reason:
            # What is wrong with the request itself is said first, as by any group that is not there.
            group = ConsumerGroup(request.group_id, self._settings_of(request.group_id))
            result = group.heartbeat(request, context, future, now, self._image, new_member_id=new_member_id)
            if result.records:
                text = f"group {classic.group_id} is not a consumer group: {reason}"
                future.set_result(
                    ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=text)
                )
            else:
                self._complete_futures(result)
            return
        result = group.heartbeat(request, context, future, now, self._image, new_member_id=new_member_id)
        if not result.records:
            # It was refused, and a request that is refused converts nothing.
            self._complete_futures(result)
            return
        result.records[:0] = records
        result.extend(migration.upgrade_effects(group, now))
        self._commit_result(group, result, now)
        if self.groups[group.group_id] is group:
            self._complete_futures(classic.abandon(ErrorCode.REBALANCE_IN_PROGRESS))

    def on_timeout(self, group_id: str) -> None:
        """The timer of a group has run: something may be due."""
        now, group = self._now(), self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self._commit_result(group, group.tick(now), now)
        elif group is not None:
            self._commit_result(group, group.tick(now, self._image), now)

    def topics_changed(self) -> None:
        """Topics came, went or grew."""
        now = self._now()
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.metadata_changed(self._image, now)
                self._schedule(group.group_id, group.next_deadline())

    def settings_changed(self, group_id: str) -> None:
        """Let a consumer group follow its own settings; a member learns of them with its next heartbeat."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.settings = self._settings_of(group_id)

    def _settings_of(self, group_id: str) -> GroupCoordinatorConfig:
        """The broker's settings with those that the group has of its own in their places."""
        own = self._image.configs(ConfigResource(ConfigResourceType.GROUP, group_id))
        return group_config(own, self._settings)

    # ---- doing what a group says ----------------------------------------------------------------------------------

    def _commit_result(self, group: Group, result: CoordinatorResult, now: Now) -> None:
        """Do what ``group`` says after an event; a group that is new, or takes the place of another, begins by it."""
        becomes: Group = group
        if isinstance(group, ConsumerGroup) and group.downgrade is not None:
            downgraded = migration.downgraded(group, now, self._image)
            becomes = downgraded.group
            result.extend(downgraded.result)
        if result.records:
            try:
                self._append(result.records)
            except KafkaError as error:
                # Clients cause this as often as they like, by what is too large for a record.
                self._log_throttled(error.code.name, f"group {group.group_id!r:.200}: a change is not written: {error}")
                self._roll_back(group, result, coordinator_code(error.code), now)
                return
            if isinstance(becomes, ConsumerGroup):
                self._apply(becomes, result.records)
        if self._is_worth_keeping(becomes):
            self.groups[group.group_id] = becomes
        self._complete(becomes, result)

    def _roll_back(self, group: Group, result: CoordinatorResult, code: ErrorCode, now: Now) -> None:
        """Do what is left to do when the log has refused."""
        instead = group.write_failed(result, code, now)
        if self.groups.get(group.group_id) is not group:
            # It would have been new, or taken the place of another; now nobody would ever answer those who wait in it.
            instead.extend(group.abandon(code))
        self._complete(group, instead)

    def _complete(self, group: Group, result: CoordinatorResult) -> None:
        """Complete the futures, record the events and reschedule the group's timer."""
        self._complete_futures(result)
        if self.groups.get(group.group_id) is not group:
            return
        if result.events:
            self._record_event(group, result.events)
        if isinstance(group, ClassicGroup) and group.is_unused and not self.offsets.has_offsets(group.group_id):
            self._drop(group)
        else:
            self._schedule(group.group_id, group.next_deadline())

    def _record_event(self, group: Group, events: Sequence[GroupEvent]) -> None:
        timeline = self._timelines.setdefault(group.group_id, Timeline())
        if ended := timeline.record(events, len(group.members)):
            self.rebalances += ended
            self._on_rebalance(group.group_id)

    def _drop(self, group: Group) -> None:
        """Forget a group of which the log has nothing."""
        del self.groups[group.group_id]
        self._timelines.pop(group.group_id, None)
        self._schedule(group.group_id, None)

    def _complete_futures(self, result: CoordinatorResult) -> None:
        required_offset = self.log.required_offset
        for completion in result.completions:
            completion.future.set_result(completion.response, required_offset)

    def _is_worth_keeping(self, group: Group) -> bool:
        return group.exists if isinstance(group, ConsumerGroup) else not group.is_unused

    def _append(self, records: Iterable[GroupRecord]) -> None:
        """Append all of ``records`` or none.

        Raises:
            KafkaError: none.
        """
        now_ms = self._now().wall_ms
        try:
            encoded = [NewRecord(now_ms, *encode_group_record(record)) for record in records]
        except ValueError as error:
            raise KafkaError(f"no record can hold this: {error}", code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
        self.log.append(encoded)

    def _apply(self, group: ConsumerGroup, records: Iterable[GroupRecord]) -> None:
        for record in records:
            # The tombstone of the classic group that it was is none of its own.
            if not isinstance(record.key, GroupMetadataKey):
                group.apply(record)

    # ---- offsets --------------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
        """Remember positions, if the group lets the one who asks.

        Raises:
            KafkaError: nothing was remembered.
        """
        now, group = self._now(), self.groups.get(request.group_id)
        code = commit_error(group, request, context, now)
        if code:
            raise KafkaError(f"group {request.group_id!r} refuses the commit", code=code)
        if (size := least_batch_bytes(request)) > self.log.max_batch_bytes:
            # Said before the work is done: a hundred thousand partitions fit into a request, but not into a batch.
            text = f"group {request.group_id!r:.200}: a commit of {size} bytes or more"
            raise KafkaError(text, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        commit = commit_records(request, self._settings, now)
        if commit.records:
            self._append_commit(commit.records)
            if group is None:
                self.groups[request.group_id] = ClassicGroup(request.group_id, self._settings, now)
        return commit.response

    def _append_commit(self, records: Sequence[NewRecord]) -> None:
        try:
            self.log.append(records)
        except KafkaError as error:
            too_large = error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else coordinator_code(error.code)
            raise KafkaError(str(error), code=code) from error
        put = self.offsets.put
        for record in records:
            assert record.key is not None
            put(record.key, record.value)
        self.commits += len(records)

    def fetch(self, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        """The positions of a group. No transaction is ever open, so all of them are stable."""
        group = self.groups.get(request.group_id)
        if group is not None and (code := group.validate_offset_fetch(request.member_id, request.member_epoch)):
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=[], error_code=code)
        return fetched_offsets(self.offsets, request)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        """Forget positions, but for those of topics the group is subscribed to.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND``, ``NON_EMPTY_GROUP``; nothing was forgotten.
        """
        group = self._known(request.group_id)
        if code := group.validate_offset_delete():
            raise KafkaError(f"group {request.group_id!r} is in use", code=code)
        deletion = delete_records(self.offsets, request, group)
        self._forget(deletion.records)
        return deletion.response

    def delete_group(self, group_id: str) -> ErrorCode:
        """Forget a group that has no members, and its offsets.

        Raises:
            KafkaError: it could not be written; nothing was forgotten, or not all of the offsets.
        """
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if code := group.validate_delete_group():
            return code
        self._forget(group_tombstones(self.offsets, group_id))
        self._remove(group)
        return ErrorCode.NONE

    def expire(self, group_id: str) -> bool:
        """Forget offsets of a group that were kept long enough, a batch of them, and the group when nothing is left of
        it; return whether there may be more to forget."""
        group, now = self.groups.get(group_id), self._now()
        if group is None:
            return False
        limit = TOMBSTONES_PER_BATCH
        expired = expired_offsets(self.offsets, group_id, group, self._settings, now, at_most=limit)
        try:
            self._forget(expired)
            is_deserted = group.is_deserted if isinstance(group, ClassicGroup) else group.is_empty
            if is_deserted and not self.offsets.has_offsets(group_id):
                self._remove(group)
        except KafkaError as error:
            log.error("group %.200r: offsets that expired are kept: %s", group_id, error)
            return False
        return len(expired) == limit

    async def forget_topics(self, topics: Collection[DeletedTopic]) -> None:
        """Forget what was committed in topics that were deleted, and let others come between groups."""
        budget = YieldBudget()
        for topic in topics:
            for group_id in self.offsets.groups_with_topic(topic.name):
                try:
                    self._forget(topic_tombstones(self.offsets, group_id, topic.name, topic.topic_id))
                except KafkaError as error:
                    log.error(
                        "group %.200r: offsets in %s, which is deleted, are kept: %s", group_id, topic.name, error
                    )
                await budget.maybe_yield()
                if not self.is_active:
                    return

    def _forget(self, tombstones: Sequence[GroupRecord]) -> None:
        for start in range(0, len(tombstones), TOMBSTONES_PER_BATCH):
            part = tombstones[start : start + TOMBSTONES_PER_BATCH]
            self._append(part)
            for record in part:
                self.offsets.apply(record)

    def _remove(self, group: Group) -> None:
        self._append(group.tombstones())
        self._drop(group)

    # ---- looking --------------------------------------------------------------------------------------------------

    def _known(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(f"Group {group_id} not found.", code=ErrorCode.GROUP_ID_NOT_FOUND)
        return group

    def describe(self, group_id: str) -> DescribedGroup:
        """A classic group and its members.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND``.
        """
        group = self._known(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        raise KafkaError(f"group {group_id!r} is not a classic group", code=ErrorCode.GROUP_ID_NOT_FOUND)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """A consumer group and its members; errors as ``describe``."""
        group = self._known(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe(self._image)
        raise KafkaError(f"group {group_id!r} is not a consumer group", code=ErrorCode.GROUP_ID_NOT_FOUND)

    def description(self, group_id: str) -> GroupSnapshot:
        """Any group, for people; errors as ``describe``."""
        group = self._known(group_id)
        return group.description() if isinstance(group, ClassicGroup) else group.description(self._image)

    def timeline(self, group_id: str) -> Sequence[Rebalance]:
        """The recent rebalances of a group; errors as ``describe``."""
        group, timeline = self._known(group_id), self._timelines.get(group_id)
        return [] if timeline is None else timeline.rebalances(len(group.members))


def commit_error(group: Group | None, request: OffsetCommitRequest, context: RequestContext, now: Now) -> ErrorCode:
    """Whether whoever asks may commit; anyone may without an epoch where there is no group."""
    epoch = request.generation_id_or_member_epoch
    if isinstance(group, ClassicGroup):
        return group.validate_offset_commit(request.member_id, request.group_instance_id, epoch, context.version, now)
    if group is not None:
        partitions = (
            (topic.topic_id, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        return group.validate_offset_commit(
            request.member_id, request.group_instance_id, epoch, context.version, now, partitions
        )
    if epoch < 0:
        return ErrorCode.NONE
    by_epoch = context.version >= COMMIT_BY_EPOCH_SINCE_VERSION
    return ErrorCode.GROUP_ID_NOT_FOUND if by_epoch else ErrorCode.ILLEGAL_GENERATION
