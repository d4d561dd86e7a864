"""Speaks the commands of a conversation to one consumer group, and says in text what came of each.

``heartbeat member=a`` comes with what a client would remember: the last epoch that it received, and with
``owned=all`` the last partitions. Partitions are written ``foo:0,1 bar:2``; nothing is ``-``.

After what was answered come the events, with a star, and the state when it changed.
"""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.groups import GroupRecord
from tests.coordinator.group_runner import GROUP, GroupRunner
from trio_broker.concurrency.yield_budget import at_once
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.group_event import GroupEvent

NOTHING = "-"


@attrs.define
class Client:
    """What a client remembers of itself."""

    epoch: int = 0
    partitions: dict[str, list[int]] = attrs.Factory(dict)
    topics: list[str] = attrs.Factory(list)


class ConsumerDriver:
    """One group; call it with the commands."""

    def __init__(self) -> None:
        # Most conversations are about other things than the pause between two targets.
        self.runner = GroupRunner(GroupCoordinatorConfig(group_consumer_assignment_interval_ms=0))
        self.clients: dict[str, Client] = {}
        self.joins: dict[object, str] = {}
        self.syncs: dict[object, str] = {}
        self.names: dict[bytes, str] = {}
        self._shown_state = self._state()
        self._shown_events = 0

    def __call__(self, name: str, arguments: dict[str, str]) -> str:
        lines = getattr(self, f"do_{name}")(**arguments)
        lines += [f"* {_event(event)}" for event in self.runner.events[self._shown_events :]]
        self._shown_events = len(self.runner.events)
        state = self._state()
        if state != self._shown_state and name != "describe":
            lines.append(state)
            self._shown_state = state
        return "\n".join(lines)

    def _state(self) -> str:
        group = self.runner.group
        if group is None:
            return "(no group)"
        if isinstance(group, ConsumerGroup):
            return f"{group.state.value}, epoch {group.group_epoch}, target {group.stored.target_epoch}"
        return f"classic {group.state.value}, generation {group.generation_id}"

    # --- The world ---

    def do_settings(self, **values: str) -> list[str]:
        kinds = {field.name: type(field.default) for field in attrs.fields(GroupCoordinatorConfig)}
        parsed: dict[str, Any] = {name: _setting(kinds[name], value) for name, value in values.items()}
        self.runner.settings = attrs.evolve(self.runner.settings, **parsed)
        if self.runner.group is not None:
            self.runner.group.settings = self.runner.settings
        return []

    def do_topic(self, *, name: str, partitions: str) -> list[str]:
        """Creates it, or gives it more partitions."""
        if name in self.runner.image.topics:
            self.runner.grow_topic(name, int(partitions))
        else:
            self.names[self.runner.add_topic(name, int(partitions))] = name
        return []

    def do_delete_topic(self, *, name: str) -> list[str]:
        self.runner.delete_topic(name)
        return []

    def do_wait(self, *, s: str) -> list[str]:
        self.runner.wait(float(s))
        return self._late_answers()

    def do_tick(self) -> list[str]:
        self.runner.tick()
        return self._late_answers()

    def do_restart(self) -> list[str]:
        self.runner.reload()
        return []

    def do_fail_next_write(self, *, code: str) -> list[str]:
        self.runner.next_write_fails_with = ErrorCode[code]
        return []

    # --- Members of the consumer protocol ---

    def do_join(self, *, member: str, topics: str | None = None, **arguments: str) -> list[str]:
        """A heartbeat with epoch 0 and everything that it needs."""
        self.clients[member] = Client(topics=_words(topics))
        given = {"epoch": "0", "rebalance": "30000", "owned": NOTHING} | arguments
        return self.do_heartbeat(member=member, topics=topics, **given)

    def do_heartbeat(
        self,
        *,
        member: str,
        id: str | None = None,
        epoch: str | None = None,
        topics: str | None = None,
        regex: str | None = None,
        owned: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        rebalance: str = "-1",
        version: str = "1",
        client: str = "client",
        records: str = "no",
    ) -> list[str]:
        known = self.clients.setdefault(member, Client())
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member if id is None else id,
            member_epoch=known.epoch if epoch is None else int(epoch),
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=int(rebalance),
            subscribed_topic_names=None if topics is None else _words(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=self._owned(known, owned),
        )
        response = self.runner.heartbeat(request, int(version), client)
        if response.error_code:
            return [ErrorCode(response.error_code).name]
        known.epoch = response.member_epoch
        said = f"epoch {response.member_epoch}"
        if response.member_id != request.member_id:
            said = f"id {response.member_id}, {said}"
        if response.assignment is not None:
            known.partitions = {
                self.names[topic.topic_id]: topic.partitions for topic in response.assignment.topic_partitions
            }
            said += f", assigned {_partitions(known.partitions)}"
        return [said, *self._late_answers(), *(self._records() if records == "yes" else [])]

    def _owned(self, client: Client, owned: str | None) -> list[TopicPartitions] | None:
        if owned is None:
            return None
        partitions = client.partitions if owned == "all" else _parse_partitions(owned)
        return [
            TopicPartitions(topic_id=topic_id, partitions=partitions[name])
            for topic_id, name in self.names.items()
            if name in partitions
        ]

    def do_leave(self, *, member: str, instance: str | None = None, epoch: str = "-1") -> list[str]:
        return self.do_heartbeat(member=member, epoch=epoch, instance=instance)

    # --- Members of the classic protocol ---

    def do_classic_join(
        self,
        *,
        member: str = "",
        client: str = "client",
        topics: str = "",
        owned: str = NOTHING,
        instance: str | None = None,
        session: str = "10000",
        rebalance: str = "30000",
        protocols: str = "range",
        type: str = "consumer",
        version: str = "9",
        garbage: str = "no",
    ) -> list[str]:
        subscription = ConsumerProtocolSubscription(
            topics=_words(topics),
            owned_partitions=[
                ConsumerProtocolTopic(topic=name, partitions=indexes)
                for name, indexes in _parse_partitions(owned).items()
            ],
        )
        metadata = b"\0\1\0" if garbage == "yes" else encode_subscription(subscription)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(session),
            rebalance_timeout_ms=int(rebalance),
            member_id=member,
            group_instance_id=instance,
            protocol_type=type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols.split(",")],
        )
        future = self.runner.classic_join(request, int(version), client)
        self.joins[future] = member or client
        return self._late_answers(future)

    def do_classic_sync(self, *, member: str, generation: str, instance: str | None = None, **other: str) -> list[str]:
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(generation),
            member_id=member,
            group_instance_id=instance,
            protocol_type=other.get("type", "consumer"),
            protocol_name=other.get("protocol", "range"),
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=self._encoded(partitions))
                for member_id, _, partitions in (each.partition("=") for each in other.get("assign", "").split(";"))
                if member_id
            ],
        )
        future = self.runner.classic_sync(request)
        self.syncs[future] = member
        return self._late_answers(future)

    def _encoded(self, partitions: str) -> bytes:
        if partitions.startswith("raw "):
            return partitions.removeprefix("raw ").encode()
        assigned = [
            ConsumerProtocolTopic(topic=name, partitions=indexes)
            for name, indexes in _parse_partitions(partitions).items()
        ]
        return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned))

    def do_classic_heartbeat(self, *, member: str, generation: str, instance: str | None = None) -> list[str]:
        request = HeartbeatRequest(
            group_id=GROUP, generation_id=int(generation), member_id=member, group_instance_id=instance
        )
        return [self.runner.classic_heartbeat(request).name]

    def do_classic_leave(self, *, members: str, reason: str | None = None) -> list[str]:
        """``members`` are separated by commas, each a member id with ``/instance id`` behind it; either may lack."""
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance or None, reason=reason)
            for member_id, _, instance in (text.partition("/") for text in members.split(","))
        ]
        response = self.runner.classic_leave(LeaveGroupRequest(group_id=GROUP, members=identities))
        codes = [ErrorCode(each.error_code).name for each in response.members]
        return [" ".join(codes) or ErrorCode(response.error_code).name, *self._late_answers()]

    def _late_answers(self, own: object = None) -> list[str]:
        """What was answered to those who waited, and to the one that has just asked with ``own``."""
        lines = [] if own is None or own in self.runner.completions else ["(waits)"]
        for future, response in list(self.runner.completions.items()):
            del self.runner.completions[future]
            label = "" if future is own else f"{self.joins.get(future) or self.syncs[future]}: "
            lines.append(label + self._classic_answer(response))
        return lines

    def _classic_answer(self, response: object) -> str:
        if isinstance(response, JoinGroupResponse):
            if response.error_code:
                code = ErrorCode(response.error_code).name
                return f"{code} id {response.member_id}" if response.member_id else code
            leads = " leads" if response.members else ""
            return f"id {response.member_id}, generation {response.generation_id}, {response.protocol_name}{leads}"
        assert isinstance(response, SyncGroupResponse)
        if response.error_code:
            return ErrorCode(response.error_code).name
        try:
            assigned = decode_assignment(response.assignment).assigned_partitions if response.assignment else []
        except WireError:
            return f"assigned {response.assignment!r}"
        return f"assigned {_partitions({item.topic: item.partitions for item in assigned})}"

    # --- Offsets, and looking ---

    def do_commit(self, *, member: str, epoch: str, version: str = "9", partitions: str | None = None) -> list[str]:
        """``partitions`` are by default one that no member has."""
        parsed = {NO_UUID: [0]}
        if partitions is not None:
            parsed = {self.runner.topic_id(name): indexes for name, indexes in _parse_partitions(partitions).items()}
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id="" if member == NOTHING else member,
            generation_id_or_member_epoch=int(epoch),
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=topic_id,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                        for index in indexes
                    ],
                )
                for topic_id, indexes in parsed.items()
            ],
        )
        return [self.runner.consumer_group.validate_offset_commit(request, int(version), self.runner.now).name]

    def do_fetch(self, *, member: str, epoch: str) -> list[str]:
        member_id = None if member == NOTHING else member
        return [self.runner.consumer_group.validate_offset_fetch(member_id, int(epoch)).name]

    def do_describe(self) -> list[str]:
        group = at_once(self.runner.consumer_group.describe(self.runner.image))
        lines = [f"{group.group_state}, epoch {group.group_epoch}/{group.assignment_epoch}, {group.assignor_name}"]
        for member in sorted(group.members, key=lambda one: one.member_id):
            has = {topic.topic_name: topic.partitions for topic in member.assignment.topic_partitions}
            shall = {topic.topic_name: topic.partitions for topic in member.target_assignment.topic_partitions}
            protocol = "consumer" if member.member_type else "classic"
            instance = f" ({member.instance_id})" if member.instance_id else ""
            lines.append(
                f"{member.member_id}{instance} {protocol}, epoch {member.member_epoch}, "
                f"has {_partitions(has)}, shall have {_partitions(shall)}"
            )
        return lines

    def _records(self) -> list[str]:
        return [_record(record) for record in self.runner.last_records]


def _words(text: str | None) -> list[str]:
    return [] if text in (None, "", NOTHING) else str(text).split(",")


def _parse_partitions(text: str) -> dict[str, list[int]]:
    parsed = {}
    for part in [] if text == NOTHING else text.split():
        name, _, indexes = part.partition(":")
        parsed[name] = [int(index) for index in indexes.split(",")]
    return parsed


def _partitions(partitions: dict[str, list[int]]) -> str:
    parts = [f"{name}:{','.join(map(str, sorted(indexes)))}" for name, indexes in sorted(partitions.items()) if indexes]
    return " ".join(parts) or NOTHING


def _setting(kind: type, value: str) -> object:
    if kind is tuple:
        return tuple(value.split(","))
    return kind(value)


def _event(event: GroupEvent) -> str:
    who = "" if event.member_id is None else f" {event.member_id}"
    return f"{event.kind.value}{who}" + (f": {event.reason}" if event.reason else "")


def _record(record: GroupRecord) -> str:
    kind = type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    who = getattr(record.key, "member_id", None) or getattr(record.key, "regular_expression", "")
    return f"{kind} {who}".strip() + (" is gone" if record.value is None else "")
