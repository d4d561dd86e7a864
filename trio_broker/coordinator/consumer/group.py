"""A consumer group of KIP-848: the broker assigns, and members say and learn everything in heartbeats.

A member's heartbeat says what changed since the one before, and is answered with the member's epoch and, if it changed,
its assignment. The group is a fold over its records (``stored_group``). Each event is a ``ConsumerGroupUpdate``, whose
records are folded in once they are appended.

The timers are not in records: a member that is silent, or does not give up its partitions in time, is removed.

Members that speak the classic protocol may be in the group, too, while its applications move from one protocol to the
other (``classic_members``). When only such members are left, the group becomes a classic one (``downgrade``).

Where this differs from Kafka: regular expressions have a greatest length and a greatest size (``topic_patterns``); the
hash of the topics is another one (``target_assignment``); a clock that is put back delays neither targets nor
resolutions; and errors are worded otherwise.

Source: Kafka's GroupMetadataManager and ConsumerGroup, 4.3.1; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import DescribedGroup
from kafka_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.stored.groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    GroupRecord,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import first_join
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.classic.responses import join_error, refused_completions, sync_error
from trio_broker.coordinator.consumer import classic_members, descriptions
from trio_broker.coordinator.consumer.downgrade import downgraded
from trio_broker.coordinator.consumer.group_patterns import GroupPatterns
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate
from trio_broker.coordinator.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED_TIMEOUT,
    ConsumerMember,
    MemberState,
    PartitionEpochs,
    owns_no_more_than,
)
from trio_broker.coordinator.consumer.member_timers import MAX_DUE_AT_ONCE, DueMember, MemberTimer, MemberTimers
from trio_broker.coordinator.consumer.records import group_tombstones
from trio_broker.coordinator.consumer.requests import MAX_ID_CHARACTERS, check_heartbeat
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState, StoredConsumerGroup
from trio_broker.coordinator.consumer.target_assignment import TopicIds
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.offsets.expiry import OffsetRetention
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, Now, RequestContext

EVICTION_RETRY_SECONDS = 0.5
"""After which a member is removed once more when the log did not take it the first time, as in Kafka."""

MAX_DUE_BYTES = 300_000
"""What the names of members that are removed together may take; they stand in three records of each member, which have
to fit into one batch of 1 MB, the default of ``message.max.bytes``."""

MAX_ID_BYTES = 4 * MAX_ID_CHARACTERS

AT_ONCE = 0.0
"""A deadline before any other."""

COMMIT_BY_EPOCH_VERSION = 9
"""From this version of OffsetCommit on a commit can carry a member epoch."""


class ConsumerGroup:
    """One group. A request is always answered by the event that brings it."""

    type: Final = GroupType.CONSUMER
    protocol_type: Final = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str, settings: GroupCoordinatorConfig) -> None:
        self.group_id = group_id
        self.settings = settings
        self.stored = StoredConsumerGroup(group_id)
        self.timers = MemberTimers()
        self.patterns = GroupPatterns()
        self.knows_topics = False
        """Whether the group's epoch is for the topics as they are now."""
        self._topic_ids = TopicIds(MetadataImage())
        self._seconds = 0.0
        """The time of the last event, for timers that begin with a record."""

    @property
    def state(self) -> ConsumerGroupState:
        return self.stored.state

    @property
    def group_epoch(self) -> int:
        return self.stored.group_epoch

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        return self.stored.members

    @property
    def exists(self) -> bool:
        """Whether any record of the group is in the log. Without one, the group is only in memory."""
        return self.stored.exists

    @property
    def is_deserted(self) -> bool:
        """Whether the group has no members."""
        return not self.stored.members

    # ---- the consumer protocol ------------------------------------------------------------------------------------

    def consumer_heartbeat(self, event: CoordinatorEvent[ConsumerGroupHeartbeatRequest]) -> GroupResult:
        """Everything that a member of the consumer protocol asks for. Version 0 lets the broker make the member's id
        (KIP-1082).
        """
        request, context, now, image = event.request, event.context, event.now, event.image
        update = self._update(now, image, context.may_see)
        try:
            check_heartbeat(request, context.version, self.settings.group_consumer_assignors)
            if not self.exists and request.member_epoch != JOIN_EPOCH:
                raise KafkaError(f"there is no consumer group {self.group_id}", code=ErrorCode.GROUP_ID_NOT_FOUND)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(update, request)
            else:
                response = self._join_or_stay(update, request, context, event.new_id)
        except KafkaError as error:
            # What the update had collected is dropped with it.
            update = self._update(now, image)
            member = self.stored.members.get(request.member_id)
            if error.code is ErrorCode.FENCED_MEMBER_EPOCH and member is not None:
                update.record_event(GroupEventKind.MEMBER_FENCED, member, str(error))
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
        return self._finish(update, event.future, response)

    def _update(
        self, now: Now, image: MetadataImage, may_see: Callable[[str], bool] | None = None
    ) -> ConsumerGroupUpdate:
        self._seconds = now.monotonic_seconds
        if self._topic_ids.image is not image:
            self._topic_ids = TopicIds(image)
        return ConsumerGroupUpdate(
            self.stored,
            self.timers,
            self.settings,
            now,
            self._topic_ids,
            knows_topics=self.knows_topics,
            may_see=may_see,
        )

    def _finish(
        self,
        update: ConsumerGroupUpdate,
        future: ResponseFuture | None = None,
        response: object = None,
        late: Sequence[DueMember] = (),
    ) -> GroupResult:
        """The result of ``update``, with the ``response`` to its request if it had one, or the ``late`` members that it
        removes.
        """
        self.knows_topics = update.knows_topics
        result = update.finish()
        if future is not None:
            result.complete(future, response)
        if update.downgrade is not None:
            after = downgraded(update.downgrade, self.stored, self.settings, update.now, update.image)
            result.extend(after)
            result.replace_with = after.replace_with
        if result.records:
            result.refused = partial(self._refused, result.completions, late)
        return result

    def _refused(self, completions: Sequence[Completion], late: Sequence[DueMember], code: ErrorCode) -> GroupResult:
        """Nothing has changed: a heartbeat looks at the topics again, and ``late`` members are late again soon."""
        self.knows_topics = False
        self.patterns.drop_resolution()
        self._topic_ids.forget_subscriptions()
        for each in late:
            self.timers.start(each.timer, each.member_id, self._seconds + EVICTION_RETRY_SECONDS)
        return GroupResult(completions=refused_completions(completions, code))

    def _join_or_stay(
        self,
        update: ConsumerGroupUpdate,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        new_member_id: str,
    ) -> ConsumerGroupHeartbeatResponse:
        update.require_room(request.member_id)
        joins = request.member_epoch == JOIN_EPOCH
        member = _joining_member(update, request, new_member_id) if joins else self._known_member(request)
        _check_epoch(member, request)
        updated = member.updated_by(request, context)
        changed = self.patterns.update_subscription(update, member, updated, joins=joins)
        if update.has_new_epoch and self.stored.is_large_with(updated):
            target = self.stored.target_of(updated)
        else:
            target = update.target_for(updated)
        if changed or not (update.has_new_target and self.stored.is_large_with(updated)):
            updated = update.reconcile(updated, target, request.topic_partitions, subscription_changed=changed)
        self._start_session(member.member_id, update.now)
        says_assignment = joins or _is_full(request) or updated.assigned != member.assigned
        return ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.settings.group_consumer_heartbeat_interval_ms,
            assignment=_assignment(updated.assigned) if says_assignment else None,
        )

    def following_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse
    ) -> ConsumerGroupHeartbeatRequest | None:
        """What the member would send next to get on to the epoch of the group; None if it need not.

        In a large group one event changes the subscription, the next one computes the target, and another one lets the
        member follow it. Others may come between, so the member is not kept waiting for heartbeats of its own.
        """
        if not 0 < response.member_epoch < self.group_epoch:
            return None
        member = self.stored.members.get(response.member_id or "")
        if member is None or not self.stored.is_large_with(member):
            return None
        if member.state is MemberState.UNREVOKED_PARTITIONS and self.stored.target_epoch == self.group_epoch:
            # First it has to give up partitions.
            return None
        return ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=member.member_id,
            member_epoch=response.member_epoch,
            instance_id=request.instance_id,
            topic_partitions=request.topic_partitions,
        )

    def _known_member(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        return self.stored.known_member(request.member_id, request.instance_id)

    def _start_session(self, member_id: str, now: Now) -> None:
        deadline = now.monotonic_seconds + self.settings.group_consumer_session_timeout_ms / 1000
        self.timers.start(MemberTimer.SESSION, member_id, deadline)

    def _leave(
        self, update: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        member = self._known_member(request)
        if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
            update.mark_static_leave(member)
            update.record_event(GroupEventKind.MEMBER_LEFT, member, "for a while, as static members do")
        else:
            update.record_event(GroupEventKind.MEMBER_LEFT, member)
            update.remove([member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    # ---- members of the classic protocol --------------------------------------------------------------------------

    def join(self, event: CoordinatorEvent[JoinGroupRequest]) -> GroupResult:
        """A member of the classic protocol joins, or joins again to get its new assignment. If it is the first member
        after others have left, the group becomes a classic one, as in Kafka.
        """
        if self.is_deserted:
            return first_join(event, self.settings, self.tombstones())
        update = self._update(event.now, event.image, event.context.may_see)
        try:
            response = classic_members.join(update, self.patterns, event)
        except KafkaError as error:
            update = self._update(event.now, event.image)
            # Without the member id, unlike the refusals of a classic group, as in Kafka.
            response = join_error(error.code)
        return self._finish(update, event.future, response)

    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult:
        """A member of the classic protocol fetches its assignment."""
        update = self._update(event.now, event.image)
        try:
            response = classic_members.sync(update, event.request)
        except KafkaError as error:
            response = sync_error(error.code)
        return self._finish(update, event.future, response)

    def heartbeat(self, event: CoordinatorEvent[HeartbeatRequest]) -> ErrorCode:
        """A heartbeat of a member of the classic protocol; REBALANCE_IN_PROGRESS makes it join again."""
        try:
            return classic_members.heartbeat(self._update(event.now, event.image), event.request)
        except KafkaError as error:
            return error.code

    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult:
        """Members of the classic protocol leave, or an administrator removes members of either protocol."""
        update = self._update(event.now, event.image)
        return self._finish(update, event.future, classic_members.leave(update, event.request))

    # ---- time and topics ------------------------------------------------------------------------------------------

    def metadata_changed(self) -> None:
        """Topics were created, deleted or grown. The next heartbeat of any member looks at them."""
        self.knows_topics = False
        self.patterns.topics_changed()

    def next_deadline(self) -> float | None:
        return AT_ONCE if self.patterns.is_resolving else self.timers.next_deadline()

    def tick(self, now: Now, image: MetadataImage) -> GroupResult:
        """Remove members that are late; if there are none, match some more topics with regular expressions."""
        update = self._update(now, image)
        late: dict[DueMember, ConsumerMember] = {}
        for due in self.timers.pop_due(now.monotonic_seconds, max_evictions(self.group_id)):
            member = self.stored.members.get(due.member_id)
            if member is None or not _is_awaited(member, due.timer):
                continue
            timed_out = due.timer is MemberTimer.SESSION
            kind = GroupEventKind.MEMBER_TIMED_OUT if timed_out else GroupEventKind.MEMBER_FENCED
            update.record_event(kind, member, due.timer.value)
            late[due] = member
        if late:
            update.remove(list(late.values()))
        else:
            self.patterns.work(update)
        return self._finish(update, late=list(late))

    # ---- records --------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Fold in a record that was appended, or that is read after a start.

        Raises:
            ContradictoryRecords: it cannot be true together with those before it.
        """
        key = record.key
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            before = self.stored.members.get(key.member_id)
            self.stored.apply(record)
            if before is not None and before.subscribed_topic_names not in self.stored.subscriptions:
                self._topic_ids.forget_subscriptions()
            self._time_session(key.member_id)
            return
        self.stored.apply(record)
        if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            self._time_revocation(key.member_id)

    def _time_session(self, member_id: str) -> None:
        member = self.stored.members.get(member_id)
        if member is None:
            self.timers.cancel_all(member_id)
            return
        classic, default_ms = member.classic, self.settings.group_consumer_session_timeout_ms
        timeout_ms = default_ms if classic is None else classic.session_timeout_ms
        self.timers.start_if_absent(MemberTimer.SESSION, member_id, self._seconds + timeout_ms / 1000)

    def _time_revocation(self, member_id: str) -> None:
        member = self.stored.members.get(member_id)
        if member is None or member.uses_classic_protocol:
            return
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            deadline = self._seconds + member.rebalance_timeout_ms / 1000
            self.timers.start(MemberTimer.REVOCATION, member_id, deadline)
        else:
            self.timers.cancel(MemberTimer.REVOCATION, member_id)

    def loaded(self, now: Now) -> None:
        """All records are read: every member has a whole session for its next heartbeat."""
        self.timers = MemberTimers()
        for member in self.stored.members.values():
            self._start_session(member.member_id, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                deadline = now.monotonic_seconds + member.rebalance_timeout_ms / 1000
                self.timers.start(MemberTimer.REVOCATION, member.member_id, deadline)

    def tombstones(self) -> list[GroupRecord]:
        """The records that remove the group from the log; its offsets have records of their own."""
        return group_tombstones(self.group_id, self.stored.members, self.stored.patterns)

    def abandon(self, code: ErrorCode) -> Sequence[Completion]:
        """Another coordinator or object has the group. No request waits, so none is completed with ``code``."""
        return ()

    # ---- offsets --------------------------------------------------------------------------------------------------

    def validate_offset_commit(self, request: OffsetCommitRequest, version: int, now: Now) -> ErrorCode:
        """Whether the offsets may be committed: by a member at its epoch, or without an epoch in an empty group.

        The epoch fences zombies. A commit may be under way while the member's epoch rises, so one from an older epoch
        is accepted for partitions that the member has had since that epoch (KIP-1251).
        """
        member_epoch = request.generation_id_or_member_epoch
        if member_epoch < 0 and not self.stored.members:
            return ErrorCode.NONE
        member = self.stored.members.get(request.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not member.uses_classic_protocol and version < COMMIT_BY_EPOCH_VERSION:
            return ErrorCode.UNSUPPORTED_VERSION
        if member_epoch == member.member_epoch:
            return ErrorCode.NONE
        if member_epoch < member.member_epoch and all(
            member.has_had(topic.topic_id, partition.partition_index, since_epoch=member_epoch)
            for topic in request.topics
            for partition in topic.partitions
        ):
            return ErrorCode.NONE
        return _stale(member)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the offsets may be read: by administrators, who name no member, and by members at their epoch."""
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.stored.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.member_epoch else _stale(member)

    def validate_offset_delete(self) -> ErrorCode:
        """Offsets of topics that no member is subscribed to may be deleted at any time."""
        return ErrorCode.NONE

    def validate_delete_group(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_deserted else ErrorCode.NON_EMPTY_GROUP

    def offset_retention(self) -> OffsetRetention:
        """When the group's offsets begin to expire: see ``offsets.expiry``."""
        return OffsetRetention()

    def is_subscribed_to(self, topic: str) -> bool:
        return self.stored.is_subscribed_to(topic)

    # ---- reporting ------------------------------------------------------------------------------------------------

    def describe(self, image: MetadataImage) -> Generator[None, None, DescribedGroup]:
        """For ConsumerGroupDescribe, in turns. Topics that do not exist are left out."""
        return descriptions.described_group(self.stored, self.settings, image)

    def owned_partitions(self, image: MetadataImage) -> Iterator[TopicPartition]:
        """The partitions that the members own; one that moves to another member may come twice. Members may change
        meanwhile.
        """
        for member in list(self.members.values()):
            for owned in (member.assigned, member.pending_revocation):
                for topic_id, indexes in owned.items():
                    if topic_id in image.topics_by_id:
                        yield from (TopicPartition(image.topics_by_id[topic_id].name, index) for index in indexes)

    def snapshot(self, image: MetadataImage, *, with_members: bool = True) -> GroupSnapshot:
        """The group for lists and the admin API."""
        return descriptions.group_snapshot(self.stored, self.settings, image, with_members=with_members)


def max_evictions(group_id: str) -> int:
    """How many members can be removed with one batch of records, all of which bear the group's name."""
    return min(MAX_DUE_AT_ONCE, MAX_DUE_BYTES // (len(group_id.encode()) + MAX_ID_BYTES))


def _joining_member(
    update: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest, new_member_id: str
) -> ConsumerMember:
    member_id = request.member_id or new_member_id
    if request.instance_id is None:
        return update.joining_member(member_id)
    return update.joining_static_member(member_id, request.instance_id, is_classic=False)


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Refuse an epoch that is not the member's.

    The one before is accepted when the response with the new one may have been lost, which shows in that the member
    owns nothing that it should not.
    """
    epoch = request.member_epoch
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if epoch == member.previous_member_epoch < member.member_epoch and owns_no_more_than(
        request.topic_partitions, member.assigned
    ):
        return
    text = f"member {member.member_id} came with epoch {epoch} and is at {member.member_epoch}; it has to join anew"
    raise KafkaError(text, code=ErrorCode.FENCED_MEMBER_EPOCH)


def _is_awaited(member: ConsumerMember, timer: MemberTimer) -> bool:
    """Whether what the member did not do in time still has to be done."""
    match timer:
        case MemberTimer.SESSION:
            return True
        case MemberTimer.REVOCATION:
            return member.state is MemberState.UNREVOKED_PARTITIONS
    return member.uses_classic_protocol


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the heartbeat has all fields, as members send it that do not know whether the last one arrived."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != UNCHANGED_TIMEOUT and subscribes and request.topic_partitions is not None


def _assignment(assigned: PartitionEpochs) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(assigned.items())
        ]
    )


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
