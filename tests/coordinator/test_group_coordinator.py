"""The coordinator finds groups, loads them, waits for the disk, and survives refusals of its log."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.records.record import NewRecord
from tests.compat.group_requests import first_beat
from tests.coordinator.coordinator_harness import no_park, running_coordinator
from tests.waits import fail_after
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.group_machine import MAX_MEMBER_ID_PREFIX_CHARACTERS
from trio_broker.coordinator.runtime.coordinator_runtime import partition_for
from trio_broker.coordinator.runtime.result import RequestContext

WEEK_SECONDS = 7 * 86_400


@pytest.fixture
async def broker(tmp_path):
    """A coordinator whose groups live on three partitions, and a topic ``t``."""
    async with running_coordinator(tmp_path) as coordination:
        await coordination.create_topic("t")
        yield coordination


@pytest.fixture
async def timed_broker(tmp_path):
    """As ``broker``, with a clock that jumps: in page-cache mode, so that it does not jump over waits for the disk. It
    still jumps while the topics are created, so the expiry of offsets is far away: it deletes groups without members.
    """
    far_ms = str(2**31 - 1)
    async with running_coordinator(
        tmp_path, log_durability="page-cache", offsets_retention_check_interval_ms=far_ms
    ) as coordination:
        await coordination.create_topic("t")
        await coordination.groups.find("g")
        yield coordination


def test_the_partition_of_a_group_is_javas_hash_of_its_name():
    names = ["my-group", "console-consumer-1", "test", "polygenelubricants"]
    assert [partition_for(name, 50) for name in names] == [12, 24, 48, 0]


def test_the_hash_goes_over_utf_16_units_however_long_the_name():
    # "😀" is the units D83D and DE00, whose hash is 55357 * 31 + 56832.
    assert partition_for("😀", 1_000_000_007) == 55357 * 31 + 56832
    assert partition_for("a" * 300, 50) == partition_for("a" * 300, 50)


# ---- the internal topic ----------------------------------------------------------------------------------------------


async def test_looking_for_a_coordinator_creates_the_internal_topic_compacted(broker):
    assert CONSUMER_OFFSETS_TOPIC not in broker.services.metadata_cache.image.topics
    await broker.groups.find("g")
    topic = broker.services.metadata_cache.image.topics[CONSUMER_OFFSETS_TOPIC]
    assert len(topic.partitions) == 3
    assert topic.configs["cleanup.policy"] == "compact"
    assert await broker.commit("g", 1) == 0


async def test_many_who_look_at_once_create_it_once(broker):
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(broker.groups.find, f"g{number}")
    assert len(broker.services.metadata_cache.image.topics[CONSUMER_OFFSETS_TOPIC].partitions) == 3


async def test_a_group_has_no_coordinator_before_the_topic_is_there(broker):
    with pytest.raises(KafkaError) as raised:
        await broker.join("g")
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_an_empty_group_id_is_no_group_but_may_have_offsets(broker):
    await broker.groups.find("")
    with pytest.raises(KafkaError) as raised:
        await broker.join("")
    assert raised.value.code == ErrorCode.INVALID_GROUP_ID
    assert await broker.commit("", 5) == 0
    assert await broker.committed("") == {"t": {0: 5}}


async def test_deleting_the_internal_topic_ends_all_groups_and_the_next_one_begins_anew(broker):
    await broker.groups.find("g")
    await broker.commit("g", 5)
    await broker.services.controller.delete_topics([TopicTarget(name=CONSUMER_OFFSETS_TOPIC)])
    with pytest.raises(KafkaError) as raised:
        await broker.commit("g", 6)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    await broker.groups.find("g")
    assert await broker.committed("g") == {}


# ---- living through a restart ----------------------------------------------------------------------------------------


async def test_offsets_and_members_come_back_after_a_restart(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.create_topic("t")
        await broker.groups.find("g")
        member = await broker.settle("g")
        assert await broker.commit("g", 42, member=member, metadata="where I was") == 0
        assert await broker.commit("simple", 7) == 0
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        assert await broker.committed("g") == {"t": {0: 42}}
        assert await broker.committed("simple") == {"t": {0: 7}}
        assert await broker.heartbeat(member, "g") == 0
        assert {group.group_id: group.group_state for group in [*broker.groups.list_groups(set(), set())]} == {
            "g": "Stable",
            "simple": "Empty",
        }


async def loaded(broker):
    """Wait until every partition has been loaded."""
    with fail_after(10):
        while broker.groups.statistics().loading:
            await trio.lowlevel.checkpoint()


async def test_groups_in_memory_are_those_that_a_restart_reads(broker):
    for group_id in ("simple", "stable", "left", "deleted", "consumers"):
        await broker.groups.find(group_id)
    for number, group_id in enumerate(("simple", "stable", "deleted")):
        await broker.commit(group_id, number)
    await broker.settle("stable")
    await broker.leave(await broker.settle("left"), "left")
    await broker.groups.delete_groups(["deleted"], no_park)
    heartbeat = first_beat("consumers", "m", ["t"])
    await broker.groups.call("consumers", heartbeat, RequestContext("client", "/127.0.0.1", 1), no_park)
    seen = set()
    for shard in broker.groups.runtime.active_shards():
        again = broker.groups.runtime.new_machine()
        async for part in shard.log.slices():
            for batch in part.batches:
                for record in batch.records:
                    again.replay(record)
        again.loaded(broker.groups.runtime.now(), broker.services.metadata_cache.image)
        assert contents(again) == contents(shard.machine)
        seen |= shard.machine.groups.keys()
    assert seen == {"simple", "stable", "left", "consumers"}


def contents(machine):
    """All that the log has."""
    groups = {
        group_id: group.metadata_record() if isinstance(group, ClassicGroup) else vars(group.stored)
        for group_id, group in machine.groups.items()
        if group.exists
    }
    kept = machine.offsets
    offsets = {
        group: {topic: kept.of_topic(group, topic) for topic in kept.topics_of(group)} for group in kept.groups()
    }
    return machine.groups.keys(), groups, offsets


async def test_a_member_that_does_not_come_back_after_a_restart_times_out(tmp_path, autojump_clock):
    async with running_coordinator(tmp_path, log_durability="page-cache") as broker:
        await broker.groups.find("g")
        member = await broker.settle("g")
    async with running_coordinator(tmp_path, clock=broker.clock, log_durability="page-cache") as broker:
        await loaded(broker)
        await trio.sleep(30)
        assert await broker.heartbeat(member, "g") == ErrorCode.UNKNOWN_MEMBER_ID
        assert broker.groups.machine("g").snapshot("g").state == "Empty"


async def test_clients_are_asked_to_retry_while_groups_are_loaded(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        await broker.commit("g", 1)
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        shard = broker.groups.shard("g")
        shard.state = type(shard.state).LOADING
        for ask in (partial(broker.commit, "g", 2), partial(broker.committed, "g"), partial(broker.join, "g")):
            with pytest.raises(KafkaError) as raised:
                await ask()
            assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(KafkaError) as raised:
            [*broker.groups.list_groups(set(), set())]
        assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_record_that_cannot_be_read_costs_only_itself(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        await broker.commit("g", 1)
        shard = broker.groups.shard("g")
        shard.log.append([NewRecord(0, b"\0\2\0\1g", b"\0\3garbage"), NewRecord(0, b"\0\x63new", b"whatever")])
        await broker.commit("g2", 2)
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        assert await broker.committed("g") == {"t": {0: 1}}


# ---- safety ----------------------------------------------------------------------------------------------------------


async def test_a_commit_is_answered_only_when_it_is_on_the_disk(broker, monkeypatch):
    await broker.groups.find("g")
    partition = broker.groups.shard("g").log.partition
    gate, synced = trio.Event(), partition.log.sync_files

    def slow_sync():
        trio.from_thread.run(gate.wait)
        return synced()

    monkeypatch.setattr(partition.log, "sync_files", slow_sync)
    answered = []

    async def commit():
        answered.append(await broker.commit("g", 42))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        nursery.start_soon(commit)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert partition.log_end_offset > partition.high_watermark
        assert not answered
        gate.set()
    assert answered == [0, 0]
    assert partition.high_watermark == partition.log_end_offset


async def test_an_offset_that_could_still_be_lost_is_not_reported(broker, monkeypatch):
    await broker.groups.find("g")
    await broker.commit("g", 1)
    shard = broker.groups.shard("g")
    monkeypatch.setattr(shard.log.partition.state, "high_watermark", shard.log.partition.high_watermark - 1)
    monkeypatch.setattr(broker.groups.runtime, "commit_timeout_seconds", 0.001)
    with pytest.raises(KafkaError) as raised:
        await broker.committed("g")
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_full_disk_refuses_a_commit_and_changes_nothing(broker, monkeypatch):
    await broker.groups.find("g")
    await broker.commit("g", 1)
    refuse_writes(broker, monkeypatch, "g")
    with pytest.raises(KafkaError) as raised:
        await broker.commit("g", 2)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()
    assert await broker.committed("g") == {"t": {0: 1}}
    assert await broker.commit("g", 3) == 0


def refuse_writes(broker, monkeypatch, group_id):
    """Let the disk of a group's partition be full."""

    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(broker.groups.shard(group_id).log.partition.log, "append", full)


