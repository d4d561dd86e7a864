"""Whatever members do and in whatever order: what a classic group promises all the same.

Each ticket is answered exactly once, the books agree with the members, nobody receives a generation that is not, no
alarm is late, and when all fall silent the group comes to rest.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataValue, GroupRecord, decode_group_record, encode_group_record
from tests.coordinator.appended import appended, restored
from tests.coordinator.classic.classic_driver import IMAGE, in_version
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.group_metadata import ClassicGroupState
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorEvent, Now, RequestContext

EMPTY = ClassicGroupState.EMPTY
PREPARING_REBALANCE = ClassicGroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE

SETTINGS = GroupCoordinatorConfig(
    group_min_session_timeout_ms=1_000, group_initial_rebalance_delay_ms=3_000, group_max_size=6
)
STRATEGIES = ("range", "roundrobin", "sticky")
INSTANCES = ("i", "j")
UNKNOWN = "unknown"
A_MOMENT = 0.000_1
A_LONG_TIME = 4_000.0
"""Longer than any timeout here, and than the sum of those that may follow one another."""

member_numbers = st.integers(0, 9)
timeouts_ms = st.sampled_from([1_000, 30_000, 100_000, 600_000])
rebalance_timeouts_ms = st.sampled_from([0, 10_000, 60_000, 60_000])
strategies = st.lists(st.sampled_from(STRATEGIES), min_size=1, max_size=3)
metadata = st.sampled_from([b"", b"\0\0\0\0\0\1\0\1t\0\0\0\0", b"?"])


class LabelledFuture(ResponseFuture):
    """Its own identity, also after a deep copy."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__()
        self.name = name
        self.version = version

    def __deepcopy__(self, memo: object) -> LabelledFuture:
        return self


