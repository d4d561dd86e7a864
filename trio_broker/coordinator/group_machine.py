"""The groups and committed offsets of one partition of ``__consumer_offsets``: the machine of the group coordinator.

Passes each event to its group. Commits are kept as they stand in the log; a group is a fold over its records. While a
group changes from one protocol to the other, the result of an event has the group that takes its place.

Committed offsets without a group are a group all the same, of the simplest kind: its consumers assign partitions to
themselves, and it is described as an empty classic group.

Requests that waited in a group are not in the log: after a restart members get a new session, and clients send their
requests again.

Source: Kafka's GroupCoordinatorShard and GroupMetadataManager; docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

import attrs

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
from kafka_wire.primitives import uuid_text
from kafka_wire.stored.groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    decode_group_record,
    encode_group_record,
)
from kafka_wire.stored.offset_commits import COMMIT_PREFIX
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage, TopicImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.resource_config import group_config
from trio_broker.coordinator.classic.group import ClassicGroup, first_join
from trio_broker.coordinator.classic.responses import join_error, join_request_error
from trio_broker.coordinator.consumer.group import COMMIT_BY_EPOCH_VERSION, ConsumerGroup
from trio_broker.coordinator.consumer.upgrade import first_heartbeat, upgraded
from trio_broker.coordinator.contradictory_groups import ContradictoryGroups
from trio_broker.coordinator.group import Group
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.offsets.expiry import expired_offsets, expires_at_ms
from trio_broker.coordinator.offsets.requests import (
    TransactionalCommit,
    commit_result,
    delete_records,
    fetched_offsets,
    group_tombstones,
    topic_tombstones,
)
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType, Rebalance
from trio_broker.coordinator.reporting.timeline import Timeline
from trio_broker.coordinator.runtime.errors import ContradictoryRecords
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.machine import Machine
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, CoordinatorResult, Now
from trio_broker.runtime.randomness import Random, random_uuid, random_uuid_text

MAX_MEMBER_ID_PREFIX_CHARACTERS = 255
"""How much of a client's own name goes into the member id it is given, which is kept for every member and every pending
one."""

NOT_LOADED = Now(0.0, 0)
"""The time for a group that records make: nothing has happened in it, and no deadline counts before all are read."""


TRANSACTIONAL_COMMIT_BY_EPOCH_VERSION = 6
"""From which TxnOffsetCommit knows the errors of KIP-848 (KIP-1319); before it they are ILLEGAL_GENERATION."""

EPOCH_ERRORS = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class GroupMachine(Machine[Any]):
    """The groups of one partition. ``commits`` and ``rebalances`` count since the start.

    Its records are those of groups, and commits, which are encoded when they are decided and kept so
    (docs/decisions/0022).
    """

    def __init__(
        self,
        random: Random,
        settings: Callable[[], GroupCoordinatorConfig],
        metadata_cache: MetadataCache,
        on_rebalance: Callable[[str], None] = lambda group_id: None,
    ) -> None:
        """``settings`` returns those of the broker; ``metadata_cache`` is for reports; ``on_rebalance`` is called with
        each group that has finished a rebalance.
        """
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets(self._ensure_group)
        self.commits = 0
        self.rebalances = 0
        self._contradictory = ContradictoryGroups()
        self._timelines: dict[str, Timeline] = {}
        self._random = random
        self._broker_settings = settings
        self._metadata_cache = metadata_cache
        self._on_rebalance = on_rebalance

    @property
    def _settings(self) -> GroupCoordinatorConfig:
        return self._broker_settings()

    # ---- records --------------------------------------------------------------------------------------------------

    def least_bytes(self, record: GroupRecord | EncodedRecord) -> int:
        value = record.value if isinstance(record, GroupRecord) else None
        if not isinstance(value, GroupMetadataValue):
            return 0
        return sum(len(member.subscription) + len(member.assignment) for member in value.members)

    def encode(self, record: GroupRecord | EncodedRecord) -> EncodedRecord:
        return record if isinstance(record, tuple) else encode_group_record(record)

    def apply(self, record: GroupRecord | EncodedRecord) -> None:
        """Fold in one record.

        Raises:
            ContradictoryRecords: it cannot be true together with those before it.
        """
        if isinstance(record, tuple):
            self.offsets.put(*record)
            self.commits += record[1] is not None
        elif isinstance(record.key, OffsetCommitKey):
            self.offsets.apply(record)
        else:
            self._apply_to_group(_group_id(record), record)

    def _apply_to_group(self, group_id: str, record: GroupRecord) -> None:
        kind = GroupType.CLASSIC if isinstance(record.key, GroupMetadataKey) else GroupType.CONSUMER
        group = self.groups.get(group_id)
        if group is None or group.type is not kind:
            if record.value is None:
                return
            group = self.groups[group_id] = self._new_group(kind, group_id)
        group.apply(record)
        if not group.exists:
            self._drop(group)

    def _new_group(self, kind: GroupType, group_id: str) -> Group:
        if kind is GroupType.CLASSIC:
            return ClassicGroup(group_id, self._settings, NOT_LOADED)
        return ConsumerGroup(group_id, self._settings)

    def _ensure_group(self, group_id: str) -> None:
        """Committed offsets are a group, if only the simplest one."""
        if group_id not in self.groups:
            self.groups[group_id] = self._new_group(GroupType.CLASSIC, group_id)

    def _drop(self, group: Group) -> None:
        del self.groups[group.group_id]
        if self.offsets.has_offsets(group.group_id):
            self._ensure_group(group.group_id)

    def apply_pending(self, producer_id: int, record: GroupRecord | EncodedRecord) -> None:
        assert isinstance(record, tuple), f"only commits are part of transactions: {record}"
        self.offsets.put_pending(producer_id, *record)

    def replay_pending(self, producer_id: int, record: EncodedRecord) -> None:
        self.offsets.put_pending(producer_id, *record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.commits += self.offsets.end_transaction(producer_id, committed=committed)

    def replay(self, record: EncodedRecord) -> None:
        key, value = record
        # Nearly all records are commits, and they are kept undecoded: a million of them load in seconds.
        if key.startswith(COMMIT_PREFIX):
            self.offsets.put(key, value)
        elif (decoded := decode_group_record(key, value)) is not None:
            self._replay(decoded)

    def _replay(self, record: GroupRecord) -> None:
        group_id, is_commit = _group_id(record), isinstance(record.key, OffsetCommitKey)
        if not is_commit and self._contradictory.absorb(group_id, record):
            return
        try:
            self.apply(record)
        except ContradictoryRecords as error:
            group = self.groups[group_id]
            self._contradictory.add(group, record, error)
            self._drop(group)

    def loaded(self, now: Now, image: MetadataImage) -> Mapping[str, GroupResult]:
        for group_id, group in self.groups.items():
            group.settings = self._settings_of(group_id, image)
            group.loaded(now)
        # If the log refuses, the next start finds the contradiction again.
        return {
            group_id: GroupResult([*tombstones], refused=lambda code: GroupResult(), is_atomic=False)
            for group_id, tombstones in self._contradictory.tombstones.items()
        }

    def replace(self, key: str, state: Group) -> Sequence[Completion]:
        """``state`` is a new group, or the group ``key`` in the other protocol: members that wait in it join that."""
        before, self.groups[key] = self.groups.get(key), state
        return () if before is None else before.abandon(ErrorCode.REBALANCE_IN_PROGRESS)

    def timed_keys(self) -> Collection[str]:
        return self.groups

    def abandon(self, key: str, code: ErrorCode) -> Sequence[Completion]:
        return self.groups.pop(key).abandon(code)

    # ---- events ---------------------------------------------------------------------------------------------------

    def decide(self, event: CoordinatorEvent[Any]) -> CoordinatorResult[Any] | None:
        return _HANDLERS[type(event.request)](self, event)

    def on_timeout(self, key: str, now: Now, image: MetadataImage) -> GroupResult | None:
        group = self.groups.get(key)
        return None if group is None else group.tick(now, image)

    def next_deadline(self, key: str) -> float | None:
        group = self.groups.get(key)
        return None if group is None else group.next_deadline()

    def observe(self, key: str, result: CoordinatorResult[Any]) -> None:
        """Keep the timeline of the group."""
        group = self.groups.get(key)
        if group is None:
            self._timelines.pop(key, None)
        elif isinstance(result, GroupResult) and result.events:
            timeline = self._timelines.setdefault(key, Timeline())
            if ended := timeline.record(result.events, len(group.members)):
                self.rebalances += ended
                self._on_rebalance(key)

    def topics_changed(self) -> None:
        """Topics were created, deleted or grown."""
        for group in self.groups.values():
            group.metadata_changed()

    def settings_changed(self, group_id: str, image: MetadataImage) -> None:
        """Let a group follow its own settings; a member learns them with its next heartbeat."""
        if (group := self.groups.get(group_id)) is not None:
            group.settings = self._settings_of(group_id, image)

    def broker_settings_changed(self, image: MetadataImage) -> None:
        """Let all groups follow the broker's settings where they have none of their own."""
        for group_id, group in self.groups.items():
            group.settings = self._settings_of(group_id, image)

    def _settings_of(self, group_id: str, image: MetadataImage) -> GroupCoordinatorConfig:
        """The broker's settings, with the group's own in their places."""
        overrides = image.configs(ConfigResource(ConfigResourceType.GROUP, group_id))
        return group_config(overrides, self._settings, group_id)

    # ---- members --------------------------------------------------------------------------------------------------

    def join(self, event: CoordinatorEvent[JoinGroupRequest]) -> GroupResult | None:
        """A member of the classic protocol joins, or joins again."""
        request, group = event.request, self.groups.get(event.request.group_id)
        code = join_request_error(request, self._settings)
        if group is None and request.member_id and not code:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code:
            event.future.set_result(join_error(code, request.member_id))
            return None
        name = (request.group_instance_id or event.context.client_id)[:MAX_MEMBER_ID_PREFIX_CHARACTERS]
        event.new_id = f"{name}-{random_uuid_text(self._random)}"
        return first_join(event, self._settings) if group is None else group.join(event)

    def sync(self, event: CoordinatorEvent[SyncGroupRequest]) -> GroupResult:
        """A member of the classic protocol asks for its assignment."""
        return self._group_or_empty(event.request.group_id, event.now).sync(event)

    def heartbeat(self, event: CoordinatorEvent[HeartbeatRequest]) -> None:
        """A heartbeat of the classic protocol."""
        code = self._group_or_empty(event.request.group_id, event.now).heartbeat(event)
        # No record ever follows, so the response waits for nothing and the group's timer stays as it is.
        event.future.set_result(HeartbeatResponse(error_code=code))

    def leave(self, event: CoordinatorEvent[LeaveGroupRequest]) -> GroupResult:
        """Members leave, or are removed by an administrator."""
        return self._group_or_empty(event.request.group_id, event.now).leave(event)

    def _group_or_empty(self, group_id: str, now: Now) -> Group:
        """A group that does not exist knows no member, as an empty one, which is not kept without records."""
        return self.groups.get(group_id) or ClassicGroup(group_id, self._settings, now)

    def consumer_heartbeat(self, event: CoordinatorEvent[ConsumerGroupHeartbeatRequest]) -> GroupResult:
        """A heartbeat of the consumer protocol."""
        group_id = event.request.group_id
        group = self.groups.get(group_id)
        event.new_id = uuid_text(random_uuid(self._random))
        if isinstance(group, ConsumerGroup):
            return group.consumer_heartbeat(event)
        settings = self._settings_of(group_id, event.image)
        # A classic group knows nothing of the consumer protocol, so it is not the one to decide about it.
        return upgraded(group, event, settings) if isinstance(group, ClassicGroup) else first_heartbeat(event, settings)

    # ---- offsets --------------------------------------------------------------------------------------------------

    def commit(self, event: CoordinatorEvent[OffsetCommitRequest]) -> CoordinatorResult[EncodedRecord]:
        """Commit offsets, if the group allows it.

        Raises:
            KafkaError: nothing was committed.
        """
        request, group = event.request, self.groups.get(event.request.group_id)
        if group is not None:
            code = group.validate_offset_commit(request, event.context.version, event.now)
        elif request.generation_id_or_member_epoch < 0:
            code = ErrorCode.NONE
        else:
            by_epoch = event.context.version >= COMMIT_BY_EPOCH_VERSION
            code = ErrorCode.GROUP_ID_NOT_FOUND if by_epoch else ErrorCode.ILLEGAL_GENERATION
        if code:
            raise KafkaError(f"group {request.group_id!r} refuses the commit", code=code)
        return commit_result(request, event.future, event.now.wall_ms, self._settings)

    def commit_in_transaction(self, event: CoordinatorEvent[TransactionalCommit]) -> CoordinatorResult[EncodedRecord]:
        """Commit offsets that count when the producer's transaction is committed, if the group allows it.

        Raises:
            KafkaError: nothing was committed.
        """
        request, group = event.request.commit, self.groups.get(event.request.commit.group_id)
        generation_id = request.generation_id_or_member_epoch
        names_member = generation_id >= 0 or request.member_id or request.group_instance_id is not None
        code = ErrorCode.NONE
        if group is not None and names_member:
            code = group.validate_offset_commit(request, COMMIT_BY_EPOCH_VERSION, event.now)
            # A producer commits what it has read and written, whatever partitions its consumer gets next (KIP-447).
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                code = ErrorCode.NONE
        elif group is None and generation_id >= 0:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        if code:
            if code in EPOCH_ERRORS and event.context.version < TRANSACTIONAL_COMMIT_BY_EPOCH_VERSION:
                code = ErrorCode.ILLEGAL_GENERATION
            raise KafkaError(f"group {request.group_id!r} refuses the commit", code=code)
        result = commit_result(request, event.future, event.now.wall_ms, self._settings)
        result.producer = event.request.producer
        return result

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> Steps[OffsetFetchResponseGroup]:
        """The committed offsets of a group; see ``fetched_offsets``. Yields if they are many."""
        group = self.groups.get(request.group_id)
        if group is not None and (code := group.validate_offset_fetch(request.member_id, request.member_epoch)):
            return OffsetFetchResponseGroup(group_id=request.group_id, topics=[], error_code=code)
        return (yield from fetched_offsets(self.offsets, request, require_stable=require_stable))

    def delete_offsets(self, event: CoordinatorEvent[OffsetDeleteRequest]) -> CoordinatorResult[EncodedRecord]:
        """Delete offsets, but for those of topics that the group is subscribed to.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND``, ``NON_EMPTY_GROUP``; nothing was deleted.
        """
        group = self._known(event.request.group_id)
        if code := group.validate_offset_delete():
            raise KafkaError(f"group {event.request.group_id!r} is in use", code=code)
        deletion = delete_records(self.offsets, event.request, group)
        completions = [Completion(event.future, deletion.response)]
        return CoordinatorResult(deletion.records, completions, is_atomic=False)

    def require_deletable(self, group_id: str) -> None:
        """Let no group with members be deleted.

        Raises:
            KafkaError: ``GROUP_ID_NOT_FOUND``, ``NON_EMPTY_GROUP``.
        """
        if code := self._known(group_id).validate_delete_group():
            raise KafkaError(f"group {group_id!r} is in use", code=code)

    def offsets_deletion(self, group_id: str, places: Iterable[TopicPartition]) -> CoordinatorResult[EncodedRecord]:
        """The end of the offsets in ``places`` of a group that is deleted."""
        return CoordinatorResult(group_tombstones(self.offsets, group_id, places), is_routine=True)

    def topic_deletion(
        self, group_id: str, topic: TopicImage, places: Iterable[TopicPartition]
    ) -> CoordinatorResult[EncodedRecord]:
        """The end of a group's offsets in ``places`` of a topic that was deleted."""
        return CoordinatorResult(topic_tombstones(self.offsets, group_id, topic.topic_id, places), is_routine=True)

    def expiry(self, group_id: str, now: Now, places: Iterable[TopicPartition]) -> CoordinatorResult[EncodedRecord]:
        """The end of those of a group's offsets in ``places`` that have expired."""
        if (group := self.groups.get(group_id)) is None:
            return CoordinatorResult()
        expired = expired_offsets(self.offsets, group_id, group, self._settings, now, places)
        return CoordinatorResult(expired, is_routine=True)

    def expires_at_ms(self, group_id: str, topic: str, commit: OffsetAndMetadata) -> int | None:
        """When a committed offset expires if its group stays as it is; None if it does not."""
        group = self.groups.get(group_id)
        return None if group is None else expires_at_ms(commit, topic, group, self._settings)

    def is_over(self, group_id: str) -> bool:
        """Whether a group has neither offsets nor members left."""
        group = self.groups.get(group_id)
        if group is None or not group.is_deserted:
            return False
        return not self.offsets.has_offsets(group_id) and not self.offsets.has_pending_in(group_id)

    def group_deletion(self, group_id: str) -> GroupResult:
        """The end of a group whose offsets are deleted."""
        group = self.groups.get(group_id)
        return GroupResult([] if group is None else group.tombstones(), is_atomic=False)

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

    def describe_consumer_group(self, group_id: str) -> Generator[None, None, DescribedConsumerGroup]:
        """A consumer group and its members, in turns; errors as ``describe``, at once."""
        group = self._known(group_id)
        if isinstance(group, ConsumerGroup):
            return group.describe(self._metadata_cache.image)
        raise KafkaError(f"group {group_id!r} is not a consumer group", code=ErrorCode.GROUP_ID_NOT_FOUND)

    def snapshot(self, group_id: str, *, with_members: bool = True) -> GroupSnapshot:
        """A group of either protocol; errors as ``describe``."""
        snapshot = self._known(group_id).snapshot(self._metadata_cache.image, with_members=with_members)
        pending = self.offsets.pending_count(group_id)
        return attrs.evolve(snapshot, pending_offsets=pending) if pending else snapshot

    def timeline(self, group_id: str) -> Sequence[Rebalance]:
        """The recent rebalances of a group; errors as ``describe``."""
        group, timeline = self._known(group_id), self._timelines.get(group_id)
        return [] if timeline is None else timeline.rebalances(len(group.members))

    def last_rebalance_at_ms(self, group_id: str) -> int | None:
        """When the latest rebalance of a group began, None if it never rebalanced."""
        timeline = self._timelines.get(group_id)
        return None if timeline is None else timeline.latest_started_at_ms


_HANDLERS: dict[type, Callable[[GroupMachine, Any], CoordinatorResult[Any] | None]] = {
    JoinGroupRequest: GroupMachine.join,
    SyncGroupRequest: GroupMachine.sync,
    HeartbeatRequest: GroupMachine.heartbeat,
    LeaveGroupRequest: GroupMachine.leave,
    ConsumerGroupHeartbeatRequest: GroupMachine.consumer_heartbeat,
    OffsetCommitRequest: GroupMachine.commit,
    TransactionalCommit: GroupMachine.commit_in_transaction,
    OffsetDeleteRequest: GroupMachine.delete_offsets,
}


def _group_id(record: GroupRecord) -> str:
    key = record.key
    return key.group if isinstance(key, GroupMetadataKey | OffsetCommitKey) else key.group_id