async def test_an_assignment_that_cannot_be_written_is_not_handed_out(broker, monkeypatch):
    await broker.groups.find("g")
    joined = await broker.enter("g")
    refuse_writes(broker, monkeypatch, "g")
    synced = await broker.sync(joined, "g", **{joined.member_id: b"assignment"})
    assert synced.error_code == ErrorCode.NOT_COORDINATOR
    assert broker.groups.machine("g").snapshot("g").state == "PreparingRebalance"
    monkeypatch.undo()
    again = await broker.join("g", joined.member_id)
    assert again.generation_id == joined.generation_id + 1
    assert (await broker.sync(again, "g", **{joined.member_id: b"assignment"})).error_code == 0


async def test_a_group_that_cannot_be_written_gives_no_member_an_id(broker, monkeypatch):
    await broker.groups.find("g")
    refuse_writes(broker, monkeypatch, "g")
    refused = await broker.join("g")
    assert (refused.error_code, refused.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert [*broker.groups.list_groups(set(), set())] == []
    monkeypatch.undo()
    assert (await broker.settle("g")).generation_id == 1


async def test_a_commit_too_large_for_a_batch_is_refused_as_such(tmp_path):
    async with running_coordinator(tmp_path, message_max_bytes="1000") as broker:
        await broker.groups.find("g")
        with pytest.raises(KafkaError) as raised:
            await broker.commit("g", 1, metadata="x" * 2000)
        assert raised.value.code == ErrorCode.INVALID_COMMIT_OFFSET_SIZE


# ---- members that wait -----------------------------------------------------------------------------------------------


async def test_a_stop_answers_everybody_who_waits_for_others(broker):
    await broker.groups.find("g")
    first = await broker.settle("g")
    second = await broker.join("g")
    completions = []

    async def join_again():
        completions.append((await broker.join("g", second.member_id)).error_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_again)
        await trio.testing.wait_all_tasks_blocked()
        assert await broker.heartbeat(first, "g") == ErrorCode.REBALANCE_IN_PROGRESS
        broker.groups.runtime.close()
    assert completions == [ErrorCode.NOT_COORDINATOR]


async def test_a_silent_member_is_missed_at_its_session_timeout(timed_broker, autojump_clock):
    member = await timed_broker.settle("g")
    await trio.sleep(9)
    assert await timed_broker.heartbeat(member, "g") == 0
    await trio.sleep(9)
    assert await timed_broker.heartbeat(member, "g") == 0
    await trio.sleep(11)
    assert await timed_broker.heartbeat(member, "g") == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_timeline_says_who_timed_out(timed_broker, autojump_clock):
    member = await timed_broker.settle("g")
    await trio.sleep(30)
    causes = [cause for rebalance in timed_broker.groups.machine("g").timeline("g") for cause in rebalance.causes]
    assert ("member timed out", member.member_id) in [(cause.kind.value, cause.member_id) for cause in causes]
    assert timed_broker.groups.statistics().rebalances >= 2


async def test_a_group_that_was_never_created_leaves_nothing(timed_broker, autojump_clock):
    error = await timed_broker.join("g", session_timeout_ms=1)
    assert error.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await timed_broker.join("other", "unknown-member")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert [*timed_broker.groups.list_groups(set(), set())] == []


# ---- forgetting ------------------------------------------------------------------------------------------------------


async def test_offsets_of_a_group_expire_a_week_after_its_last_member_left(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        member = await broker.settle("g")
        await broker.commit("g", 1, member=member)
        broker.advance(2 * WEEK_SECONDS)
        await broker.groups.expire_offsets()
        assert await broker.committed("g") == {"t": {0: 1}}
        assert await broker.leave(member, "g") == 0
        broker.advance(WEEK_SECONDS - 1)
        await broker.groups.expire_offsets()
        assert await broker.committed("g") == {"t": {0: 1}}
        broker.advance(1)
        await broker.groups.expire_offsets()
        assert [*broker.groups.list_groups(set(), set())] == []
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        assert [*broker.groups.list_groups(set(), set())] == []
        assert broker.groups.statistics().committed_offsets == 0


async def test_a_clock_that_is_set_forward_and_back_in_time_costs_an_empty_group_nothing(broker):
    await broker.groups.find("g")
    await broker.commit("g", 1)
    broker.clock.time_ms += 8 * 86_400_000
    await broker.groups.expire_offsets()
    broker.advance(300)
    await broker.groups.expire_offsets()
    assert await broker.committed("g") == {"t": {0: 1}}
    broker.clock.time_ms -= 8 * 86_400_000
    broker.advance(600)
    await broker.groups.expire_offsets()
    assert await broker.committed("g") == {"t": {0: 1}}


async def test_a_clock_that_stays_set_forward_expires_offsets_after_a_while(broker):
    await broker.groups.find("g")
    await broker.commit("g", 1)
    broker.clock.time_ms += 8 * 86_400_000
    await broker.groups.expire_offsets()
    broker.advance(600)
    await broker.groups.expire_offsets()
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_deleting_a_topic_forgets_what_was_committed_in_it(broker):
    await broker.create_topic("other")
    await broker.groups.find("g")
    await broker.commit("g", 1)
    await broker.commit("g", 2, topic="other")
    await broker.services.controller.delete_topics([TopicTarget(name="t")])
    assert await broker.committed("g") == {"other": {0: 2}}


async def test_a_group_is_deleted_with_its_offsets_but_not_under_its_members(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        member = await broker.settle("g")
        await broker.commit("g", 1, member=member)
        [error] = await broker.groups.delete_groups(["g"], no_park)
        assert error.error_code == ErrorCode.NON_EMPTY_GROUP
        await broker.leave(member, "g")
        results = await broker.groups.delete_groups(["g", "never"], no_park)
        assert [each.error_code for each in results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        assert [*broker.groups.list_groups(set(), set())] == []


async def test_single_offsets_are_deleted_and_stay_so(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        await broker.commit("g", 1)
        await broker.commit("g", 2, topic="u")
        topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        response = await broker.groups.call(
            "g", OffsetDeleteRequest(group_id="g", topics=[topic]), RequestContext("client", "/127.0.0.1", 0), no_park
        )
        assert response.topics[0].partitions[0].error_code == 0
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        assert await broker.committed("g") == {"u": {0: 2}}


async def test_a_flood_of_joins_to_one_group_does_not_keep_others_waiting(timed_broker, autojump_clock):
    """Every request is done between two checkpoints of the loop, so those of other groups come between."""
    done = []

    async def flood():
        for _ in range(2000):
            await timed_broker.join("flooded")
            await trio.lowlevel.checkpoint()
        done.append("flood")

    async def others():
        for number in range(50):
            assert await timed_broker.commit("g", number) == 0
            await trio.lowlevel.checkpoint()
        done.append("others")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(flood)
        nursery.start_soon(others)
    assert done == ["others", "flood"]


async def test_new_groups_whose_members_never_come_are_deleted_with_the_next_expiry(timed_broker, autojump_clock):
    for number in range(100):
        await timed_broker.join(f"g{number}")
    await timed_broker.groups.expire_offsets()
    assert sum(timed_broker.groups.statistics().groups.values()) == 100
    await trio.sleep(11)
    await timed_broker.groups.expire_offsets()
    assert sum(timed_broker.groups.statistics().groups.values()) == 0


async def test_a_new_group_is_there_after_a_restart_even_if_its_first_member_never_comes(tmp_path):
    async with running_coordinator(tmp_path) as broker:
        await broker.groups.find("g")
        await broker.join("g")
        refused = await broker.join("refused", protocol_type="")
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        await broker.join("never", session_timeout_ms=1)
    async with running_coordinator(tmp_path, clock=broker.clock) as broker:
        await loaded(broker)
        listed = [*broker.groups.list_groups(set(), set())]
        assert {(group.group_id, group.group_state, group.protocol_type) for group in listed} == {
            ("g", "Empty", ""),
            ("refused", "Empty", ""),
        }


async def test_a_new_group_whose_record_cannot_be_written_is_not_there(broker, monkeypatch):
    await broker.groups.find("g")

    refuse_writes(broker, monkeypatch, "g")
    joined = await broker.join("g", "", group_instance_id="i")
    assert joined.error_code == ErrorCode.NOT_COORDINATOR
    assert [*broker.groups.list_groups(set(), set())] == []


async def test_a_member_id_holds_no_more_of_a_clients_name_than_its_beginning(broker):
    await broker.groups.find("g")
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    response = await broker.groups.call(
        request.group_id, request, RequestContext("x" * 32_000, "/127.0.0.1", 4), no_park
    )
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(response.member_id) == MAX_MEMBER_ID_PREFIX_CHARACTERS + len("-") + 36


async def test_a_group_at_its_last_epoch_refuses_what_would_raise_it_and_changes_nothing(broker):
    """The record of the next epoch cannot be encoded: no member gets an epoch that none may have."""
    await broker.groups.find("g")

    async def heartbeat(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        response: ConsumerGroupHeartbeatResponse = await broker.groups.call(
            "g", request, RequestContext("client", "/127.0.0.1", 1), no_park
        )
        return response

    join = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    joined = await heartbeat("a", 0, **join)
    stored = broker.groups.machine("g").groups["g"].stored
    stored.group_epoch = 2**31 - 1
    assert (await heartbeat("b", 0, **join)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (await heartbeat("a", -1)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (stored.group_epoch, list(stored.members)) == (2**31 - 1, ["a"])
    kept = await heartbeat("a", joined.member_epoch)
    assert (kept.error_code, kept.member_epoch) == (ErrorCode.NONE, joined.member_epoch)


async def test_a_request_that_makes_no_sense_is_said_to_even_where_there_is_no_consumer_group(broker):
    await broker.groups.find("g")
    await broker.settle("g")
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=-1)
    response = await broker.groups.call(request.group_id, request, RequestContext("client", "/127.0.0.1", 1), no_park)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert broker.groups.machine("g").snapshot("g").type.value == "classic"
