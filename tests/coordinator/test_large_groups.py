"""What is large yields in between, and what is monstrous is refused before it is done."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.compat.group_requests import first_beat
from tests.coordinator.appended import appended
from tests.coordinator.coordinator_harness import no_park, running_coordinator
from tests.fakes.followed_metadata import elected, follow
from tests.waits import fail_after
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import at_once
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator import group_machine, offset_deletion
from trio_broker.coordinator.classic.deadlines import MAX_DUE_AT_ONCE
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import MAX_PROTOCOLS, MAX_PROTOCOLS_BYTES
from trio_broker.coordinator.consumer.requests import MAX_ID_CHARACTERS, MAX_SUBSCRIBED_NAMES
from trio_broker.coordinator.consumer.stored_group import MAX_SMALL_GROUP
from trio_broker.coordinator.runtime import shard
from trio_broker.coordinator.runtime.result import Now, RequestContext
from trio_broker.coordinator.runtime.shard import Shard

WEEK_SECONDS = 7 * 86_400
GROUPS = 40
MANY_PARTITIONS = 1_000
CONSUMER = RequestContext("client", "/127.0.0.1", 1)


@pytest.fixture
async def broker(tmp_path):
    async with running_coordinator(tmp_path, log_durability="page-cache") as coordination:
        await coordination.create_topic("t")
        await coordination.groups.find("g")
        yield coordination


@asynccontextmanager
async def turns_for_others(at_least, monkeypatch):
    """Fail unless others have the loop so often while the block runs, if a turn is over after every item."""
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    turns = 0

    async def count_turns():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await trio.lowlevel.checkpoint()
        before = turns
        yield
        seen = turns - before
        nursery.cancel_scope.cancel()
    assert seen >= at_least


async def commit(broker, group_id, partitions, topic="t"):
    wanted = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 1, committed_metadata="")
        for index in partitions
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=wanted)]
    request = OffsetCommitRequest(group_id=group_id, member_id="", generation_id_or_member_epoch=-1, topics=topics)
    return await broker.groups.call(request.group_id, request, RequestContext("client", "/127.0.0.1", 9), no_park)


# ---- turns ------------------------------------------------------------------------------------------------------


async def test_others_come_between_groups_that_are_deleted(broker, monkeypatch):
    names = [f"group-{number}" for number in range(GROUPS)]
    for name in names:
        await broker.commit(name, 1)
    async with turns_for_others(GROUPS // 2, monkeypatch):
        results = await broker.groups.delete_groups([*names, "nobody"], no_park)
    assert [result.group_id for result in results] == [*names, "nobody"]
    assert [result.error_code for result in results] == [0] * GROUPS + [ErrorCode.GROUP_ID_NOT_FOUND]


async def test_groups_that_are_deleted_together_wait_for_the_disk_together(tmp_path, monkeypatch):
    async with running_coordinator(tmp_path) as broker:
        await broker.create_topic("t")
        await broker.groups.find("g")
        names = [f"group-{number}" for number in range(GROUPS)]
        for name in names:
            await broker.commit(name, 1)
        waits = []
        wait = broker.services.replicas.appends.wait_until_replicated

        async def counted(awaited, **options):
            waits.append(awaited)
            return await wait(awaited, **options)

        monkeypatch.setattr(broker.services.replicas.appends, "wait_until_replicated", counted)
        results = await broker.groups.delete_groups(names, no_park)
        assert {result.error_code for result in results} == {0}
        assert len(waits) <= 3, "there are three partitions"


async def test_a_large_fetch_yields_and_comes_as_a_whole(broker, monkeypatch):
    await commit(broker, "g", range(0, 2 * MANY_PARTITIONS, 2))
    indexes = list(range(2 * MANY_PARTITIONS + 5))
    topics = [
        OffsetFetchRequestTopics(name="t", partition_indexes=indexes),
        OffsetFetchRequestTopics(name="nothing", partition_indexes=[]),
        OffsetFetchRequestTopics(name="u", partition_indexes=[7]),
    ]
    async with turns_for_others(2, monkeypatch):
        response = await broker.groups.fetch_offsets(OffsetFetchRequestGroup(group_id="g", topics=topics), no_park)
    assert response.error_code == ErrorCode.NONE
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [
        ("t", len(indexes)),
        ("nothing", 0),
        ("u", 1),
    ]
    for partition in response.topics[0].partitions:
        index = partition.partition_index
        expected = index + 1 if index % 2 == 0 and index < 2 * MANY_PARTITIONS else -1
        assert partition.committed_offset == expected, index


async def test_a_large_fetch_is_refused_as_a_small_one(broker):
    heartbeat = first_beat("c", "m", ["t"])
    joined = await broker.groups.call("c", heartbeat, RequestContext("client", "/127.0.0.1", 1), no_park)
    assert joined.error_code == 0
    for count in (1, MANY_PARTITIONS + 1):
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0] * count)]
        request = OffsetFetchRequestGroup(group_id="c", member_id="m", member_epoch=99, topics=topics)
        response = await broker.groups.fetch_offsets(request, no_park)
        assert (response.error_code, response.topics) == (ErrorCode.STALE_MEMBER_EPOCH, [])


async def test_others_come_while_the_offsets_of_one_group_expire(broker, monkeypatch):
    monkeypatch.setattr(offset_deletion, "MAX_DELETED_AT_ONCE", 10)
    await commit(broker, "g", range(95))
    broker.advance(WEEK_SECONDS)
    async with turns_for_others(5, monkeypatch):
        await broker.groups.expire_offsets()
    assert await broker.committed("g") == {}
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_others_come_while_offsets_are_looked_at_that_do_not_expire(broker, monkeypatch):
    monkeypatch.setattr(offset_deletion, "MAX_DELETED_AT_ONCE", 10)
    await commit(broker, "g", range(95))
    async with turns_for_others(5, monkeypatch):
        await broker.groups.expire_offsets()
    assert len((await broker.committed("g"))["t"]) == 95


async def test_others_come_while_a_group_with_many_offsets_is_deleted_but_none_of_the_group(broker, monkeypatch):
    monkeypatch.setattr(offset_deletion, "MAX_DELETED_AT_ONCE", 10)
    await commit(broker, "g", range(95))
    await commit(broker, "h", range(5))
    refusals = []

    async def look_while_deleted():
        while True:
            try:
                broker.groups.shard("g")
            except KafkaError as error:
                refusals.append(error.code)
            assert broker.groups.shard("h").is_active
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_while_deleted)
        await trio.lowlevel.checkpoint()
        async with turns_for_others(5, monkeypatch):
            [result] = await broker.groups.delete_groups(["g"], no_park)
        nursery.cancel_scope.cancel()
    assert result.error_code == ErrorCode.NONE
    assert set(refusals) == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    assert await broker.committed("g") == {}
    assert [group.group_id for group in broker.groups.list_groups(set(), set())] == ["h"]


async def test_a_group_that_the_log_refuses_to_delete_half_way_can_be_deleted_once_more(broker, monkeypatch):
    monkeypatch.setattr(offset_deletion, "MAX_DELETED_AT_ONCE", 10)
    await commit(broker, "g", range(25))
    append, appends = broker.services.replicas.appends.append_internal, 0

    def refuse_the_second(partition, batch, *, leader_epoch):
        nonlocal appends
        appends += 1
        if appends == 2:
            raise KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR)
        append(partition, batch, leader_epoch=leader_epoch)

    monkeypatch.setattr(broker.services.replicas.appends, "append_internal", refuse_the_second)
    [result] = await broker.groups.delete_groups(["g"], no_park)
    assert result.error_code == ErrorCode.NOT_COORDINATOR
    assert len((await broker.committed("g"))["t"]) == 15
    [result] = await broker.groups.delete_groups(["g"], no_park)
    assert (result.error_code, await broker.committed("g")) == (ErrorCode.NONE, {})


async def test_the_records_of_a_shard_are_folded_in_turns(broker, monkeypatch):
    await commit(broker, "g", range(95))
    monkeypatch.setattr(shard, "LOAD_TURN_SECONDS", -1.0)
    runtime = broker.groups.runtime
    runtime.close()
    runtime.shards.clear()
    async with turns_for_others(90, monkeypatch):
        runtime.load_led_partitions()
        await runtime.wait_until_loaded()
    assert len((await broker.committed("g"))["t"]) == 95


async def test_a_shard_that_goes_to_another_broker_is_closed_in_turns_and_loaded_anew_after_that(broker, monkeypatch):
    runtime = broker.groups.runtime
    groups = [f"g{number}" for number in range(200) if runtime.partition_of(f"g{number}").partition == 0]
    for group_id in groups:
        await commit(broker, group_id, [0])
    closing = runtime.shards[0]
    async with turns_for_others(len(groups) // 2, monkeypatch):
        await follow(broker.services, elected(broker.services, CONSUMER_OFFSETS_TOPIC, 2, 0))
        assert (closing.is_closed, 0 in runtime.shards) == (True, False)
        await follow(broker.services, elected(broker.services, CONSUMER_OFFSETS_TOPIC, 1, 0))
        await runtime.wait_until_loaded()
        assert closing.machine.groups == {}
    assert runtime.shards[0].machine.groups.keys() == set(groups)


async def test_the_lags_of_a_large_group_come_in_turns(broker, monkeypatch):
    await commit(broker, "g", range(95))
    async with turns_for_others(90, monkeypatch):
        lags = await broker.groups.lags("g")
    assert [lag.partition for lag in lags] == [*range(95)]


async def test_others_come_while_a_deleted_topic_of_many_partitions_is_forgotten_by_one_group(broker, monkeypatch):
    monkeypatch.setattr(offset_deletion, "MAX_DELETED_AT_ONCE", 10)
    await broker.create_topic("short-lived", 95)
    await commit(broker, "g", range(95), topic="short-lived")
    [deleted] = [broker.services.metadata_cache.image.topics["short-lived"]]
    async with turns_for_others(5, monkeypatch):
        await offset_deletion.delete_offsets_in(broker.groups.runtime, broker.groups.shard("g"), [deleted])
    assert await broker.committed("g") == {}


async def test_others_come_while_the_offsets_of_a_deleted_topic_are_forgotten(broker, monkeypatch):
    await broker.create_topic("short-lived")
    for number in range(GROUPS):
        await broker.commit(f"group-{number}", 1, topic="short-lived")
    async with turns_for_others(GROUPS // 2, monkeypatch):
        await broker.services.controller.delete_topics([TopicTarget(name="short-lived")])
    for number in range(GROUPS):
        assert await broker.committed(f"group-{number}") == {}


# ---- large consumer groups --------------------------------------------------------------------------------------


def heartbeat(member_id, member_epoch, topics, owned):
    return ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id=member_id,
        member_epoch=member_epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        topic_partitions=owned,
    )


@pytest.fixture
def epochs(broker, monkeypatch):
    """The epochs of the group, of its target and of the member of each heartbeat, after each event."""
    seen = []
    handle = Shard.handle

    def recorded(each, key, request, context):
        future = handle(each, key, request, context)
        stored = each.machine.groups[key].stored
        seen.append((stored.group_epoch, stored.target_epoch, stored.members[request.member_id].member_epoch))
        return future

    monkeypatch.setattr(Shard, "handle", recorded)
    return seen


@pytest.mark.parametrize(
    ("count", "expected"), [(MAX_SMALL_GROUP, [(2, 2, 2)]), (MAX_SMALL_GROUP + 1, [(2, 1, 1), (2, 2, 1), (2, 2, 2)])]
)
async def test_a_large_group_is_changed_assigned_and_followed_in_events_of_their_own(
    broker, epochs, monkeypatch, count, expected
):
    names = ["t", *(f"topic-{number}" for number in range(count - 1))]
    async with turns_for_others(len(expected) // 2, monkeypatch):
        response = await broker.groups.call("c", heartbeat("m", 0, names, []), CONSUMER, no_park)
    assert epochs == expected
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)
    assert [topic.partitions for topic in response.assignment.topic_partitions] == [[0]]


async def test_a_member_that_first_has_to_give_up_partitions_is_asked_to_and_not_followed(broker, epochs):
    names = ["t", *map(str, range(MAX_SMALL_GROUP))]
    first = await broker.groups.call("c", heartbeat("m", 0, names, []), CONSUMER, no_park)
    [owned] = [TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in first.assignment.topic_partitions]
    broker.advance(WEEK_SECONDS)
    epochs.clear()
    reported = await broker.groups.call("c", heartbeat("m", 2, names[1:], [owned]), CONSUMER, no_park)
    assert epochs == [(3, 2, 2), (3, 3, 2)]
    assert (reported.member_epoch, reported.assignment.topic_partitions) == (2, [])


async def test_a_member_that_is_removed_between_two_events_receives_the_answer_to_the_first(broker):
    names = ["t", *map(str, range(MAX_SMALL_GROUP))]
    steps = broker.groups.call_steps("c", heartbeat("m", 0, names, []), CONSUMER, no_park)
    wait = next(steps)
    removal = LeaveGroupRequest(group_id="c", members=[MemberIdentity(member_id="m")])
    await broker.groups.call("c", removal, RequestContext("admin", "/127.0.0.1", 5), no_park)
    response = await run_steps(steps, wait)
    assert (response.error_code, response.member_id, response.member_epoch) == (ErrorCode.NONE, "m", 1)


async def test_a_consumer_group_is_described_in_turns_as_it_was_at_the_beginning(broker):
    for number in range(20):
        await broker.groups.call("c", heartbeat(f"m-{number}", 0, ["t"], []), CONSUMER, no_park)
    description = broker.groups.machine("c").describe_consumer_group("c")
    next(description)
    removal = LeaveGroupRequest(group_id="c", members=[MemberIdentity(member_id=f"m-{n}") for n in range(10, 20)])
    await broker.groups.call("c", removal, RequestContext("admin", "/127.0.0.1", 5), no_park)
    turns = 1
    while True:
        try:
            next(description)
        except StopIteration as end:
            described = end.value
            break
        turns += 1
    assert turns == 20
    assert [member.member_id for member in described.members] == [f"m-{number}" for number in range(20)]


# ---- sessions that end together ---------------------------------------------------------------------------------


def test_many_classic_members_that_fall_silent_together_are_removed_in_parts():
    count = 2 * MAX_DUE_AT_ONCE + 1
    members = [
        ClassicMember(f"m-{number}", None, "client", "/127.0.0.1", 60_000, 10_000, {"range": b""})
        for number in range(count)
    ]
    group = ClassicGroup.of_members(
        "g", GroupCoordinatorConfig(), Now(0, 0), generation_id=1, protocol_type="consumer", members=members
    )
    left = []
    while not group.is_deserted:
        deadline = group.next_deadline()
        assert deadline is not None, "the alarm rings again while some are left"
        assert deadline <= 10
        appended(group, group.tick(Now(10, 10_000), MetadataImage()))
        left.append(len(group.members))
    assert left == [count - MAX_DUE_AT_ONCE, 1, 0]


@pytest.mark.parametrize(
    ("group_id", "member_id", "count"), [("g", "m" * 250, 1_300), ("g" * 32_000, "m", 12)], ids=["members", "group"]
)
async def test_more_consumers_that_fall_silent_together_than_one_batch_can_forget_are_all_removed(
    tmp_path, group_id, member_id, count
):
    settings: dict[str, Any] = {
        "group_consumer_session_timeout_ms": "1",
        "group_consumer_min_session_timeout_ms": "1",
    }
    async with running_coordinator(tmp_path, log_durability="page-cache", **settings) as broker:
        await broker.groups.find(group_id)
        for number in range(count):
            request = first_beat(group_id, f"{member_id}{number}", ["t"])
            response = await broker.groups.call(request.group_id, request, RequestContext("c", "/h", 1), no_park)
            assert response.error_code == 0, response
        with fail_after(20):
            while at_once(broker.groups.machine(group_id).describe_consumer_group(group_id)).members:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)


# ---- what is too much -------------------------------------------------------------------------------------------


async def test_a_commit_that_no_batch_can_hold_is_refused_before_it_is_made(broker, monkeypatch):
    def make_nothing(*arguments):
        raise AssertionError("made for nothing")

    monkeypatch.setattr(group_machine, "commit_result", make_nothing)
    with pytest.raises(KafkaError) as error:
        await commit(broker, "g", [0] * 30_000)
    assert error.value.code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_an_assignment_that_no_batch_can_hold_is_refused_before_it_is_encoded(broker, monkeypatch):
    joined = await broker.enter("g")

    def make_nothing(*arguments):
        raise AssertionError("made for nothing")

    monkeypatch.setattr(group_machine, "encode_group_record", make_nothing)
    synced = await broker.sync(joined, "g", **{joined.member_id: bytes(20 << 20)})
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_commit_that_just_fits_is_not_refused_beforehand(broker):
    response = await commit(broker, "g", range(14_000))
    assert {partition.error_code for partition in response.topics[0].partitions} == {0}


@pytest.mark.parametrize(
    "protocols",
    [
        [JoinGroupRequestProtocol(name=f"p-{number}", metadata=b"") for number in range(MAX_PROTOCOLS + 1)],
        [JoinGroupRequestProtocol(name="p", metadata=bytes(MAX_PROTOCOLS_BYTES))],
    ],
    ids=["many", "large"],
)
@pytest.mark.parametrize("version", [3, 9])
async def test_a_member_with_monstrous_protocols_is_refused_and_nothing_is_kept_of_it(broker, protocols, version):
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols
    )
    response = await broker.groups.call(
        request.group_id, request, RequestContext("client", "/127.0.0.1", version), no_park
    )
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_a_classic_member_that_is_too_large_for_the_records_of_a_consumer_group_is_refused(broker):
    consumer = first_beat("g", "m", ["t"])
    joined = await broker.groups.call(consumer.group_id, consumer, RequestContext("client", "/127.0.0.1", 1), no_park)
    assert joined.error_code == ErrorCode.NONE
    subscription = b"\0\0\0\0\0\1\0\1t\0\x20\0\0" + bytes(1 << 21)
    classic = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    response = await broker.groups.call(classic.group_id, classic, RequestContext("client", "/127.0.0.1", 3), no_park)
    assert (response.error_code, response.members) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
    assert [
        member.member_id for member in at_once(broker.groups.machine("g").describe_consumer_group("g")).members
    ] == ["m"]


@pytest.mark.parametrize("field", ["member_id", "instance_id", "rack_id"])
@pytest.mark.parametrize(
    ("length", "code"), [(MAX_ID_CHARACTERS, ErrorCode.NONE), (MAX_ID_CHARACTERS + 1, ErrorCode.INVALID_REQUEST)]
)
async def test_the_ids_of_a_consumer_may_not_be_monstrous(broker, field, length, code):
    request = first_beat("g", "m", ["t"])
    setattr(request, field, "x" * length)
    response = await broker.groups.call(request.group_id, request, RequestContext("client", "/127.0.0.1", 1), no_park)
    assert response.error_code == code


@pytest.mark.parametrize(
    ("count", "code"), [(MAX_SUBSCRIBED_NAMES, ErrorCode.NONE), (MAX_SUBSCRIBED_NAMES + 1, ErrorCode.INVALID_REQUEST)]
)
async def test_a_consumer_may_subscribe_to_as_many_names_as_there_can_be_topics(broker, count, code):
    request = first_beat("g", "m", [str(number) for number in range(count)])
    response = await broker.groups.call(request.group_id, request, RequestContext("client", "/127.0.0.1", 1), no_park)
    assert response.error_code == code


async def test_what_is_too_large_to_be_written_fills_no_log_and_forges_no_line(broker, caplog):
    names = ["x" * 200 + str(number) for number in range(10_000)]
    for number in range(50):
        request = first_beat(f"g\n2026-01-01 ERROR it is {number}" + "y" * 30_000, "m", names)
        response = await broker.groups.call(
            request.group_id, request, RequestContext("client", "/127.0.0.1", 1), no_park
        )
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < 1_000
