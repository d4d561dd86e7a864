"""A consumer group of KIP-848: the broker assigns, and everything is said in heartbeats.

A member's heartbeat says what changed since the one before, and is answered with the member's epoch and, when it
changed, its assignment. What the group is, is in its records (``stored_group``); ``group_update`` says how an event
changes it; here is which event leads to which update, and what the responses are.

Not in records are the timers: a member that is silent, or does not give up what it should, is put out.

Members that speak the classic protocol may be in the group, too, while its applications move from one to the other
(``classic_members``). When only such are left, the group becomes a classic one: ``downgrade`` then says so, and what
remains to be done is ``migration``'s.

Where this differs from Kafka: regular expressions have a greatest length and a greatest size (``topic_patterns``); the
hash of the topics is another one (``target_assignment``); a clock that is put back delays neither targets nor searches;
and errors are worded otherwise.

Source: Kafka's GroupMetadataManager and ConsumerGroup, 4.3.1; KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import DescribedGroup
from kafka_wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kafka_wire.messages.list_groups import ListedGroup
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.stored.groups import GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.classic.responses import join_error, sync_error
from trio_broker.coordinator.consumer import classic_members
from trio_broker.coordinator.consumer import descriptions as consumer_descriptions
from trio_broker.coordinator.consumer import membership as consumer_membership
from trio_broker.coordinator.consumer import offset_validation as consumer_offsets
from trio_broker.coordinator.consumer.downgrade import Downgrade
from trio_broker.coordinator.consumer.group_patterns import GroupPatterns
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate, PatternChange, group_event
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
from trio_broker.coordinator.consumer.member_timers import MAX_DUE_AT_ONCE, MemberTimer, MemberTimers
from trio_broker.coordinator.consumer.records import group_tombstones
from trio_broker.coordinator.consumer.requests import MAX_ID_CHARACTERS, check_heartbeat
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState, StoredConsumerGroup
from trio_broker.coordinator.reporting.description import GroupProtocol, GroupSnapshot
from trio_broker.coordinator.runtime.errors import GroupRequestError
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEventKind, Now, RequestContext

RETRY_SECONDS = 0.5
"""After which a member is put out once more when the log did not take it the first time, as in Kafka."""

DOWNGRADING_POLICIES = ("downgrade", "bidirectional")
"""Values of ``group.consumer.migration.policy`` that let a consumer group become a classic one."""

MAX_DUE_BYTES = 300_000
"""What the names of members that are put out together may take; they stand in three records of each member, which have
to fit into one batch of 1 MB, the default of ``message.max.bytes``."""

MAX_ID_BYTES = 4 * MAX_ID_CHARACTERS

AT_ONCE = 0.0
"""A deadline before any other."""


class ConsumerGroup:
    """One group. A request is always answered within the event that brings it.

    ``downgrade`` is set by an event after which the group should be a classic one; it must then be converted in the
    same batch of records, or the event be undone with ``write_failed``.
    """

    def __init__(self, group_id: str, settings: GroupCoordinatorConfig) -> None:
        self.group_id = group_id
        self.settings = settings
        self.stored = StoredConsumerGroup(group_id)
        self.timers = MemberTimers()
        self.patterns = GroupPatterns()
        self.knows_topics = False
        """Whether the group's epoch is for the topics as they are now."""
        self.downgrade: Downgrade | None = None

    # ---- looking --------------------------------------------------------------------------------------------------

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
        """Whether the log has anything of the group; without, it is only a thought."""
        return self.stored.exists

    @property
    def is_empty(self) -> bool:
        return not self.stored.members

    def is_subscribed_to(self, topic: str) -> bool:
        return self.stored.is_subscribed_to(topic)

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=self.state.value,
            group_type=GroupProtocol.CONSUMER.value,
        )

    def describe(self, image: MetadataImage) -> DescribedGroup:
        """The group as ConsumerGroupDescribe tells it. Topics that are gone are left out."""
        return consumer_descriptions.described_group(self.stored, self.settings, image)

    def description(self, image: MetadataImage) -> GroupSnapshot:
        """The group for people."""
        return consumer_descriptions.description(self.stored, self.settings, image)

    def tombstones(self) -> list[GroupRecord]:
        """What removes the group from the log; its offsets stay."""
        return group_tombstones(self.group_id, self.stored.members, self.stored.patterns)

    # ---- records --------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        """Fold in a record, which was just appended or is read after a start."""
        self.stored.apply(record)

    def loaded(self, now: Now) -> None:
        """All records are read: every member has a whole session to be heard of again."""
        for member in self.stored.members.values():
            self._start_session(member.member_id, now)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                deadline = now.monotonic_seconds + member.rebalance_timeout_ms / 1000
                self.timers.start(MemberTimer.REVOCATION, member.member_id, deadline)

    def write_failed(self, result: CoordinatorResult, code: ErrorCode, now: Now) -> CoordinatorResult:
        """The records of ``result`` are not in the log, so nothing of it happened; return the answers to give."""
        self.knows_topics = False
        self.downgrade = None
        self.patterns.forget_resolution()
        # Those who were to go for being late are late again soon; who wanted to go is asked for a sign of life.
        late = not result.completions
        session_seconds = RETRY_SECONDS if late else self.settings.group_consumer_session_timeout_ms / 1000
        for member in self.stored.members.values():
            self.timers.start_if_absent(MemberTimer.SESSION, member.member_id, now.monotonic_seconds + session_seconds)
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.uses_classic_protocol:
                deadline = now.monotonic_seconds + member.rebalance_timeout_ms / 1000
                self.timers.start_if_absent(MemberTimer.REVOCATION, member.member_id, deadline)
        failed = CoordinatorResult()
        for completion in result.completions:
            failed.complete(completion.future, type(completion.response)(**_error_fields(completion.response, code)))
        return failed

    def abandon(self, code: ErrorCode) -> CoordinatorResult:
        """The partition is no longer ours. Nobody waits, so there is nothing to answer with ``code``."""
        return CoordinatorResult()

    # ---- heartbeats -----------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        future: ResponseFuture,
        now: Now,
        image: MetadataImage,
        *,
        new_member_id: str,
    ) -> CoordinatorResult:
        """Everything a member of the consumer protocol says. ``new_member_id`` is for version 0 (before KIP-1082)."""
        try:
            check_heartbeat(request, context.version, self.settings.group_consumer_assignors)
            if not self.exists and request.member_epoch != JOIN_EPOCH:
                raise GroupRequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group {self.group_id}")
            update = ConsumerGroupUpdate(self, now, image)
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                response = self._leave(update, request)
            else:
                response = self._live(update, request, context, new_member_id)
        except GroupRequestError as error:
            return self._error_result(error, request, future, now)
        result = update.finish()
        result.complete(future, response)
        return result

    def _error_result(
        self, error: GroupRequestError, request: ConsumerGroupHeartbeatRequest, future: ResponseFuture, now: Now
    ) -> CoordinatorResult:
        result = CoordinatorResult()
        member = self.stored.members.get(request.member_id)
        if error.code is ErrorCode.FENCED_MEMBER_EPOCH and member is not None:
            result.events.append(
                group_event(GroupEventKind.MEMBER_FENCED, now, self.group_epoch, member, error.message)
            )
        result.complete(future, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message))
        return result

    def _live(
        self,
        update: ConsumerGroupUpdate,
        request: ConsumerGroupHeartbeatRequest,
        context: RequestContext,
        new_member_id: str,
    ) -> ConsumerGroupHeartbeatResponse:
        """A member joins, or says that it is there."""
        consumer_membership.require_room(self.stored, self.settings.group_consumer_max_size, request.member_id)
        joins = request.member_epoch == JOIN_EPOCH
        member_id = request.member_id or new_member_id
        member = self._joining(update, member_id, request.instance_id) if joins else self._known(request)
        self._check_epoch(member, request)
        updated = member.updated_by(request, context)
        names_changed = update.upsert_member(member, updated)
        pattern_change = self.patterns.follow(update, member, updated)
        if not joins and (names_changed or pattern_change is not PatternChange.NONE):
            update.record_event(GroupEventKind.SUBSCRIPTION_CHANGED, updated)
        update.follow_topics(
            member, updated, subscription_changed=names_changed or pattern_change is PatternChange.RESOLVED
        )
        target = update.target_for(updated)
        changed = names_changed or pattern_change is not PatternChange.NONE
        updated = update.reconcile(updated, target, request.topic_partitions, subscription_changed=changed)
        self._start_session(member_id, update.now)
        return ConsumerGroupHeartbeatResponse(
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.settings.group_consumer_heartbeat_interval_ms,
            assignment=_assignment(updated.assigned)
            if joins or _is_full(request) or updated.assigned != member.assigned
            else None,
        )

    def _joining(self, update: ConsumerGroupUpdate, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is None:
            return consumer_membership.joining_member(update, member_id)
        return consumer_membership.joining_static_member(update, member_id, instance_id, is_classic=False)

    def _known(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
        if request.instance_id is None:
            return consumer_membership.known_member(self.stored, request.member_id)
        return consumer_membership.known_static_member(self.stored, request.member_id, request.instance_id)

    def _check_epoch(self, member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
        """Refuse an epoch that is not the member's.

        The one before is let pass when the answer with the new one may have been lost, which shows in that the member
        has nothing that it should not have.
        """
        epoch = request.member_epoch
        if epoch in (JOIN_EPOCH, member.member_epoch):
            return
        if epoch == member.previous_member_epoch < member.member_epoch and owns_no_more_than(
            request.topic_partitions, member.assigned
        ):
            return
        text = f"member {member.member_id} came with epoch {epoch} and is at {member.member_epoch}; it has to join anew"
        raise GroupRequestError(ErrorCode.FENCED_MEMBER_EPOCH, text)

    def _start_session(self, member_id: str, now: Now) -> None:
        deadline = now.monotonic_seconds + self.settings.group_consumer_session_timeout_ms / 1000
        self.timers.start(MemberTimer.SESSION, member_id, deadline)

    # ---- leaving --------------------------------------------------------------------------------------------------

    def _leave(
        self, update: ConsumerGroupUpdate, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse:
        member = self._known(request)
        if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
            update.mark_static_leave(member)
            update.record_event(GroupEventKind.MEMBER_LEFT, member, "for a while, as static members do")
        else:
            update.record_event(GroupEventKind.MEMBER_LEFT, member)
            self.remove(update, [member])
        return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def remove(self, update: ConsumerGroupUpdate, members: Sequence[ConsumerMember]) -> None:
        """Take members out of the group; if all others speak the classic protocol, it is to become a classic group."""
        if self.may_downgrade(members):
            reason = "the last member that spoke the consumer protocol is gone"
            leaving = frozenset(member.member_id for member in members)
            self.downgrade = Downgrade(leaving=leaving, rebalance=True, reason=reason)
        elif members:
            update.remove(members)

    def may_downgrade(self, without: Iterable[ConsumerMember]) -> bool:
        """Whether the group may become a classic one when these members are gone."""
        gone = list(without)
        left = len(self.stored.members) - len(gone)
        classic_left = self.stored.classic_member_count - sum(member.uses_classic_protocol for member in gone)
        return 0 < left == classic_left and self._allows_classic_group_of(left)

    def may_downgrade_by_replacing(self, member: ConsumerMember) -> bool:
        """Whether the group may become a classic one when a classic member takes the place of ``member``."""
        others_are_classic = self.stored.classic_member_count == len(self.stored.members) - 1
        return (
            others_are_classic
            and not member.uses_classic_protocol
            and self._allows_classic_group_of(len(self.stored.members))
        )

    def _allows_classic_group_of(self, members: int) -> bool:
        return (
            self.settings.group_consumer_migration_policy in DOWNGRADING_POLICIES
            and members <= self.settings.group_max_size
        )

    # ---- time and topics ------------------------------------------------------------------------------------------

    def metadata_changed(self, image: MetadataImage, now: Now) -> None:
        """Topics came, went or grew. The next heartbeat of any member looks at them."""
        self.knows_topics = False
        self.patterns.topics_changed()

    def next_deadline(self) -> float | None:
        return AT_ONCE if self.patterns.is_resolving else self.timers.next_deadline()

    def tick(self, now: Now, image: MetadataImage) -> CoordinatorResult:
        """Put out whoever is late; else match some more topics with regular expressions."""
        update = ConsumerGroupUpdate(self, now, image)
        late = []
        for due in self.timers.pop_due(now.monotonic_seconds, max_evictions(self.group_id)):
            member = self.stored.members.get(due.member_id)
            if member is None or not _is_awaited(member, due.timer):
                continue
            timed_out = due.timer is MemberTimer.SESSION
            kind = GroupEventKind.MEMBER_TIMED_OUT if timed_out else GroupEventKind.MEMBER_FENCED
            update.record_event(kind, member, due.timer.value)
            late.append(member)
        if late:
            self.remove(update, late)
        else:
            self.patterns.work(update)
        return update.finish()

    # ---- members of the classic protocol --------------------------------------------------------------------------

    def classic_join(
        self,
        request: JoinGroupRequest,
        context: RequestContext,
        future: ResponseFuture,
        now: Now,
        image: MetadataImage,
        *,
        new_member_id: str,
    ) -> CoordinatorResult:
        """A member of the classic protocol joins, or joins again to learn of its new assignment."""
        update = ConsumerGroupUpdate(self, now, image)
        try:
            response = classic_members.join(self, update, request, context, new_member_id)
        except GroupRequestError as error:
            return _answered(future, join_error(context.version, error.code, request.member_id))
        result = update.finish()
        result.complete(future, response)
        return result

    def classic_sync(
        self, request: SyncGroupRequest, context: RequestContext, future: ResponseFuture, now: Now, image: MetadataImage
    ) -> CoordinatorResult:
        """A member of the classic protocol fetches its assignment."""
        try:
            return _answered(future, classic_members.sync(self, request, now, image))
        except GroupRequestError as error:
            return _answered(future, sync_error(error.code))

    def classic_heartbeat(self, request: HeartbeatRequest, context: RequestContext, now: Now) -> ErrorCode:
        """A sign of life of a member of the classic protocol; REBALANCE_IN_PROGRESS makes it join again."""
        try:
            return classic_members.heartbeat(self, request, now)
        except GroupRequestError as error:
            return error.code

    def classic_leave(
        self,
        request: LeaveGroupRequest,
        context: RequestContext,
        future: ResponseFuture,
        now: Now,
        image: MetadataImage,
    ) -> CoordinatorResult:
        """Members of the classic protocol leave, or an administrator removes members of either protocol."""
        update = ConsumerGroupUpdate(self, now, image)
        response: LeaveGroupResponse = classic_members.leave(self, update, request, context.version)
        result = update.finish()
        result.complete(future, response)
        return result

    # ---- offsets --------------------------------------------------------------------------------------------------

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        member_epoch: int,
        version: int,
        now: Now,
        partitions: Iterable[tuple[bytes, int]] | None = None,
    ) -> ErrorCode:
        """Whether the commit may be. One from an older epoch may, if the member has had every one of ``partitions``
        (topic id and index) since that epoch or before (KIP-1251); without ``partitions`` it may not.
        """
        return consumer_offsets.commit_error(self.stored, member_id, member_epoch, version, partitions)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether who asks may see the offsets: administrators, who are no members, and members at their epoch."""
        return consumer_offsets.fetch_error(self.stored, member_id, member_epoch)

    def validate_offset_delete(self) -> ErrorCode:
        """Offsets of topics nobody is subscribed to may be deleted at any time."""
        return ErrorCode.NONE

    def validate_delete_group(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP


def max_evictions(group_id: str) -> int:
    """How many members can leave with one batch of records, all of which bear the group's name."""
    return min(MAX_DUE_AT_ONCE, MAX_DUE_BYTES // (len(group_id.encode()) + MAX_ID_BYTES))


def _is_awaited(member: ConsumerMember, timer: MemberTimer) -> bool:
    """Whether what the member did not do in time still has to be done."""
    match timer:
        case MemberTimer.SESSION:
            return True
        case MemberTimer.REVOCATION:
            return member.state is MemberState.UNREVOKED_PARTITIONS
    return member.uses_classic_protocol


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the heartbeat says all there is to say, as members do that are not sure what the broker knows."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != UNCHANGED_TIMEOUT and subscribes and request.topic_partitions is not None


def _assignment(assigned: PartitionEpochs) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(assigned.items())
        ]
    )


def _answered(future: ResponseFuture, response: object) -> CoordinatorResult:
    result = CoordinatorResult()
    result.complete(future, response)
    return result


def _error_fields(response: object, code: ErrorCode) -> dict[str, object]:
    """The fields of a response of the same kind that says that the request came to nothing."""
    match response:
        case JoinGroupResponse():
            return {
                "error_code": code,
                "protocol_name": None,
                "leader": "",
                "member_id": response.member_id,
                "members": [],
            }
        case SyncGroupResponse():
            return {"error_code": code, "assignment": b""}
    return {"error_code": code}
