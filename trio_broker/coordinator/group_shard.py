"""The groups and committed offsets of one partition of ``__consumer_offsets``.

Passes each request to its group, and carries out the result: records first, then responses, events and the timer. While
a group changes from one protocol to the other, the result of an event has the group that takes its place.

Committed offsets without a group are a group all the same, of the simplest kind: its consumers assign partitions to
themselves, and it is described as an empty classic group.

Source: Kafka's GroupCoordinatorShard and GroupMetadataManager.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_wire.messages.describe_groups import DescribedGroup
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.offset_delete import OffsetDeleteRequest
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.primitives import random_uuid, uuid_text
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.groups import GroupRecord, encode_group_record
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, TopicImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.resource_config import group_config
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.responses import join_error, join_request_error
from trio_broker.coordinator.consumer.group import COMMIT_BY_EPOCH_VERSION, ConsumerGroup
from trio_broker.coordinator.consumer.upgrade import upgraded
from trio_broker.coordinator.group_loading import Group, LoadedGroups
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
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, Rebalance
from trio_broker.coordinator.reporting.timeline import Timeline
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, CoordinatorShard
from trio_broker.coordinator.runtime.log import CoordinatorLog, coordinator_code
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorEvent, CoordinatorResult, Now, RequestContext
from trio_broker.steps import Steps
from trio_broker.yield_budget import YieldBudget

log = logging.getLogger(__name__)

TOMBSTONES_PER_BATCH = 1000
"""Offsets deleted in one batch: about 100 KB, well below the smallest ``message.max.bytes`` in use."""

MAX_MEMBER_ID_PREFIX_CHARACTERS = 255
"""How much of a client's own name goes into the member id it is given, which is kept for every member and every pending
one."""


class GroupShard(CoordinatorShard):
    """The groups of one partition. ``commits`` and ``rebalances`` count since the start."""

    def __init__(
        self,
        log: CoordinatorLog,
        runtime: CoordinatorRuntime[GroupShard],
        settings: GroupCoordinatorConfig,
        on_rebalance: Callable[[str], None] = lambda group_id: None,
    ) -> None:
        """``on_rebalance`` is called with each group that has finished a rebalance."""
        super().__init__(log, runtime)
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.commits = 0
        self.rebalances = 0
        self._timelines: dict[str, Timeline] = {}
        self._settings = settings
        self._on_rebalance = on_rebalance

    # ---- loading and closing --------------------------------------------------------------------------------------

    def new_replay(self) -> LoadedGroups:
        return LoadedGroups(self._settings)

    def restore(self, replay: LoadedGroups) -> None:
        self.groups, self.offsets = replay.groups(self.runtime.now()), replay.offsets
        for group_id in replay.consumer:
            self.settings_changed(group_id)
        for tombstones in replay.contradictory.values():
            self._append(tombstones)
        for group in self.groups.values():
            self.runtime.timer.schedule(group.group_id, group.next_deadline())

    def abandon(self, code: ErrorCode) -> None:
        for group in self.groups.values():
            self.complete(group.abandon(code).completions)
            self.runtime.timer.schedule(group.group_id, None)
        self.groups = {}

    # ---- members --------------------------------------------------------------------------------------------------

    def handle(self, request: Any, context: RequestContext) -> ResponseFuture:
        event = CoordinatorEvent(request, context, ResponseFuture(), self.runtime.now(), self.runtime.image)
        _HANDLERS[type(request)](self, event)
        return event.future

    def join(self, event: CoordinatorEvent[JoinGroupRequest]) -> None:
        """A member of the classic protocol joins, or joins again."""
        request, group = event.request, self.groups.get(event.request.group_id)
        code = join_request_error(request, self._settings)
        if group is None and request.member_id and not code:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            event.future.set_result(join_error(code, request.member_id))
            return
        records: list[GroupRecord] = []
        if group is None or (isinstance(group, ConsumerGroup) and group.is_deserted):
            records = [] if group is None else group.tombstones()
            group = ClassicGroup(request.group_id, self._settings, event.now)
            # Kafka writes the group before its first member, so that it exists even if no member ever comes.
            records.append(group.metadata_record())
        name = (request.group_instance_id or event.context.client_id)[:MAX_MEMBER_ID_PREFIX_CHARACTERS]
        event.new_member_id = f"{name}-{uuid.uuid4()}"
        result = group.join(event)
        # In one batch with the member's, so that the log never has two groups of one name.
        result.records[:0] = records
        self._commit_result(group, result)

    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> None:
        """A member of the classic protocol asks for its assignment."""
        group = self._group_or_empty(event.request.group_id, event.now)
        self._commit_result(group, group.sync(event))

    def heartbeat(self, event: CoordinatorEvent[HeartbeatRequest]) -> None:
        """A heartbeat of the classic protocol."""
        code = self._group_or_empty(event.request.group_id, event.now).heartbeat(event)
        # No record ever follows, so the response waits for nothing and the group's timer stays as it is.
        event.future.set_result(HeartbeatResponse(error_code=code))

    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> None:
        """Members leave, or are removed by an administrator."""
        group = self._group_or_empty(event.request.group_id, event.now)
        self._commit_result(group, group.leave(event))

    def _group_or_empty(self, group_id: str, now: Now) -> Group:
        """A group that does not exist knows no member, as an empty one, which is not kept without records."""
        return self.groups.get(group_id) or ClassicGroup(group_id, self._settings, now)

    def consumer_heartbeat(self, event: CoordinatorEvent[ConsumerGroupHeartbeatRequest]) -> None:
        """A heartbeat of the consumer protocol."""
        group_id = event.request.group_id
        group = self.groups.get(group_id)
        event.new_member_id = uuid_text(random_uuid())
        if isinstance(group, ClassicGroup):
            group, result = upgraded(group, self._settings_of(group_id), event)
        else:
            group = group or ConsumerGroup(group_id, self._settings_of(group_id))
            result = group.consumer_heartbeat(event)
        self._commit_result(group, result)

    def on_timeout(self, key: str) -> None:
        """The timer of a group has run: something may be due."""
        if (group := self.groups.get(key)) is not None:
            self._commit_result(group, group.tick(self.runtime.now(), self.runtime.image))

    def topics_changed(self) -> None:
        """Topics were created, deleted or grown."""
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                group.metadata_changed()
                self.runtime.timer.schedule(group.group_id, group.next_deadline())

    def settings_changed(self, group_id: str) -> None:
        """Let a consumer group follow its own settings; a member learns them with its next heartbeat."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.settings = self._settings_of(group_id)

    def _settings_of(self, group_id: str) -> GroupCoordinatorConfig:
        """The broker's settings, with the group's own in their places."""
        own = self.runtime.image.configs(ConfigResource(ConfigResourceType.GROUP, group_id))
        return group_config(own, self._settings)

    # ---- results of events ----------------------------------------------------------------------------------------

    def _commit_result(self, group: Group, result: CoordinatorResult) -> None:
        """Append the records of ``result``, let the group change, complete futures and reschedule the group's timer.

        A group that is new, or the successor of another, is registered with its first records, or dropped if the log
        refuses them or there are none.
        """
        before, code = self.groups.get(group.group_id), self._append_result(group, result)
        if result.records and not code:
            group = self.groups[group.group_id] = result.successor or group
        # Before the responses and the timeline: these tell of the group as the records have made it.
        if result.on_append is not None:
            result.extend(result.on_append(code))
        if code and before is not group:
            # It was to be registered with the records. No later event would complete the requests that wait in it.
            result.extend(group.abandon(code))
        self.complete(result.completions)
        if self.groups.get(group.group_id) is not group:
            return
        if before is not None and before is not group:
            # Members whose requests wait in the classic group that became a consumer group join that.
            self.complete(before.abandon(ErrorCode.REBALANCE_IN_PROGRESS).completions)
        if result.events:
            timeline = self._timelines.setdefault(group.group_id, Timeline())
            if ended := timeline.record(result.events, len(group.members)):
                self.rebalances += ended
                self._on_rebalance(group.group_id)
        self.runtime.timer.schedule(group.group_id, group.next_deadline())

    def _append_result(self, group: Group, result: CoordinatorResult) -> ErrorCode:
        """NONE, or why the log refuses the records of ``result``, of which it then has none."""
        if not result.records:
            return ErrorCode.NONE
        try:
            self._append(result.records)
        except KafkaError as error:
            # Clients can cause this at any rate, by what is too large for a record.
            text = f"group {group.group_id!r:.200}: a change is not written: {error}"
            self.runtime.throttled_log.warning(error.code.name, text)
            return coordinator_code(error.code)
        return ErrorCode.NONE

    def _append(self, records: Iterable[GroupRecord]) -> None:
        """Append all of ``records`` or none.

        Raises:
            KafkaError: none was appended.
        """
        now_ms = self.runtime.now().wall_ms
        try:
            encoded = [NewRecord(now_ms, *encode_group_record(record)) for record in records]
        except ValueError as error:
            raise KafkaError(f"no record can hold this: {error}", code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
        self.log.append(encoded)

    # ---- offsets --------------------------------------------------------------------------------------------------

    def commit(self, event: CoordinatorEvent[OffsetCommitRequest]) -> None:
        """Commit offsets, if the group allows it.

        Raises:
            KafkaError: nothing was committed.
        """
        request, now, group = event.request, event.now, self.groups.get(event.request.group_id)
        if group is not None:
            code = group.validate_offset_commit(request, event.context.version, now)
        elif request.generation_id_or_member_epoch < 0:
            code = ErrorCode.NONE
        else:
            by_epoch = event.context.version >= COMMIT_BY_EPOCH_VERSION
            code = ErrorCode.GROUP_ID_NOT_FOUND if by_epoch else ErrorCode.ILLEGAL_GENERATION
        if code:
            raise KafkaError(f"group {request.group_id!r} refuses the commit", code=code)
        if (size := least_batch_bytes(request)) > self.log.max_batch_bytes:
            # Checked before the work is done: a hundred thousand partitions fit into a request, but not into a batch.
            text = f"group {request.group_id!r:.200}: a commit of {size} bytes or more"
            raise KafkaError(text, code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        commit = commit_records(request, self._settings, now)
        if commit.records:
            self._append_commit(commit.records)
            if group is None:
                self.groups[request.group_id] = ClassicGroup(request.group_id, self._settings, now)
        event.future.set_result(commit.response, self.log.required_offset)

    def _append_commit(self, records: Sequence[NewRecord]) -> None:
        try:
            self.log.append(records)
        except KafkaError as error:
            too_large = error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
            code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else coordinator_code(error.code)
            raise KafkaError(str(error), code=code) from error
        put = self.offsets.put
        for record in records:
            put(record.key or b"", record.value)
        self.commits += len(records)

    def fetch(self, request: OffsetFetchRequestGroup) -> Steps[OffsetFetchResponseGroup]:
        """The committed offsets of a group. Without transactions all of them are stable. Yields if they are many."""
        group = self.groups.get(request.group_id)
        if group is not None and (code := group.validate_offset_fetch(request.member_id, request.member_epoch)):
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=[], error_code=code)
        response = yield from fetched_offsets(self.offsets, request)
        self.require_active()
        return response

    def delete_offsets(self, event: CoordinatorEvent[OffsetDeleteRequest]) -> None:
        """Delete offsets, but for those of topics that the group is subscribed to.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND``, ``NON_EMPTY_GROUP``; nothing was deleted.
        """
        group = self._known(event.request.group_id)
        if code := group.validate_offset_delete():
            raise KafkaError(f"group {event.request.group_id!r} is in use", code=code)
        deletion = delete_records(self.offsets, event.request, group)
        self._append_offset_tombstones(deletion.records)
        event.future.set_result(deletion.response, self.log.required_offset)

    def delete_group(self, group_id: str, *, validate_only: bool = False) -> ErrorCode:
        """Delete a group that has no members, and its offsets; with ``validate_only`` say whether that would be done.

        Raises:
            KafkaError: the log refused; nothing was deleted, or only some of the offsets.
        """
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if (code := group.validate_delete_group()) or validate_only:
            return code
        # The group last: if the log refuses half-way, it is there to be deleted once more.
        self._append_offset_tombstones(group_tombstones(self.offsets, group_id))
        self._delete(group)
        return ErrorCode.NONE

    def expire(self, group_id: str) -> bool:
        """Delete offsets of a group that have expired, a batch of them, and the group if it has neither offsets nor
        members left; return whether there may be more to delete.
        """
        group, now, limit = self.groups.get(group_id), self.runtime.now(), TOMBSTONES_PER_BATCH
        if group is None:
            return False
        expired = expired_offsets(self.offsets, group_id, group, self._settings, now, at_most=limit)
        try:
            self._append_offset_tombstones(expired)
            if group.is_deserted and not self.offsets.has_offsets(group_id):
                self._delete(group)
        except KafkaError as error:
            log.error("group %.200r: offsets that expired are kept: %s", group_id, error)
            return False
        return len(expired) == limit

    async def delete_topics(self, topics: Collection[TopicImage]) -> None:
        """Delete the offsets in topics that were deleted. Yields between groups."""
        budget = YieldBudget()
        for topic in topics:
            for group_id in self.offsets.groups_with_topic(topic.name):
                tombstones = topic_tombstones(self.offsets, group_id, topic.name, topic.topic_id)
                try:
                    self._append_offset_tombstones(tombstones)
                except KafkaError as error:
                    log.error("group %.200r: offsets in the deleted %s are kept: %s", group_id, topic.name, error)
                await budget.maybe_yield()
                if not self.is_active:
                    return

    def _append_offset_tombstones(self, tombstones: Sequence[GroupRecord]) -> None:
        for start in range(0, len(tombstones), TOMBSTONES_PER_BATCH):
            part = tombstones[start : start + TOMBSTONES_PER_BATCH]
            self._append(part)
            for record in part:
                self.offsets.apply(record)

    def _delete(self, group: Group) -> None:
        self._append(group.tombstones())
        del self.groups[group.group_id]
        self._timelines.pop(group.group_id, None)
        self.runtime.timer.schedule(group.group_id, None)

    # ---- reporting ------------------------------------------------------------------------------------------------

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
            return group.describe(self.runtime.image)
        raise KafkaError(f"group {group_id!r} is not a consumer group", code=ErrorCode.GROUP_ID_NOT_FOUND)

    def snapshot(self, group_id: str, *, with_members: bool = True) -> GroupSnapshot:
        """A group of either protocol; errors as ``describe``."""
        return self._known(group_id).snapshot(self.runtime.image, with_members=with_members)

    def timeline(self, group_id: str) -> Sequence[Rebalance]:
        """The recent rebalances of a group; errors as ``describe``."""
        group, timeline = self._known(group_id), self._timelines.get(group_id)
        return [] if timeline is None else timeline.rebalances(len(group.members))

    def last_rebalance_at_ms(self, group_id: str) -> int | None:
        """When the latest rebalance of a group began, None if it never rebalanced."""
        timeline = self._timelines.get(group_id)
        return None if timeline is None else timeline.latest_started_at_ms


_HANDLERS: dict[type, Callable[[GroupShard, Any], None]] = {
    JoinGroupRequest: GroupShard.join,
    SyncGroupRequest: GroupShard.sync,
    HeartbeatRequest: GroupShard.heartbeat,
    LeaveGroupRequest: GroupShard.leave,
    ConsumerGroupHeartbeatRequest: GroupShard.consumer_heartbeat,
    OffsetCommitRequest: GroupShard.commit,
    OffsetDeleteRequest: GroupShard.delete_offsets,
}
