"""One group with a log and a clock, in the hands of a test: the runner of the state machines in small.

It does what the broker's own runner does, and holds the group to its promises while doing it: every request is answered
once, no partition is owned twice, and the group that the log tells of, compacted as far as can be, is the group in
memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from kafka_wire.messages.sync_group import SyncGroupRequest
from kafka_wire.stored.groups import GroupMetadataValue, GroupRecord, decode_group_record, encode_group_record
from kafka_wire.stored.metadata import RemoveTopicRecord, TopicRecord
from tests.coordinator.appended import appended, restored
from tests.fakes.images import image_after, partition_record
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup, first_join
from trio_broker.coordinator.classic.responses import join_error, join_request_error
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.consumer.upgrade import first_heartbeat, upgraded
from trio_broker.coordinator.group_event import GroupEvent
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent, Now, RequestContext

START_MS = 1_700_000_000_000
HOST = "/127.0.0.1"
GROUP = "g"
RequestT = TypeVar("RequestT")
MAX_TICKS = 100
"""For one moment: more of them, and the group keeps the alarm ringing without ever getting done."""


class GroupRunner:
    """The group ``g``, whatever it is at the moment, and topics for it."""

    def __init__(self, settings: GroupCoordinatorConfig | None = None) -> None:
        self.settings = settings or GroupCoordinatorConfig()
        self.image = MetadataImage()
        self.seconds = 0.0
        self.group: ConsumerGroup | ClassicGroup | None = None
        self.log: dict[bytes, bytes] = {}
        """The newest record of each key, in the order of the log; tombstones are compacted away."""
        self.last_records: list[GroupRecord] = []
        self.events: list[GroupEvent] = []
        self.completions: dict[object, Any] = {}
        self.next_write_fails_with: ErrorCode | None = None
        self._topic_count = 0
        self._id_counts: Counter[str] = Counter()

    @property
    def now(self) -> Now:
        return Now(self.seconds, START_MS + round(self.seconds * 1000))

    @property
    def consumer_group(self) -> ConsumerGroup:
        assert isinstance(self.group, ConsumerGroup)
        return self.group

    @property
    def classic_group(self) -> ClassicGroup:
        assert isinstance(self.group, ClassicGroup)
        return self.group

    # --- Topics ---

    def add_topic(self, name: str, partitions: int) -> bytes:
        self._topic_count += 1
        topic_id = self._topic_count.to_bytes(16, "big")
        self.image = image_after(self.image, TopicRecord(name=name, topic_id=topic_id))
        self._add_partitions(topic_id, range(partitions))
        self._topics_changed()
        return topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        topic = self.image.topics[name]
        self._add_partitions(topic.topic_id, range(len(topic.partitions), partitions))
        self._topics_changed()

    def delete_topic(self, name: str) -> None:
        self.image = image_after(self.image, RemoveTopicRecord(topic_id=self.image.topics[name].topic_id))
        self._topics_changed()

    def _add_partitions(self, topic_id: bytes, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.image = image_after(self.image, partition_record(topic_id, index))

    def _topics_changed(self) -> None:
        if isinstance(self.group, ConsumerGroup):
            self.group.metadata_changed()

    def topic_id(self, name: str) -> bytes:
        return self.image.topics[name].topic_id

    # --- Requests ---

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1, client: str = "client"
    ) -> ConsumerGroupHeartbeatResponse:
        event = self._event(request, version, client, self._new_id("made"))
        if self.group is None:
            self._commit_result(first_heartbeat(event, self.settings))
        elif isinstance(self.group, ClassicGroup):
            self._commit_result(upgraded(self.group, event, self.settings))
        else:
            self._commit_result(self.group.consumer_heartbeat(event))
        response = self.completions.pop(event.future)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def classic_join(self, request: JoinGroupRequest, version: int = 9, client: str = "client") -> ResponseFuture:
        """Returns the ticket; the answer may come at once."""
        event = self._event(request, version, client, self._new_id(client))
        if code := join_request_error(request, self.settings):
            self.completions[event.future] = join_error(code, request.member_id)
            return event.future
        self._commit_result(first_join(event, self.settings) if self.group is None else self.group.join(event))
        return event.future

    def classic_sync(self, request: SyncGroupRequest) -> ResponseFuture:
        """Returns the ticket; the answer may come at once."""
        event = self._event(request)
        assert self.group is not None
        self._commit_result(self.group.sync(event))
        return event.future

    def classic_heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        assert self.group is not None
        return self.group.heartbeat(self._event(request))

    def classic_leave(self, request: LeaveGroupRequest) -> Any:
        event = self._event(request)
        assert self.group is not None
        self._commit_result(self.group.leave(event))
        return self.completions.pop(event.future)

    def _event(
        self, request: RequestT, version: int = 0, client: str = "", new_member_id: str = ""
    ) -> CoordinatorEvent[RequestT]:
        context = RequestContext(client, HOST, version)
        return CoordinatorEvent(request, context, ResponseFuture(), self.now, self.image, new_member_id)

    def _new_id(self, client: str) -> str:
        """Each client's own count, so that a conversation knows which id comes next."""
        self._id_counts[client] += 1
        return f"{client}-{self._id_counts[client]}"

    # --- Time ---

    def wait(self, seconds: float) -> None:
        """Let time pass, with every alarm in it."""
        until = self.seconds + seconds
        while self.group is not None:
            deadline = self.group.next_deadline()
            if deadline is None or deadline > until:
                break
            self.seconds = max(self.seconds, deadline)
            self.tick()
        self.seconds = until

    def tick(self) -> None:
        """Do whatever is due at this moment."""
        for _ in range(MAX_TICKS):
            group = self.group
            deadline = None if group is None else group.next_deadline()
            if group is None or deadline is None or deadline > self.seconds:
                return
            self._commit_result(group.tick(self.now, self.image))
        raise AssertionError("the alarm never stops ringing")

    # --- The log ---

    def _commit_result(self, result: GroupResult) -> None:
        code, self.next_write_fails_with = self.next_write_fails_with or ErrorCode.NONE, None
        before, group = self.group, result.replace_with or self.group
        result = appended(group, result, code)
        self.last_records = result.records
        for record in self.last_records:
            self._append(record)
        self.events += result.events
        self._give(result.completions)
        if result.replace_with is not None:
            self.group = group
            self._give(() if before is None else before.abandon(ErrorCode.REBALANCE_IN_PROGRESS))
        self.check()

    def _append(self, record: GroupRecord) -> None:
        key, value = encode_group_record(record)
        self.log.pop(key, None)
        if value is not None:
            self.log[key] = value

    def _give(self, completions: Iterable[Completion]) -> None:
        for completion in completions:
            assert completion.future not in self.completions, "answered twice"
            self.completions[completion.future] = completion.response

    def records(self) -> list[GroupRecord]:
        """The newest record of each key, as it reads back."""
        decoded = [decode_group_record(key, value) for key, value in self.log.items()]
        return [record for record in decoded if record is not None]

    def reload(self) -> None:
        """The broker restarts: all that is left is the log."""
        group = ConsumerGroup(GROUP, self.settings)
        classic = None
        for record in self.records():
            if isinstance(record.value, GroupMetadataValue):
                classic = restored(record.value, self.settings, self.now)
            else:
                group.apply(record)
        assert classic is None or not group.exists, "both a classic group and a consumer group are in the log"
        group.loaded(self.now)
        self.group = classic or (group if group.exists else None)

    def check(self) -> None:
        """The promises that hold at every moment."""
        if not isinstance(self.group, ConsumerGroup):
            return
        replayed = StoredConsumerGroup(GROUP)
        for record in self.records():
            if hasattr(record.key, "group_id"):
                replayed.apply(record)
        assert contents(replayed) == contents(self.group.stored)
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.group.members.values():
            for topic_id, partitions in [*member.assigned.items(), *member.pending_revocation.items()]:
                for partition in partitions:
                    owner = owners.setdefault((topic_id, partition), member.member_id)
                    assert owner == member.member_id, f"{partition} is owned by {owner} and {member.member_id}"


def contents(stored: StoredConsumerGroup) -> dict[str, Any]:
    """Everything in the fold, for comparing; the order of members, which only tools see, does not count."""
    return dict(vars(stored))
