"""Speaks the commands of a conversation to one classic group, and says in text what came of each.

The driver is the runner in small: it ticks when the group asks for it, keeps the newest record, and holds the group to
the promise that every ticket is answered exactly once. Member ids are the client's id (the instance id for static
members) with a number behind.
"""

from __future__ import annotations

from typing import Any, TypeVar

import attrs

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import MEMBERS_SINCE_VERSION, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataValue, GroupRecord, decode_group_record, encode_group_record
from tests.coordinator.appended import appended, restored
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.responses import join_error, join_request_error
from trio_broker.coordinator.group_event import GroupEvent
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorEvent, Now, RequestContext
from trio_broker.handlers.join_group import NULL_PROTOCOL_SINCE_VERSION
from trio_broker.handlers.leave_group import of_one_member

START_MS = 1_700_000_000_000
HOST = "/127.0.0.1"
IMAGE = MetadataImage()
LATEST_COMMIT = 10

RequestT = TypeVar("RequestT")


class Waiting(ResponseFuture):
    """The future of a request, with a label and the version of the request."""

    def __init__(self, label: str, version: int) -> None:
        super().__init__()
        self.label = label
        self.version = version


class ClassicDriver:
    """One group; call it with the commands."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.settings = GroupCoordinatorConfig()
        self.group = ClassicGroup("g", self.settings, self.now)
        self.uncompleted: set[Waiting] = set()
        self.last_record: GroupRecord | None = None
        self.next_write_fails_with: ErrorCode | None = None
        self._numbers: dict[str, int] = {}
        self._shown_state = self._state()

    @property
    def now(self) -> Now:
        return Now(self.seconds, START_MS + round(self.seconds * 1000))

    def __call__(self, name: str, arguments: dict[str, str]) -> str:
        lines = getattr(self, f"do_{name}")(**arguments)
        assert self.uncompleted == self._awaited_by_the_group()
        state = self._state()
        if state != self._shown_state and name != "describe":
            lines.append(state)
            self._shown_state = state
        return "\n".join(lines)

    # --- Commands ---

    def do_settings(self, **values: str) -> list[str]:
        changes: dict[str, Any] = {name: int(value) for name, value in values.items()}
        self.settings = attrs.evolve(self.settings, **changes)
        self.group.settings = self.settings
        return []

    def do_join(
        self,
        *,
        id: str = "",
        client: str = "",
        instance: str | None = None,
        version: str = "9",
        session: str = "10000",
        rebalance: str = "60000",
        type: str = "consumer",
        protocols: str = "range",
        reason: str | None = None,
    ) -> list[str]:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=int(session),
            rebalance_timeout_ms=int(rebalance),
            member_id=id,
            group_instance_id=instance,
            protocol_type=type,
            protocols=[_protocol(text) for text in protocols.split(",") if text],
            reason=reason,
        )
        future = self._future("join", id or instance or client, version)
        if code := join_request_error(request, self.settings):
            result = GroupResult()
            result.complete(future, join_error(code, id))
            return self._result_lines(result, future)
        event = self._event(request, future, int(version), client)
        event.new_id = self._new_id(instance or client)
        result = self.group.join(event)
        self._forget_id_if_unused(instance or client)
        return self._result_lines(result, future)

    def do_sync(
        self,
        *,
        id: str,
        assign: str = "",
        generation: str | None = None,
        instance: str | None = None,
        version: str = "5",
        type: str | None = None,
        protocol: str | None = None,
    ) -> list[str]:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else int(generation),
            member_id=id,
            group_instance_id=instance,
            protocol_type=type,
            protocol_name=protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment.encode())
                for member_id, _, assignment in (each.partition(":") for each in assign.split(",") if each)
            ],
        )
        future = self._future("sync", id, version)
        return self._result_lines(self.group.sync(self._event(request, future)), future)

    def do_heartbeat(self, *, id: str, generation: str | None = None, instance: str | None = None) -> list[str]:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.group.generation_id if generation is None else int(generation),
            member_id=id,
            group_instance_id=instance,
        )
        return [self.group.heartbeat(self._event(request, ResponseFuture())).name]

    def do_leave(self, *, members: str, version: str = "5", reason: str | None = None) -> list[str]:
        """``members`` are separated by commas, each a member id, ``/instance id``, or one behind the other."""
        identities = [
            MemberIdentity(member_id=id_, group_instance_id=instance or None, reason=reason)
            for id_, _, instance in (text.partition("/") for text in members.split(",") if text)
        ]
        request = LeaveGroupRequest(group_id="g", members=identities)
        future = self._future("leave", members, version)
        return self._result_lines(self.group.leave(self._event(request, future)), future)

    def do_commit(self, *, id: str = "", generation: str = "-1", instance: str | None = None) -> list[str]:
        request = OffsetCommitRequest(
            group_id="g",
            member_id=id,
            group_instance_id=instance,
            generation_id_or_member_epoch=int(generation),
            topics=[],
        )
        code = self.group.validate_offset_commit(request, LATEST_COMMIT, self.now)
        return [code.name]

    def do_wait(self, *, ms: str) -> list[str]:
        """Let time pass, and tick whenever the group asked for it."""
        lines = []
        end = self.seconds + int(ms) / 1000
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.seconds = max(self.seconds, deadline)
            said = self._result_lines(self.group.tick(self.now, IMAGE))
            if said:
                lines += [f"at {self.seconds:g} s:", *said]
        self.seconds = end
        return lines

    def do_tick_late(self, *, ms: str) -> list[str]:
        """Let time pass, and tick once at the end of it."""
        self.seconds += int(ms) / 1000
        return self._result_lines(self.group.tick(self.now, IMAGE))

    def do_restart(self, **settings: str) -> list[str]:
        """The broker is killed and started again: the group is what its last record says."""
        self.uncompleted.clear()
        self.do_settings(**settings)
        if self.last_record is None:
            self.group = ClassicGroup("g", self.settings, self.now)
        else:
            value = self.last_record.value
            assert isinstance(value, GroupMetadataValue)
            self.group = restored(value, self.settings, self.now)
        self._shown_state = self._state()
        return [self._shown_state]

    def do_fail_next_write(self, *, code: str) -> list[str]:
        self.next_write_fails_with = ErrorCode[code]
        return []

    def do_abandon(self, *, code: str) -> list[str]:
        return self._result_lines(GroupResult(completions=[*self.group.abandon(ErrorCode[code])]))

    def do_describe(self) -> list[str]:
        described = self.group.describe()
        head = f"{described.group_state} type={described.protocol_type!r} protocol={described.protocol_data!r}"
        members = [
            f"  {member.member_id} instance={member.group_instance_id} client={member.client_id!r} "
            f"metadata={_text(member.member_metadata)} assignment={_text(member.member_assignment)}"
            for member in described.members
        ]
        return [head, *members]

    # --- In words ---

    def _result_lines(self, result: GroupResult, future: Waiting | None = None) -> list[str]:
        lines, code = [], ErrorCode.NONE
        if result.records and self.next_write_fails_with is not None:
            code, self.next_write_fails_with = self.next_write_fails_with, None
            lines.append(f"write failed: {code.name}")
        else:
            lines += [self._record(record) for record in result.records]
        result = appended(self.group, result, code)
        lines += [_event(event) for event in result.events]
        for completion in result.completions:
            assert isinstance(completion.future, Waiting)
            self.uncompleted.remove(completion.future)
            response = in_version(completion.response, completion.future.version)
            encode_bytes(response, completion.future.version)
            lines.append(f"{completion.future.label}: {_response_of(response)}")
        if future in self.uncompleted:
            lines.append("(delayed)")
        return lines

    def _record(self, record: GroupRecord) -> str:
        assert decode_group_record(*encode_group_record(record)) == record
        self.last_record = record
        value = record.value
        assert isinstance(value, GroupMetadataValue)
        members = "".join(
            f" {member.member_id}={_text(member.subscription)}:{_text(member.assignment)}" for member in value.members
        )
        return (
            f"record: generation {value.generation} type={value.protocol_type!r} protocol={value.protocol} "
            f"leader={value.leader}{members}"
        )

    def _state(self) -> str:
        return f"state: {self.group.state.value}, generation {self.group.generation_id}"

    def _event(
        self, request: RequestT, future: ResponseFuture, version: int = 0, client: str = ""
    ) -> CoordinatorEvent[RequestT]:
        return CoordinatorEvent(request, RequestContext(client, HOST, version), future, self.now, IMAGE)

    def _future(self, name: str, who: str, version: str) -> Waiting:
        future = Waiting(f"{name} {who}", int(version))
        self.uncompleted.add(future)
        return future

    def _new_id(self, base: str) -> str:
        self._numbers[base] = self._numbers.get(base, 0) + 1
        return f"{base}-{self._numbers[base]}"

    def _forget_id_if_unused(self, base: str) -> None:
        """Number ids without gaps, so that a conversation reads well."""
        latest = f"{base}-{self._numbers[base]}"
        if latest not in self.group.members and latest not in self.group.member_table.pending_joins:
            self._numbers[base] -= 1

    def _awaited_by_the_group(self) -> set[Any]:
        pending = [
            each for member in self.group.members.values() for each in (member.awaiting_join, member.awaiting_sync)
        ]
        return {future for future in pending if future is not None}


def in_version(response: Any, version: int) -> Any:
    """The response as the handlers shape it for a client of this version."""
    if isinstance(response, JoinGroupResponse) and response.error_code and version < NULL_PROTOCOL_SINCE_VERSION:
        response.protocol_name = ""
    if isinstance(response, LeaveGroupResponse) and version < MEMBERS_SINCE_VERSION:
        return of_one_member(response)
    return response


def _protocol(text: str) -> JoinGroupRequestProtocol:
    """``name`` or ``name:metadata``; metadata is by default the name in capitals."""
    name, colon, metadata = text.partition(":")
    return JoinGroupRequestProtocol(name=name, metadata=(metadata if colon else name.upper()).encode())


def _event(event: GroupEvent) -> str:
    who = f" {event.member_id}" if event.member_id else ""
    return f"* {event.kind.value}{who}" + (f" ({event.reason})" if event.reason else "")


def _response_of(response: Any) -> str:
    if isinstance(response, JoinGroupResponse):
        return _join_answer(response)
    if isinstance(response, SyncGroupResponse):
        return _sync_answer(response)
    assert isinstance(response, LeaveGroupResponse)
    members = [f"{_who(member)} {ErrorCode(member.error_code).name}" for member in response.members]
    return ", ".join([ErrorCode(response.error_code).name, *members])


def _join_answer(response: JoinGroupResponse) -> str:
    code = ErrorCode(response.error_code)
    if code and response.generation_id == -1:
        assert (response.leader, response.members, response.protocol_type) == ("", [], None)
        return f"{code.name} member_id={response.member_id!r} protocol={response.protocol_name!r}"
    members = [f"{_who(member)}={_text(member.metadata)}" for member in response.members]
    return (
        f"{code.name} member_id={response.member_id!r} generation {response.generation_id} "
        f"{response.protocol_type}/{response.protocol_name} leader={response.leader!r}"
        + (f" members {' '.join(members)}" if members else "")
        + (" skip assignment" if response.skip_assignment else "")
    )


def _sync_answer(response: SyncGroupResponse) -> str:
    code = ErrorCode(response.error_code)
    if code:
        assert (response.protocol_type, response.protocol_name, response.assignment) == (None, None, b"")
        return code.name
    return f"{_text(response.assignment)} {response.protocol_type}/{response.protocol_name}"


def _who(member: Any) -> str:
    return f"{member.member_id}/{member.group_instance_id}" if member.group_instance_id else member.member_id or "?"


def _text(data: bytes) -> str:
    return data.decode() or "-"
