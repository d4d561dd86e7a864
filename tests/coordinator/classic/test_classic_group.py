"""The classic group: conversations in ``conversations/classic_*.txt``, and what clients expect beyond the schemas."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any, TypeVar, cast

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import OffsetCommitRequest
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord, MemberMetadata
from tests.coordinator import conversations
from tests.coordinator.appended import appended, restored
from tests.coordinator.classic.classic_driver import ClassicDriver
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.group_metadata import ClassicGroupState
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.member_table import MAX_PENDING_MEMBERS
from trio_broker.coordinator.classic.responses import join_error, join_request_error
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.reporting.snapshot import GroupType
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorEvent, Now, RequestContext

JOIN_VERSIONS = range(10)
IMAGE = MetadataImage()
RequestT = TypeVar("RequestT")
SUBSCRIPTION = b"\0\0\0\0\0\2\0\1a\0\1b\0\0\0\0"
"""Version 0, topics a and b, no user data."""
ASSIGNMENT = b"\0\0\0\0\0\1\0\1a\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0"
"""Version 0, partitions 0 and 1 of topic a, no user data."""


@pytest.mark.parametrize("path", conversations.files("classic_*.txt"), ids=lambda path: path.stem)
def test_a_classic_group_answers_as_written(path):
    conversations.play(path, ClassicDriver())


# --- A group by hand, for what a conversation cannot say ---


def at(seconds: float) -> Now:
    return Now(seconds, round(seconds * 1000))


def new_group(**settings: Any) -> ClassicGroup:
    return ClassicGroup("g", GroupCoordinatorConfig(**{"group_initial_rebalance_delay_ms": 0} | settings), at(0))


def named(name: str) -> ResponseFuture:
    """A group hands its futures back and does nothing else with them, so that a name will do for one."""
    return cast(ResponseFuture, name)


JOIN = named("join")


def join(group: ClassicGroup, member_id: str = "", **fields: Any) -> GroupResult:
    return appended(group, decided_join(group, member_id, **fields))


def decided_join(
    group: ClassicGroup,
    member_id: str = "",
    *,
    version: int = 3,
    new_member_id: str = "new-1",
    instance_id: str | None = None,
    protocols: dict[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_timeout_ms: int = 10_000,
    rebalance_timeout_ms: int = 60_000,
    seconds: float = 0,
    future: ResponseFuture = JOIN,
) -> GroupResult:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in (protocols or {"range": SUBSCRIPTION}).items()
        ],
    )
    context = RequestContext("client", "/127.0.0.1", version)
    if code := join_request_error(request, group.settings):
        result = GroupResult()
        result.complete(future, join_error(code, member_id))
        return result
    return group.join(CoordinatorEvent(request, context, future, at(seconds), IMAGE, new_member_id))


def event(request: RequestT, name: str, seconds: float) -> CoordinatorEvent[RequestT]:
    return CoordinatorEvent(request, RequestContext("client", "/127.0.0.1", 0), named(name), at(seconds), IMAGE)


def sync(
    group: ClassicGroup, member_id: str, assignments: dict[str, bytes] | None = None, *, seconds: float = 0
) -> GroupResult:
    return appended(group, decided_sync(group, member_id, assignments, seconds=seconds))


def decided_sync(
    group: ClassicGroup, member_id: str, assignments: dict[str, bytes] | None = None, *, seconds: float = 0
) -> GroupResult:
    request = SyncGroupRequest(
        group_id="g",
        generation_id=group.generation_id,
        member_id=member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=id_, assignment=assignment)
            for id_, assignment in (assignments or {}).items()
        ],
    )
    return group.sync(event(request, "sync", seconds))


def heartbeat(group: ClassicGroup, member_id: str, *, seconds: float = 0, instance_id: str | None = None) -> ErrorCode:
    request = HeartbeatRequest(
        group_id="g", generation_id=group.generation_id, member_id=member_id, group_instance_id=instance_id
    )
    return group.heartbeat(event(request, "heartbeat", seconds))


def commit(member_id: str, generation_id: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g", member_id=member_id, generation_id_or_member_epoch=generation_id, topics=[]
    )


def stable_group(*member_ids: str, **settings: int) -> ClassicGroup:
    """A group of dynamic members, of which the first leads; it has all of topic a."""
    group = new_group(**settings)
    for member_id in member_ids:
        join(group, new_member_id=member_id)
    group.tick(at(0), IMAGE)
    for member_id in reversed(member_ids):
        sync(group, member_id, {member_ids[0]: ASSIGNMENT})
    assert group.state is ClassicGroupState.STABLE
    return group


def joined(result: GroupResult, future: ResponseFuture = JOIN) -> JoinGroupResponse:
    (response,) = [completion.response for completion in result.completions if completion.future == future]
    assert isinstance(response, JoinGroupResponse)
    return response


# --- What clients expect: docs/client-compatibility.md ---


@pytest.mark.parametrize("version", JOIN_VERSIONS)
def test_from_version_4_on_a_dynamic_member_is_asked_to_join_again_with_the_id_it_is_given(version):
    group = new_group()
    first = join(group, version=version, new_member_id="client-1")
    if version < 4:
        assert not first.completions
        assert list(group.members) == ["client-1"]
        return
    assert joined(first).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert joined(first).member_id == "client-1"
    assert not group.members
    assert not join(group, "client-1", version=version).completions
    assert list(group.members) == ["client-1"]


def test_a_static_member_is_let_in_at_once():
    group = new_group()
    assert not join(group, version=5, instance_id="i").completions
    assert group.members


def test_the_first_member_of_an_empty_group_waits_three_seconds_for_others():
    group = ClassicGroup("g", GroupCoordinatorConfig(), at(0))
    join(group)
    assert group.next_deadline() == 3.0
    assert not group.tick(at(2.999), IMAGE).completions
    assert joined(group.tick(at(3), IMAGE)).generation_id == 1


def test_without_a_delay_it_waits_for_the_next_tick_only():
    group = new_group()
    join(group)
    assert group.next_deadline() == 0
    assert joined(group.tick(at(0), IMAGE)).generation_id == 1


def test_a_join_waits_for_as_long_as_the_longest_rebalance_timeout_of_the_others():
    group = stable_group("a")
    join(group, "a", rebalance_timeout_ms=240_000, session_timeout_ms=300_000)
    sync(group, "a")
    join(group, new_member_id="b", rebalance_timeout_ms=1_000, future=named("b"))
    assert not group.tick(at(239.9), IMAGE).completions
    assert joined(group.tick(at(240), IMAGE), named("b")).leader == "b"


@pytest.mark.parametrize(
    ("session_timeout_ms", "code"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_000, ErrorCode.MEMBER_ID_REQUIRED),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_session_timeout_lies_between_six_seconds_and_half_an_hour(session_timeout_ms, code):
    assert joined(join(new_group(), version=9, session_timeout_ms=session_timeout_ms)).error_code == code


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_returns_without_a_rebalance_and_must_not_assign_again(version):
    group = new_group()
    join(group, version=version, instance_id="i", new_member_id="old")
    group.tick(at(0), IMAGE)
    sync(group, "old", {"old": ASSIGNMENT})
    response = joined(join(group, version=version, instance_id="i", new_member_id="new"))
    assert (response.error_code, response.member_id, response.generation_id) == (0, "new", 1)
    assert group.state is ClassicGroupState.STABLE
    if version >= 9:
        assert response.skip_assignment
        assert response.leader == "new"
        assert [member.member_id for member in response.members] == ["new"]
    else:
        assert not response.skip_assignment
        assert response.leader == "old"
        assert not response.members
    assert heartbeat(group, "old", instance_id="i") == ErrorCode.FENCED_INSTANCE_ID
    assert heartbeat(group, "new", instance_id="i") == ErrorCode.NONE
    (completion,) = sync(group, "new").completions
    assert completion.response.assignment == ASSIGNMENT


def test_a_list_of_members_leaves_by_instance_id():
    group = new_group()
    join(group, version=5, instance_id="i", new_member_id="i-1")
    group.tick(at(0), IMAGE)
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id="i")])
    (completion,) = appended(group, group.leave(event(request, "leave", 0))).completions
    assert [member.error_code for member in completion.response.members] == [0]
    assert group.is_deserted


def test_the_leader_alone_is_given_the_metadata_and_bytes_of_any_kind_are_passed_on():
    group = new_group()
    garbage = b"\xff\xfe not a subscription"
    join(group, new_member_id="a", protocols={"x": garbage, "y": b""}, future=named("a"))
    join(group, new_member_id="b", protocols={"y": b"", "x": b"\0"}, future=named("b"))
    result = group.tick(at(0), IMAGE)
    leader, follower = joined(result, named("a")), joined(result, named("b"))
    assert [(member.member_id, member.metadata) for member in leader.members] == [("a", garbage), ("b", b"\0")]
    assert (follower.leader, follower.members) == ("a", [])
    sync(group, "a", {"a": garbage})
    assert group.members["a"].assignment == garbage
    assert group.snapshot(IMAGE).members[0].assignment is None


@pytest.mark.parametrize("protocol_type", ["consumer", "connect", "sr", "anything at all"])
def test_a_protocol_type_is_free_text_and_all_members_share_it(protocol_type):
    group = new_group()
    join(group, protocol_type=protocol_type)
    assert joined(group.tick(at(0), IMAGE)).protocol_type == protocol_type
    error = join(group, new_member_id="other", protocol_type="another")
    assert joined(error).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_only_an_empty_group_lets_a_simple_consumer_commit():
    group = new_group()
    assert group.validate_offset_commit(commit("", -1), 2, at(0)) == ErrorCode.NONE
    group = stable_group("a")
    assert group.validate_offset_commit(commit("", -1), 2, at(0)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert group.validate_offset_commit(commit("a", 1), 10, at(0)) == ErrorCode.NONE
    assert group.validate_offset_commit(commit("a", 0), 10, at(0)) == ErrorCode.ILLEGAL_GENERATION


def test_a_dead_group_is_described_as_dead_without_an_error():
    group = stable_group("a")
    group.abandon(ErrorCode.NOT_COORDINATOR)
    described = group.describe()
    assert (described.error_code, described.group_state, described.members) == (0, "Dead", [])


def test_metadata_and_protocol_are_described_in_a_stable_group_only():
    group = stable_group("a")
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert described.members[0].member_metadata == SUBSCRIPTION
    assert described.members[0].member_assignment == ASSIGNMENT
    assert described.members[0].client_host == "/127.0.0.1"
    join(group, new_member_id="b")
    described = group.describe()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in described.members] == [b"", b""]
    assert [member.member_assignment for member in described.members] == [ASSIGNMENT, b""]


# --- Offsets, deletion ---


def test_a_group_with_members_cannot_be_deleted():
    group = stable_group("a")
    assert group.validate_delete_group() == ErrorCode.NON_EMPTY_GROUP
    leave(group, "a")
    assert group.validate_delete_group() == ErrorCode.NONE
    assert group.tombstones() == [GroupRecord(GroupMetadataKey(group="g"), None)]
    group.abandon(ErrorCode.NOT_COORDINATOR)
    assert group.validate_delete_group() == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_topics_that_a_consumer_subscribes_to_cannot_be_deleted():
    group = stable_group("a")
    assert group.validate_offset_delete() == ErrorCode.NONE
    assert group.subscribed_topics == frozenset({"a", "b"})
    assert [group.is_subscribed_to(topic) for topic in "abc"] == [True, True, False]
    leave(group, "a")
    assert group.subscribed_topics == set()
    assert not group.is_subscribed_to("a")


def test_consumers_whose_subscription_cannot_be_read_count_as_subscribed_to_everything():
    group = new_group()
    assert not group.is_subscribed_to("a")
    join(group, protocols={"range": b"?"})
    assert group.is_subscribed_to("a")
    group.tick(at(0), IMAGE)
    assert group.subscribed_topics is None
    assert group.is_subscribed_to("a")


def test_offsets_of_a_group_that_is_not_of_consumers_cannot_be_deleted_while_it_has_members():
    group = new_group()
    join(group, protocol_type="connect")
    group.tick(at(0), IMAGE)
    assert group.validate_offset_delete() == ErrorCode.NON_EMPTY_GROUP
    assert not group.is_subscribed_to("a")
    leave(group, "new-1")
    assert group.validate_offset_delete() == ErrorCode.NONE
    group.abandon(ErrorCode.NOT_COORDINATOR)
    assert group.validate_offset_delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert group.validate_offset_fetch(None, -1) == ErrorCode.GROUP_ID_NOT_FOUND


def test_anyone_may_read_the_offsets_of_a_classic_group():
    assert stable_group("a").validate_offset_fetch("unknown", 7) == ErrorCode.NONE


def leave(group: ClassicGroup, member_id: str, *, seconds: float = 0) -> GroupResult:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
    return appended(group, group.leave(event(request, "leave", seconds)))


# --- Records ---


def test_the_record_of_a_generation_is_the_group_again():
    group = stable_group("a", "b")
    record = group.metadata_record()
    assert isinstance(record.value, GroupMetadataValue)
    again = restored(record.value, group.settings, at(100))
    assert again.metadata_record() == record
    assert again.state is ClassicGroupState.STABLE
    assert (again.leader_id, again.protocol_name, again.subscribed_topics) == ("a", "range", frozenset({"a", "b"}))
    assert again.next_deadline() == 110.0
    assert again.snapshot(IMAGE) == group.snapshot(IMAGE)


def test_a_record_of_an_old_broker_is_read_as_far_as_it_goes():
    member = MemberMetadata(
        member_id="a", client_id="c", client_host="/h", session_timeout=10_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol="range", leader="gone", members=[member]
    )
    group = restored(value, GroupCoordinatorConfig(), at(0))
    assert group.members["a"].rebalance_timeout_ms == 10_000
    assert group.leader_id == "a"
    assert group.state_since_ms == -1


def test_after_the_greatest_generation_comes_0():
    value = GroupMetadataValue(protocol_type="", generation=2**31 - 1, protocol=None, leader=None, members=[])
    group = restored(value, GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0), at(0))
    assert (group.is_deserted, group.protocol_type) == (True, None)
    join(group)
    assert joined(group.tick(at(0), IMAGE)).generation_id == 0


def test_a_group_can_be_made_of_the_members_of_another_kind_of_group():
    members = [
        ClassicMember(
            member_id=name,
            instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=45_000,
            protocols={"range": SUBSCRIPTION},
            assignment=ASSIGNMENT,
        )
        for name in ("a", "b")
    ]
    group = ClassicGroup.of_members(
        "g", GroupCoordinatorConfig(), at(0), generation_id=7, protocol_type="consumer", members=members
    )
    assert (group.state, group.leader_id, group.protocol_name) == (ClassicGroupState.STABLE, "a", "range")
    assert group.next_deadline() == 45.0
    result = group.start_rebalance("a member of the other kind left", at(1))
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert result.events[0].reason == "a member of the other kind left"


def test_people_see_what_consumers_subscribe_to_and_were_assigned():
    snapshot = stable_group("a", "b").snapshot(IMAGE)
    assert (snapshot.type, snapshot.state, snapshot.generation) == (GroupType.CLASSIC, "Stable", 1)
    a, b = snapshot.members
    assert (a.subscribed_topics, a.assignment) == (("a", "b"), {"a": (0, 1)})
    assert b.assignment == {}


# --- Size and speed ---


def test_a_flood_of_first_joins_is_bounded_and_does_not_keep_a_member_from_joining():
    group = stable_group("a", group_min_session_timeout_ms=1)
    for number in range(MAX_PENDING_MEMBERS * 3):
        join(group, version=9, new_member_id=f"flood-{number}", session_timeout_ms=1_800_000)
    assert len(group.member_table.pending_joins) == MAX_PENDING_MEMBERS
    assert joined(join(group, version=9, new_member_id="b")).error_code == ErrorCode.MEMBER_ID_REQUIRED
    join(group, "b", version=9)
    assert "b" in group.members
    assert joined(join(group, "flood-0", version=9)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_that_is_given_ids_and_leaves_with_them_leaves_nothing_behind():
    group = new_group()
    for number in range(10):
        join(group, version=9, new_member_id=f"flood-{number}")
        leave(group, f"flood-{number}")
    assert group.is_deserted
    group.tick(at(10), IMAGE)
    assert group.next_deadline() is None


def test_a_group_with_a_pending_member_is_not_deserted():
    group = new_group()
    deserted = [group.is_deserted]
    join(group, version=9)
    deserted.append(group.is_deserted)
    group.tick(at(10), IMAGE)
    assert [*deserted, group.is_deserted] == [True, False, True]


def test_a_member_takes_less_than_ten_kilobytes():
    subscription = b"\0\0\0\0\0\1" + (40).to_bytes(2, "big") + b"t" * 40 + b"\0\0\0\0"
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        group = new_group()
        for number in range(1_000):
            protocols = {f"range-{number}"[:5]: bytes(subscription), f"sticky-{number}"[:6]: bytes(subscription)}
            join(group, new_member_id=f"consumer-{number:036}", protocols=protocols)
        group.tick(at(0), IMAGE)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(group.members) == 1_000
    assert taken / 1_000 < 10_000


def test_a_heartbeat_never_makes_the_alarm_late():
    """A new member's first deadline is five minutes away; once it sends heartbeats its session counts."""
    group = stable_group("a")
    join(group, "a", session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    sync(group, "a")
    join(group, new_member_id="b", session_timeout_ms=10_000)
    group.tick(at(5), IMAGE)
    assert heartbeat(group, "b", seconds=5) == ErrorCode.REBALANCE_IN_PROGRESS
    deadline = group.next_deadline()
    assert deadline is not None
    assert deadline <= 15.0


def test_a_group_of_missing_static_members_without_a_rebalance_timeout_does_not_spin():
    group = new_group()
    join(group, version=5, instance_id="i", new_member_id="i-1", rebalance_timeout_ms=0)
    join(group, new_member_id="a", rebalance_timeout_ms=0)
    group.tick(at(0), IMAGE)
    sync(group, "i-1")
    sync(group, "a")
    leave(group, "a")
    group.tick(at(0), IMAGE)
    deadline = group.next_deadline()
    assert deadline is not None
    assert deadline >= 1.0


# --- What could not be written ---


def test_answers_that_are_refusals_anyway_stay_as_they_are_when_the_record_cannot_be_written():
    group = stable_group("a")
    join(group, "a")
    result = decided_sync(group, "a", {"a": ASSIGNMENT})
    instead = appended(group, result, ErrorCode.NOT_COORDINATOR)
    (completion,) = instead.completions
    assert isinstance(completion.response, SyncGroupResponse)
    assert completion.response.error_code == ErrorCode.NOT_COORDINATOR
    assert group.members["a"].assignment == b""
    assert not instead.records


def test_what_the_last_member_that_leaves_brings_about_is_freed_without_the_collector():
    group = stable_group("a")
    gc.disable()
    try:
        result = leave(group, "a")
        assert result.refused is not None
        freed = weakref.ref(result)
        del result
        assert freed() is None
    finally:
        gc.enable()


def test_nothing_has_changed_until_the_record_of_an_assignment_is_in_the_log():
    group = stable_group("a")
    join(group, "a")
    before = group.metadata_record()
    result = decided_sync(group, "a", {"a": b"new"})
    assert (group.state, group.metadata_record()) == (ClassicGroupState.COMPLETING_REBALANCE, before)
    appended(group, result)
    assert (group.state, group.members["a"].assignment) == (ClassicGroupState.STABLE, b"new")


def test_nothing_has_changed_until_the_record_of_a_static_replacement_is_in_the_log():
    group = new_group()
    join(group, version=5, instance_id="i", new_member_id="old")
    group.tick(at(0), IMAGE)
    sync(group, "old", {"old": ASSIGNMENT})
    before = group.metadata_record()
    result = decided_join(group, instance_id="i", new_member_id="new")
    assert [getattr(record.value, "leader", None) for record in result.records] == ["new"]
    assert group.metadata_record() == before
    refused = joined(appended(group, result, ErrorCode.NOT_COORDINATOR))
    assert (refused.error_code, refused.leader, group.metadata_record()) == (ErrorCode.NOT_COORDINATOR, "old", before)


def test_events_carry_the_reason_that_the_client_gave():
    group = new_group()
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        reason="because",
    )
    result = group.join(CoordinatorEvent(request, RequestContext("c", "/h", 9), JOIN, at(0), IMAGE, "i-1"))
    assert result.events[0].reason == "because"
    assert attrs.asdict(result.events[0])["client_host"] == "/h"


def test_a_negative_initial_delay_is_none():
    group = new_group(group_initial_rebalance_delay_ms=-1)
    join(group, new_member_id="m")
    assert group.next_deadline() == 0
    assert [completion.response.generation_id for completion in group.tick(at(0), IMAGE).completions] == [1]


def test_a_deadline_that_begins_in_a_late_tick_is_not_over_in_the_same_one():
    """With a rebalance timeout of 0, or the first generation would be over before its members have heard of it."""
    group = new_group(group_initial_rebalance_delay_ms=3_000)
    join(group, version=4, new_member_id="never-comes-back", session_timeout_ms=6_000)
    join(group, new_member_id="m", rebalance_timeout_ms=0)
    result = group.tick(at(30), IMAGE)
    assert [completion.response.generation_id for completion in result.completions] == [1]
    assert (group.generation_id, list(group.members)) == (1, ["m"])
    assert group.next_deadline() == 30