class ClassicGroupMachine(RuleBasedStateMachine):
    """Members of one group, the log, and the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self.group = ClassicGroup("g", SETTINGS, self.now)
        self.uncompleted: set[LabelledFuture] = set()
        self.ids: list[str] = []
        self.reported_generation: dict[str, int] = {}
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.last_record: GroupMetadataValue | None = None
        self.fail_next_write = False
        self.greatest_generation = 0

    @property
    def now(self) -> Now:
        return Now(self.seconds, round(self.seconds * 1000))

    # --- Rules ---

    @rule(
        version=st.sampled_from([0, 3, 4, 9]),
        instance=st.sampled_from([None, None, None, *INSTANCES]),
        session_timeout_ms=timeouts_ms,
        rebalance_timeout_ms=rebalance_timeouts_ms,
        names=strategies,
        data=metadata,
    )
    def join_without_an_id(self, version, instance, session_timeout_ms, rebalance_timeout_ms, names, data) -> None:
        self.join("", version, instance, session_timeout_ms, rebalance_timeout_ms, names, data)

    @rule(
        number=member_numbers,
        version=st.sampled_from([3, 9]),
        session_timeout_ms=timeouts_ms,
        rebalance_timeout_ms=rebalance_timeouts_ms,
        names=strategies,
        data=metadata,
    )
    def join_with_an_id(self, number, version, session_timeout_ms, rebalance_timeout_ms, names, data) -> None:
        member_id = self.some_id(number)
        self.join(
            member_id, version, self.instance_of(member_id), session_timeout_ms, rebalance_timeout_ms, names, data
        )

    @rule()
    def everyone_joins_again(self) -> None:
        """Otherwise a rebalance would hardly ever complete but by its timeout."""
        for member in list(self.group.members.values()):
            if self.group.state is not PREPARING_REBALANCE:
                return
            if member.awaiting_join is None:
                names = list(member.protocols)
                self.join(member.member_id, 9, member.instance_id, 30_000, 60_000, names, member.protocols[names[0]])

    @rule()
    def the_group_settles(self) -> None:
        self.everyone_joins_again()
        if self.group.state is PREPARING_REBALANCE:
            self.wait(9.0)
        if self.group.state is COMPLETING_REBALANCE:
            self.leader_syncs()

    @rule(number=member_numbers, is_current=st.booleans(), version=st.sampled_from([0, 5]))
    def sync(self, number, is_current, version) -> None:
        self.sync_as(self.some_id(number), self.group.generation_id - (not is_current), version)

    @rule()
    def leader_syncs(self) -> None:
        if self.group.leader_id is not None:
            self.sync_as(self.group.leader_id, self.group.generation_id, 5)

    @rule(number=member_numbers, generations_ago=st.integers(0, 1))
    def heartbeat(self, number, generations_ago) -> None:
        member_id = self.some_id(number)
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.group.generation_id - generations_ago,
            member_id=member_id,
            group_instance_id=self.instance_of(member_id),
        )
        code = self.group.heartbeat(self.event(request, ResponseFuture()))
        if code == ErrorCode.NONE:
            assert self.reported_generation[member_id] == self.group.generation_id

    @rule(numbers=st.lists(member_numbers, max_size=3), version=st.sampled_from([0, 5]))
    def leave(self, numbers, version) -> None:
        ids = ([self.some_id(number) for number in numbers] or [UNKNOWN])[: 1 if version < 3 else None]
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=id_) for id_ in ids])
        future = self.future("leave", version)
        self.do(self.group.leave(self.event(request, future)))
        assert future not in self.uncompleted
        assert not self.group.members.keys() & set(ids)

    @rule(instance=st.sampled_from(INSTANCES))
    def remove_an_instance(self, instance) -> None:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id=instance)])
        self.do(self.group.leave(self.event(request, self.future("leave", 5))))

    @rule(number=member_numbers, generation=st.integers(-1, 3))
    def commit(self, number, generation) -> None:
        member_id = self.some_id(number)
        request = OffsetCommitRequest(
            group_id="g", member_id=member_id, generation_id_or_member_epoch=generation, topics=[]
        )
        code = self.group.validate_offset_commit(request, 9, self.now)
        if generation >= 0 and code == ErrorCode.NONE:
            assert member_id in self.group.members
            assert generation == self.group.generation_id

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.0, 3.0, 3.0, 100.0]))
    def time_passes(self, seconds) -> None:
        self.wait(seconds)

    @rule(seconds=st.sampled_from([1.0, 30.0]))
    def the_runner_is_late(self, seconds) -> None:
        self.seconds += seconds
        self.do(self.group.tick(self.now, IMAGE))

    @rule()
    def the_next_write_fails(self) -> None:
        self.fail_next_write = True

    @precondition(lambda self: self.last_record is not None)
    @rule()
    def the_broker_is_killed_and_started_again(self) -> None:
        assert self.last_record is not None
        self.uncompleted.clear()
        self.group = restored(self.last_record, SETTINGS, self.now)
        self.greatest_generation = self.last_record.generation
        for member in self.last_record.members:
            self.reported_generation[member.member_id] = self.last_record.generation

    # --- Doing it ---

    def some_id(self, number: int) -> str:
        known = [UNKNOWN, *self.ids[-9:]]
        return known[number % len(known)]

    def instance_of(self, member_id: str) -> str | None:
        member = self.group.members.get(member_id)
        return None if member is None else member.instance_id

    def join(
        self,
        member_id: str,
        version: int,
        instance: str | None,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        names: list[str],
        data: bytes,
    ) -> None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name in names],
        )
        new_member_id = f"m-{len(self.ids)}"
        future = self.future(f"join {member_id or new_member_id}", version)
        result = self.group.join(self.event(request, future, version, new_member_id))
        if not member_id:
            self.ids.append(new_member_id)
        self.do(result)

    def sync_as(self, member_id: str, generation: int, version: int) -> None:
        shares = {each: f"{generation} {each} {len(self.assigned)}".encode() for each in self.group.members}
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            group_instance_id=self.instance_of(member_id),
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=share) for each, share in shares.items()
            ],
        )
        before = self.group.state
        self.do(self.group.sync(self.event(request, self.future(f"sync {member_id}", version))))
        if before is COMPLETING_REBALANCE and self.group.state is STABLE:
            assert {each: member.assignment for each, member in self.group.members.items()} == shares

    def event(
        self, request: Any, future: ResponseFuture, version: int = 0, new_member_id: str = ""
    ) -> CoordinatorEvent[Any]:
        return CoordinatorEvent(request, context(version), future, self.now, IMAGE, new_member_id)

    def future(self, name: str, version: int) -> LabelledFuture:
        future = LabelledFuture(name, version)
        self.uncompleted.add(future)
        return future

    def wait(self, seconds: float) -> None:
        end = self.seconds + seconds
        ticks = 0
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.seconds = max(self.seconds, deadline)
            self.do(self.group.tick(self.now, IMAGE))
            ticks += 1
            assert ticks < 10 + seconds * (2 + len(self.group.members) + len(self.ids)), "the group does not rest"
        self.seconds = end

    def do(self, result: GroupResult) -> None:
        code = ErrorCode.NONE
        if result.records and self.fail_next_write:
            self.fail_next_write = False
            code = ErrorCode.NOT_COORDINATOR
        else:
            for record in result.records:
                self.note_record(record)
        result = appended(self.group, result, code)
        for completion in result.completions:
            assert isinstance(completion.future, LabelledFuture)
            self.uncompleted.remove(completion.future)
            response = in_version(completion.response, completion.future.version)
            encode_bytes(response, completion.future.version)
            self.note_answer(completion.future, response)

    def note_record(self, record: GroupRecord) -> None:
        assert decode_group_record(*encode_group_record(record)) == record
        assert isinstance(record.value, GroupMetadataValue)
        self.last_record = record.value
        for member in record.value.members:
            self.assigned[record.value.generation, member.member_id] = member.assignment

    def note_answer(self, future: LabelledFuture, response: Any) -> None:
        if isinstance(response, JoinGroupResponse) and not response.error_code:
            assert response.generation_id == self.group.generation_id
            self.reported_generation[response.member_id] = response.generation_id
            if response.members:
                assert response.leader == response.member_id
                assert {member.member_id for member in response.members} == self.group.members.keys()
        if isinstance(response, SyncGroupResponse) and not response.error_code:
            member_id = future.name.removeprefix("sync ")
            assert self.reported_generation[member_id] == self.group.generation_id
            assert response.assignment == self.assigned[self.group.generation_id, member_id], (
                "nobody is given what is not written down for it in this generation"
            )

    # --- What holds at any time ---

    @invariant()
    def every_ticket_that_has_no_answer_waits_in_the_group(self) -> None:
        members = self.group.members.values()
        pending = [
            each for member in members for each in (member.awaiting_join, member.awaiting_sync) if each is not None
        ]
        assert len(pending) == len(self.uncompleted)
        assert set(pending) == self.uncompleted

    @invariant()
    def the_books_agree_with_the_members(self) -> None:
        member_table, members = self.group.member_table, self.group.members
        assert member_table.awaiting_join_count == sum(member.awaiting_join is not None for member in members.values())
        assert (member_table.leader_id in members) == bool(members)
        instances = [member.instance_id for member in members.values() if member.instance_id is not None]
        assert len(instances) == len(set(instances))
        for member in members.values():
            if member.instance_id is not None:
                assert member_table.static_member_id(member.instance_id) == member.member_id
        assert not members.keys() & member_table.pending_joins.keys()
        assert member_table.pending_syncs <= members.keys()
        for name in STRATEGIES:
            assert member_table.supports_any([name]) == all(name in member.protocols for member in members.values())
        assert not members or any(member_table.supports_any([name]) for name in STRATEGIES)

    @invariant()
    def each_state_is_what_it_says(self) -> None:
        group, members = self.group, self.group.members.values()
        assert group.generation_id >= self.greatest_generation, "generations only grow"
        self.greatest_generation = group.generation_id
        if group.state is EMPTY:
            assert not members
        if group.state in (COMPLETING_REBALANCE, STABLE):
            assert members
            assert all(member.awaiting_join is None for member in members)
            assert group.protocol_name is not None
            assert all(group.protocol_name in member.protocols for member in members)
        if group.state is not COMPLETING_REBALANCE:
            assert all(member.awaiting_sync is None for member in members)
        if group.state is STABLE:
            of_another_generation = [
                member.member_id
                for member in members
                if member.instance_id is None and self.reported_generation[member.member_id] != group.generation_id
            ]
            assert not of_another_generation

    @invariant()
    def a_stable_group_is_what_its_record_says(self) -> None:
        if self.group.state is STABLE:
            assert self.last_record is not None
            assert restored(self.last_record, SETTINGS, self.now).metadata_record() == self.group.metadata_record()

    @invariant()
    def no_alarm_is_late(self) -> None:
        deadline = self.group.next_deadline()
        before = self.seconds + A_LONG_TIME if deadline is None else deadline - A_MOMENT
        if before > self.seconds:
            early = copy.deepcopy(self.group).tick(Now(before, round(before * 1000)), IMAGE)
            assert early == GroupResult()

    def teardown(self) -> None:
        """All fall silent."""
        self.fail_next_write = False
        self.wait(A_LONG_TIME)
        assert self.group.state is EMPTY
        assert not self.uncompleted
        assert self.group.next_deadline() is None
        assert not self.group.member_table.pending_joins


def context(version: int) -> RequestContext:
    return RequestContext("client", "/127.0.0.1", version)


ClassicGroupMachine.TestCase.settings = hypothesis_settings(stateful_step_count=40)
TestWhateverMembersDo = ClassicGroupMachine.TestCase
