"""What is wrong is reported in the words of the version, and changes nothing.

One claim for each mistake, in every version of every API that can make it. Before and after, everything that a client
can see of the group is the same.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.cases import each
from tests.handlers.group_client import Member

JOIN = range(10)
SYNC = range(6)
HEARTBEAT = range(5)
LEAVE = range(6)
COMMIT = range(2, 11)
FETCH = range(1, 11)
CONSUMER_HEARTBEAT = range(2)

NOBODY = Member("g", "nobody", 1)
NOWHERE = Member("nowhere", "nobody", 1)


@pytest.fixture
async def member(groups):
    """The one member of the stable group ``g``, which has committed 5 in t-0."""
    entered = await groups.enter()
    assert await groups.commit(9, entered, offset=5) == [0]
    return entered


@asynccontextmanager
async def untouched(groups, group_id="g"):
    """Nothing that a client can see of the group is other after the block than before."""
    before = await groups.state(group_id)
    yield
    assert await groups.state(group_id) == before


# ---- wrong generation -------------------------------------------------------------------------------------------


@each("version", SYNC)
@each("generation_id", [0, 2, -1])
async def test_sync_in_a_wrong_generation_is_22(groups, member, version, generation_id):
    async with untouched(groups):
        response = await groups.sync(version, attrs.evolve(member, generation_id=generation_id))
    assert (response.error_code, bytes(response.assignment)) == (ErrorCode.ILLEGAL_GENERATION, b"")


@each("version", HEARTBEAT)
@each("generation_id", [0, 2, -1])
async def test_heartbeat_in_a_wrong_generation_is_22(groups, member, version, generation_id):
    async with untouched(groups):
        code = await groups.heartbeat(version, attrs.evolve(member, generation_id=generation_id))
    assert code == ErrorCode.ILLEGAL_GENERATION


@each("version", COMMIT)
@each("generation_id", [0, 2])
async def test_commit_in_a_wrong_generation_is_22(groups, member, version, generation_id):
    async with untouched(groups):
        codes = await groups.commit(version, attrs.evolve(member, generation_id=generation_id), indexes=(0, 1))
    assert codes == [ErrorCode.ILLEGAL_GENERATION] * 2


# ---- unknown members and groups ---------------------------------------------------------------------------------


@each("version", JOIN)
@each("group_id", ["g", "nowhere"])
async def test_join_of_an_unknown_member_is_25(groups, member, version, group_id):
    async with untouched(groups, group_id):
        response = await groups.join(version, "nobody", group_id=group_id)
    assert (response.error_code, response.generation_id, response.members) == (ErrorCode.UNKNOWN_MEMBER_ID, -1, [])
    assert response.member_id == "nobody"


@each("version", SYNC)
@each("unknown", [NOBODY, NOWHERE])
async def test_sync_of_an_unknown_member_is_25(groups, member, version, unknown):
    async with untouched(groups, unknown.group_id):
        assert (await groups.sync(version, unknown)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@each("version", HEARTBEAT)
@each("unknown", [NOBODY, NOWHERE])
async def test_heartbeat_of_an_unknown_member_is_25(groups, member, version, unknown):
    async with untouched(groups, unknown.group_id):
        assert await groups.heartbeat(version, unknown) == ErrorCode.UNKNOWN_MEMBER_ID


@each("version", LEAVE)
@each("unknown", [NOBODY, NOWHERE])
async def test_leave_of_an_unknown_member_is_25(groups, member, version, unknown):
    async with untouched(groups, unknown.group_id):
        assert await groups.leave(version, unknown) == ErrorCode.UNKNOWN_MEMBER_ID


@each("version", COMMIT)
async def test_commit_of_an_unknown_member_is_25(groups, member, version):
    async with untouched(groups):
        assert await groups.commit(version, NOBODY) == [ErrorCode.UNKNOWN_MEMBER_ID]


@each("version", COMMIT)
async def test_commit_without_a_member_is_25_while_the_group_has_some(groups, member, version):
    async with untouched(groups):
        assert await groups.commit(version) == [ErrorCode.UNKNOWN_MEMBER_ID]


@each("version", COMMIT)
async def test_commit_of_a_generation_to_a_missing_group_is_22_and_from_version_9_on_69(groups, member, version):
    expected = ErrorCode.ILLEGAL_GENERATION if version < 9 else ErrorCode.GROUP_ID_NOT_FOUND
    async with untouched(groups, "nowhere"):
        assert await groups.commit(version, NOWHERE) == [expected]


@each("version", FETCH)
async def test_fetch_of_a_missing_group_is_no_error(groups, member, version):
    async with untouched(groups, "nowhere"):
        assert await groups.fetch(version, group_id="nowhere", indexes=(0, 1)) == [(0, -1), (0, -1)]


@each("version", range(3))
async def test_delete_of_a_missing_group_is_69_and_of_one_with_members_68(groups, member, version):
    async with untouched(groups):
        request = DeleteGroupsRequest(groups_names=["g", "nowhere"])
        results = (await groups.wire.ask(request, version)).results
    assert [result.error_code for result in results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]


# ---- groups without a name --------------------------------------------------------------------------------------


@each("version", JOIN)
async def test_join_of_no_group_is_24(groups, version):
    response = await groups.join(version, group_id="")
    assert response.error_code == ErrorCode.INVALID_GROUP_ID
    assert response.protocol_name == (None if version >= 7 else "")


@each("version", SYNC)
async def test_sync_of_no_group_is_24(groups, version):
    assert (await groups.sync(version, Member("", "m", 1))).error_code == ErrorCode.INVALID_GROUP_ID


@each("version", HEARTBEAT)
async def test_heartbeat_of_no_group_is_24(groups, version):
    assert await groups.heartbeat(version, Member("", "m", 1)) == ErrorCode.INVALID_GROUP_ID


@each("version", LEAVE)
async def test_leave_of_no_group_is_24(groups, version):
    assert await groups.leave(version, Member("", "m", 1)) == ErrorCode.INVALID_GROUP_ID


@each("version", COMMIT)
async def test_offsets_may_be_kept_for_no_group(groups, version):
    assert await groups.commit(version, group_id="", offset=9) == [0]
    assert await groups.fetch(version, group_id="") == [(0, 9)]


# ---- timeouts and protocols -------------------------------------------------------------------------------------


@each("version", JOIN)
@each("session_timeout_ms", [5_999, 1_800_001, 0, -1])
async def test_an_illegal_session_timeout_is_26(groups, member, version, session_timeout_ms):
    async with untouched(groups):
        response = await groups.join(version, member.member_id, session_timeout_ms=session_timeout_ms)
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, member.member_id)
    assert response.protocol_name == (None if version >= 7 else "")


@each("version", JOIN)
@each("offer", [{"protocol_type": "connect"}, {"protocols": ("sticky",)}, {"protocols": ()}, {"protocol_type": ""}])
async def test_a_protocol_that_the_others_do_not_have_is_23(groups, member, version, offer):
    async with untouched(groups):
        response = await groups.join(version, **offer)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert response.protocol_name == (None if version >= 7 else "")


@each("version", JOIN)
@each("offer", [{"protocols": ()}, {"protocol_type": ""}])
async def test_a_new_group_needs_a_protocol_too(groups, version, offer):
    response = await groups.join(version, group_id="new", **offer)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@each("mismatch", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
async def test_a_sync_that_means_another_protocol_is_23(groups, member, mismatch):
    async with untouched(groups):
        response = await groups.sync(5, member, **mismatch)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# ---- static members ---------------------------------------------------------------------------------------------


@pytest.fixture
async def static_member(groups):
    return await groups.enter(5, group_instance_id="i")


@each("version", range(5, 10))
async def test_join_under_anothers_instance_id_is_82(groups, static_member, version):
    async with untouched(groups):
        response = await groups.join(version, "other", group_instance_id="i")
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID


@each("version", range(3, 6))
async def test_sync_under_anothers_instance_id_is_82(groups, static_member, version):
    async with untouched(groups):
        response = await groups.sync(version, attrs.evolve(static_member, member_id="other"), group_instance_id="i")
    assert response.error_code == ErrorCode.FENCED_INSTANCE_ID


@each("version", range(3, 5))
async def test_heartbeat_under_anothers_instance_id_is_82(groups, static_member, version):
    async with untouched(groups):
        code = await groups.heartbeat(version, attrs.evolve(static_member, member_id="other"), group_instance_id="i")
    assert code == ErrorCode.FENCED_INSTANCE_ID


@each("version", range(7, 11))
async def test_commit_under_anothers_instance_id_is_82(groups, static_member, version):
    async with untouched(groups):
        other = attrs.evolve(static_member, member_id="other")
        codes = await groups.commit(version, other, group_instance_id="i")
    assert codes == [ErrorCode.FENCED_INSTANCE_ID]


# ---- offsets ----------------------------------------------------------------------------------------------------


@each("version", COMMIT)
async def test_commits_to_unknown_topics_are_3_and_by_id_100(groups, member, version):
    expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
    async with untouched(groups):
        assert await groups.commit(version, member, topic="gone") == [expected]


@each("version", COMMIT)
async def test_commits_to_unknown_partitions_are_3(groups, member, version):
    async with untouched(groups):
        assert await groups.commit(version, member, indexes=(3, -1)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


@each("version", COMMIT)
async def test_oversized_metadata_is_12_and_the_offset_before_it_stays(groups, member, version):
    async with untouched(groups):
        codes = await groups.commit(version, member, metadata="x" * 4097, indexes=(0, 1))
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 2
    assert await groups.commit(version, member, metadata="x" * 4096) == [0]


async def test_offsets_of_a_subscribed_topic_are_not_deleted(groups, member):
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    async with untouched(groups):
        response = await groups.wire.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    assert response.error_code == ErrorCode.NONE
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@each("group_id,code", [("nowhere", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)])
async def test_offsets_of_a_missing_group_are_not_deleted(groups, member, group_id, code):
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=partitions)]
    response = await groups.wire.ask(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)
    assert (response.error_code, response.topics) == (code, [])


# ---- what is too large to be written ----------------------------------------------------------------------------

OVERSIZED = b"x" * 1_100_000
"""More than a record of ``__consumer_offsets`` may have."""


@pytest.mark.parametrize("version", SYNC)
async def test_a_group_with_an_oversized_subscription_never_becomes_stable_and_goes_on_with_a_smaller_one(
    groups, version
):
    assert await groups.commit(9, offset=5) == [0]
    joined = await groups.join(0, metadata=OVERSIZED)
    response = await groups.sync(version, Member("g", joined.member_id, joined.generation_id))
    assert (response.error_code, bytes(response.assignment)) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")
    [described] = (await groups.state())[0].groups
    assert described.group_state == "PreparingRebalance"
    assert await groups.fetch(9) == [(0, 5)]
    again = await groups.join(0, joined.member_id)
    assert (await groups.sync(version, Member("g", again.member_id, again.generation_id))).error_code == 0


@each("version", CONSUMER_HEARTBEAT)
async def test_an_oversized_subscription_of_a_consumer_is_refused_and_makes_no_group(groups, version):
    names = [f"{number:0200}" for number in range(6000)]
    async with untouched(groups):
        response = await groups.consume(version, "m", 0, subscribed_topic_names=names)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# ---- the consumer protocol --------------------------------------------------------------------------------------


@each("version", CONSUMER_HEARTBEAT)
@each(
    "wrong",
    [
        {"rebalance_timeout_ms": -1},
        {"subscribed_topic_names": None},
        {"topic_partitions": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"group_id": ""},
    ],
)
async def test_joining_with_a_field_that_cannot_be_is_42(groups, version, wrong):
    async with untouched(groups):
        response = await groups.consume(version, "m", 0, **wrong)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message


async def test_from_version_1_on_a_member_brings_its_id(groups):
    async with untouched(groups):
        assert (await groups.consume(1, "", 0)).error_code == ErrorCode.INVALID_REQUEST


@each("version", CONSUMER_HEARTBEAT)
async def test_an_unknown_assignor_is_112(groups, version):
    async with untouched(groups):
        response = await groups.consume(version, "m", 0, server_assignor="sticky")
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_a_regular_expression_that_is_none_is_128(groups):
    async with untouched(groups):
        response = await groups.consume(1, "m", 0, subscribed_topic_names=[], subscribed_topic_regex="(")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


@each("version", CONSUMER_HEARTBEAT)
@each(
    "member_id,member_epoch,group_id,code",
    [
        ("m", 9, "g", ErrorCode.FENCED_MEMBER_EPOCH),
        ("nobody", 1, "g", ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", -1, "g", ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 1, "nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
        ("m", -3, "g", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_member_that_is_not_what_it_says(groups, version, member_id, member_epoch, group_id, code):
    assert (await groups.consume(version, "m", 0)).error_code == ErrorCode.NONE
    async with untouched(groups):
        response = await groups.consume(version, member_id, member_epoch, group_id=group_id)
    assert response.error_code == code


@each("version", COMMIT)
async def test_a_consumers_commit_needs_its_epoch_and_version_9(groups, version):
    epoch = (await groups.consume(1, "m", 0)).member_epoch
    wrong = ErrorCode.STALE_MEMBER_EPOCH if version >= 9 else ErrorCode.UNSUPPORTED_VERSION
    async with untouched(groups):
        assert await groups.commit(version, Member("g", "m", epoch + 1)) == [wrong]
        assert await groups.commit(version, NOBODY) == [ErrorCode.UNKNOWN_MEMBER_ID]
    right = ErrorCode.NONE if version >= 9 else ErrorCode.UNSUPPORTED_VERSION
    assert await groups.commit(version, Member("g", "m", epoch)) == [right]


@each("version", [9, 10])
async def test_a_consumers_fetch_is_checked_against_its_epoch(groups, version):
    epoch = (await groups.consume(1, "m", 0)).member_epoch
    async with untouched(groups):
        for member_id, member_epoch, code in (
            ("m", epoch, ErrorCode.NONE),
            ("m", epoch + 1, ErrorCode.STALE_MEMBER_EPOCH),
            ("nobody", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            reported = await groups.fetch(version, member_id=member_id, member_epoch=member_epoch)
            assert reported == [(code, -1)], member_id


@each("version", CONSUMER_HEARTBEAT)
async def test_a_classic_group_is_no_consumer_group(groups, member, version):
    request = ConsumerGroupDescribeRequest(group_ids=["g", "nowhere"], include_authorized_operations=False)
    async with untouched(groups):
        described = (await groups.wire.ask(request, version)).groups
    assert [group.error_code for group in described] == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert all(group.error_message for group in described)
