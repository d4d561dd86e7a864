"""Offsets that are committed in transactions count when the transaction is committed, in the order of the log."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.offset_commits import encode_commit_key, encode_commit_value
from tests.coordinator.coordinator_harness import CoordinatorHarness, no_park, running_coordinator
from tests.waits import fail_after
from trio_broker.cluster.replication_control import TopicTarget
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.offsets.requests import TransactionalCommit
from trio_broker.coordinator.runtime import log as log_module
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.partition.transaction_end import TransactionEnd

CLIENT = RequestContext("client", "/127.0.0.1", 5)
MOVER, OTHER = ProducerIdAndEpoch(7, 0), ProducerIdAndEpoch(8, 3)
RETENTION_SECONDS = 7 * 86_400

KEYS = [encode_commit_key("g", "t", 0), encode_commit_key("g", "t", 1), encode_commit_key("h", "t", 0)]


def value(offset: int) -> bytes:
    return encode_commit_value(offset, -1, "", 0, -1, NO_UUID)


# ---- in memory -------------------------------------------------------------------------------------------------------


def offset_of(offsets: CommittedOffsets, group_id: str = "g", partition: int = 0) -> int | None:
    committed = offsets.get(group_id, "t", partition)
    return None if committed is None else committed.offset


@pytest.fixture
def offsets() -> CommittedOffsets:
    return CommittedOffsets()


def test_a_pending_offset_is_no_offset_yet(offsets):
    offsets.put_pending(7, KEYS[0], value(5))
    assert (offset_of(offsets), offsets.count, list(offsets.groups())) == (None, 0, [])
    assert offsets.has_pending("g", "t", 0)
    assert not offsets.has_pending("g", "t", 1)
    assert offsets.has_pending_in("g")
    assert not offsets.has_pending_in("h")
    assert offsets.pending_of("g") == [TopicPartition("t", 0)]


def test_a_commit_lets_all_offsets_of_the_transaction_count_at_once(offsets):
    for number, key in enumerate(KEYS):
        offsets.put_pending(7, key, value(number))
    assert offsets.end_transaction(7, committed=True) == 3
    assert [offset_of(offsets, "g"), offset_of(offsets, "g", 1), offset_of(offsets, "h")] == [0, 1, 2]
    assert offsets.count == 3
    assert not offsets.has_pending_in("g")
    assert offsets.pending_of("g") == []


def test_an_abort_leaves_what_was_committed_before(offsets):
    offsets.put(KEYS[0], value(1))
    offsets.put_pending(7, KEYS[0], value(5))
    assert offsets.end_transaction(7, committed=False) == 0
    assert offset_of(offsets) == 1
    assert not offsets.has_pending("g", "t", 0)


def test_the_end_of_a_transaction_without_offsets_changes_nothing(offsets):
    offsets.put_pending(7, KEYS[0], value(5))
    assert offsets.end_transaction(99, committed=True) == 0
    assert offsets.has_pending("g", "t", 0)


def test_an_end_that_comes_twice_counts_once(offsets):
    offsets.put_pending(7, KEYS[0], value(5))
    offsets.end_transaction(7, committed=True)
    offsets.put(KEYS[0], value(6))
    assert offsets.end_transaction(7, committed=True) == 0
    assert offset_of(offsets) == 6


def test_the_first_commit_of_a_group_is_announced_while_it_is_pending():
    announced: list[str] = []
    offsets = CommittedOffsets(announced.append)
    offsets.put_pending(7, KEYS[0], value(5))
    assert announced == ["g"]


def test_a_tombstone_deletes_what_is_pending_beside_other_commits(offsets):
    offsets.put(KEYS[0], value(1))
    offsets.put(KEYS[1], value(2))
    offsets.put_pending(7, KEYS[0], value(5))
    offsets.put(KEYS[0], None)
    assert not offsets.has_pending("g", "t", 0)
    offsets.end_transaction(7, committed=True)
    assert offset_of(offsets) is None


def test_a_transaction_has_no_tombstones(offsets):
    with pytest.raises(WireError):
        offsets.put_pending(7, KEYS[0], None)
    with pytest.raises(WireError):
        offsets.put_pending(7, KEYS[0], b"\0\3garbage")
    with pytest.raises(WireError):
        offsets.put_pending(7, b"\0\2group metadata", value(1))
    assert not offsets.has_pending_in("g")


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 2), st.integers(0, 99)),
        st.tuples(st.just("tombstone"), st.integers(0, 2), st.none()),
        st.tuples(st.just("pending"), st.integers(0, 2), st.integers(7, 9)),
        st.tuples(st.just("end"), st.integers(7, 9), st.booleans()),
    ),
    max_size=30,
)


@attrs.define
class LogModel:
    """What a reader of the whole log says: of all that counts, the last in the log."""

    decided: dict[bytes, dict[int, bytes]] = attrs.Factory(dict)
    pending: dict[int, dict[bytes, tuple[int, bytes]]] = attrs.Factory(dict)

    def offset(self, key: bytes) -> bytes | None:
        places = self.decided.get(key, {})
        return places[max(places)] if places else None

    def delete(self, key: bytes) -> None:
        self.decided.pop(key, None)
        for commits in self.pending.values():
            commits.pop(key, None)

    def end(self, producer_id: int, *, committed: bool) -> None:
        for key, (place, encoded) in self.pending.pop(producer_id, {}).items():
            if committed:
                self.decided.setdefault(key, {})[place] = encoded


@given(OPERATIONS)
def test_the_last_in_the_log_counts_in_whatever_order_transactions_end(operations):
    offsets, model = CommittedOffsets(), LogModel()
    for place, (name, first, second) in enumerate(operations):
        match name:
            case "commit":
                offsets.put(KEYS[first], value(second))
                model.decided.setdefault(KEYS[first], {})[place] = value(second)
            case "tombstone":
                offsets.put(KEYS[first], None)
                model.delete(KEYS[first])
            case "pending":
                offsets.put_pending(second, KEYS[first], value(place))
                model.pending.setdefault(second, {})[KEYS[first]] = (place, value(place))
            case "end":
                offsets.end_transaction(first, committed=second)
                model.end(first, committed=second)
        assert_same(offsets, model)


def assert_same(offsets: CommittedOffsets, model: LogModel) -> None:
    counted = 0
    for key, (group_id, partition) in zip(KEYS, (("g", 0), ("g", 1), ("h", 0)), strict=True):
        encoded = model.offset(key)
        counted += encoded is not None
        expected = None if encoded is None else int.from_bytes(encoded[2:10], "big")
        assert offset_of(offsets, group_id, partition) == expected
        is_pending = any(key in commits for commits in model.pending.values())
        assert offsets.has_pending(group_id, "t", partition) == is_pending
    assert offsets.count == counted
    for group_id, keys in (("g", KEYS[:2]), ("h", KEYS[2:])):
        pending = {key for commits in model.pending.values() for key in commits if key in keys}
        assert offsets.has_pending_in(group_id) == bool(pending)
        assert len(set(offsets.pending_of(group_id))) == len(pending)


# ---- over a log ------------------------------------------------------------------------------------------------------


class Offsets:
    """A group coordinator over a log, and producers that commit in transactions."""

    def __init__(self, broker: CoordinatorHarness) -> None:
        self.broker = broker

    async def commit(self, producer: ProducerIdAndEpoch, offset: int, *, group_id: str = "g", **fields: Any) -> int:
        partition = OffsetCommitRequestPartition(
            partition_index=fields.pop("partition", 0), committed_offset=offset, committed_metadata=None
        )
        topic = OffsetCommitRequestTopic(name=fields.pop("topic", "t"), partitions=[partition])
        member: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
        request = OffsetCommitRequest(group_id=group_id, topics=[topic], **member | fields)
        commit = TransactionalCommit(request, producer)
        response = await self.broker.groups.call(group_id, commit, CLIENT, no_park)
        code: int = response.topics[0].partitions[0].error_code
        return code

    def end(self, producer: ProducerIdAndEpoch, *, committed: bool, group_id: str = "g") -> None:
        end = TransactionEnd(producer.producer_id, producer.epoch, committed, coordinator_epoch=0)
        self.broker.groups.end_transaction(self.broker.groups.own_partition_of(group_id).topic_partition.partition, end)

    async def fetch(self, group_id: str = "g", *, require_stable: bool = False) -> list[tuple[int, int]]:
        """Offset and error code of partition 0 of ``t``."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        response = await self.broker.groups.fetch_offsets(
            OffsetFetchRequestGroup(group_id=group_id, topics=topics), no_park, require_stable=require_stable
        )
        return [(each.committed_offset, each.error_code) for topic in response.topics for each in topic.partitions]

    async def delete(self, group_id: str = "g") -> int:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])],
        )
        response = await self.broker.groups.call(group_id, request, CLIENT, no_park)
        code: int = response.error_code or response.topics[0].partitions[0].error_code
        return code

    async def require_same_after_reload(self) -> None:
        """Every shard that is loaded anew has the same offsets, counted and pending."""
        runtime = self.broker.groups.runtime
        for shard in runtime.active_shards():
            again = runtime.new_machine()
            async for part in shard.log.slices():
                for batch in part.batches:
                    shard._replay_end(batch, again)
                    for record in batch.records:
                        shard._replay(record, batch.producer_id, again)
            assert contents(again.offsets) == contents(shard.machine.offsets)


def contents(offsets: CommittedOffsets) -> Any:
    groups = ("g", "h", "other")
    counted = {
        group: {topic: offsets.of_topic(group, topic) for topic in offsets.topics_of(group)}
        for group in offsets.groups()
    }
    return counted, offsets.count, {group_id: set(offsets.pending_of(group_id)) for group_id in groups}


@asynccontextmanager
async def open_offsets(directory, **settings):
    async with running_coordinator(
        directory, log_durability="page-cache", offsets_topic_num_partitions="1", **settings
    ) as broker:
        for topic in ("t", "u"):
            if topic not in broker.services.metadata_cache.image.topics:
                await broker.create_topic(topic)
        await broker.groups.find("g")
        with fail_after(10):
            while broker.groups.statistics().loading:
                await trio.lowlevel.checkpoint()
        yield Offsets(broker)


@pytest.fixture
async def running(memory_path, monkeypatch):
    """Each batch is a slice of its own when it is read."""
    monkeypatch.setattr(log_module, "LOAD_SLICE_BYTES", 1)
    async with open_offsets(memory_path) as offsets:
        yield offsets


async def test_a_consumer_that_wants_stable_offsets_has_to_wait_for_the_end(running):
    await running.broker.commit("g", 1)
    assert await running.commit(MOVER, 5) == 0
    assert await running.fetch() == [(1, 0)]
    assert await running.fetch(require_stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    running.end(MOVER, committed=True)
    assert await running.fetch(require_stable=True) == [(5, 0)]


async def test_after_an_abort_the_offset_before_is_stable_again(running):
    await running.broker.commit("g", 1)
    await running.commit(MOVER, 5)
    running.end(MOVER, committed=False)
    assert await running.fetch(require_stable=True) == [(1, 0)]
    await running.require_same_after_reload()


async def test_what_is_pending_in_one_partition_does_not_hold_up_another(running):
    await running.broker.commit("g", 1)
    await running.commit(MOVER, 5, partition=1)
    await running.commit(MOVER, 5, group_id="other")
    assert await running.fetch(require_stable=True) == [(1, 0)]


@pytest.mark.parametrize("first", [MOVER, OTHER])
@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("second_commits", [True, False])
async def test_two_transactions_on_one_partition_count_in_the_order_of_their_commits(
    running, first, first_commits, second_commits
):
    await running.commit(MOVER, 10)
    await running.commit(OTHER, 20)
    second = OTHER if first is MOVER else MOVER
    await running.require_same_after_reload()
    running.end(first, committed=first_commits)
    assert await running.fetch(require_stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    await running.require_same_after_reload()
    running.end(second, committed=second_commits)
    counts = {first} if first_commits else set()
    counts |= {second} if second_commits else set()
    expected = 20 if OTHER in counts else 10 if MOVER in counts else -1
    assert await running.fetch(require_stable=True) == [(expected, 0)]
    await running.require_same_after_reload()


async def test_a_later_commit_outside_of_the_transaction_counts_when_both_are_decided(running):
    await running.commit(MOVER, 5)
    await running.broker.commit("g", 9)
    running.end(MOVER, committed=True)
    assert await running.fetch(require_stable=True) == [(9, 0)]
    await running.require_same_after_reload()


async def test_an_offset_that_is_deleted_while_another_is_pending_does_not_come_back(running):
    await running.broker.commit("g", 1)
    await running.commit(MOVER, 5)
    assert await running.delete() == 0
    running.end(MOVER, committed=True)
    assert await running.fetch() == [(-1, 0)]
    await running.require_same_after_reload()


async def test_an_offset_that_is_only_pending_is_deleted_too(running):
    await running.broker.commit("g", 1, topic="u")
    await running.commit(MOVER, 5)
    assert await running.delete() == 0
    running.end(MOVER, committed=True)
    assert await running.fetch() == [(-1, 0)]
    await running.require_same_after_reload()


async def test_a_deleted_group_does_not_come_back_by_the_end_of_a_transaction(running):
    await running.broker.commit("g", 1, topic="u")
    await running.commit(MOVER, 5)
    await running.commit(OTHER, 6, partition=1)
    [result] = await running.broker.groups.delete_groups(["g"], no_park)
    assert result.error_code == 0
    running.end(MOVER, committed=True)
    running.end(OTHER, committed=True)
    assert await running.broker.committed("g") == {}
    assert [*running.broker.groups.list_groups(set(), set())] == []
    await running.require_same_after_reload()


async def test_a_deleted_topic_takes_the_pending_offsets_in_it_along(running):
    await running.broker.commit("g", 1)
    await running.commit(MOVER, 5)
    await running.commit(MOVER, 7, group_id="other")
    await running.broker.services.controller.delete_topics([TopicTarget(name="t")])
    running.end(MOVER, committed=True)
    assert (await running.broker.committed("g"), await running.broker.committed("other")) == ({}, {})
    await running.require_same_after_reload()


async def test_an_offset_does_not_expire_while_a_transaction_has_another_for_its_partition(running):
    await running.broker.commit("g", 1)
    await running.broker.commit("g", 2, topic="u")
    running.broker.advance(RETENTION_SECONDS + 1)
    await running.commit(MOVER, 5)
    await running.broker.groups.expire_offsets()
    assert await running.broker.committed("g") == {"t": {0: 1}}
    running.end(MOVER, committed=False)
    await running.broker.groups.expire_offsets()
    assert await running.broker.committed("g") == {}
    await running.require_same_after_reload()


async def test_a_group_does_not_expire_while_a_transaction_has_an_offset_for_it(running):
    await running.broker.commit("g", 2, topic="u")
    running.broker.advance(RETENTION_SECONDS + 1)
    await running.commit(MOVER, 5)
    await running.broker.groups.expire_offsets()
    running.end(MOVER, committed=True)
    assert await running.broker.committed("g") == {"t": {0: 5}}
    assert [group.group_id for group in running.broker.groups.list_groups(set(), set())] == ["g"]
    await running.require_same_after_reload()


async def test_offsets_are_still_pending_after_a_restart(memory_path, monkeypatch):
    monkeypatch.setattr(log_module, "LOAD_SLICE_BYTES", 1)
    async with open_offsets(memory_path) as running:
        await running.broker.commit("g", 1)
        await running.commit(MOVER, 5)
        await running.commit(OTHER, 6, group_id="other")
    async with open_offsets(memory_path) as running:
        assert await running.fetch() == [(1, 0)]
        assert await running.fetch(require_stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
        running.end(MOVER, committed=True)
        running.end(OTHER, committed=False)
        await running.require_same_after_reload()
    async with open_offsets(memory_path) as running:
        assert await running.fetch(require_stable=True) == [(5, 0)]
        assert await running.fetch("other", require_stable=True) == [(-1, 0)]


# ---- who may commit --------------------------------------------------------------------------------------------------


async def test_a_producer_that_names_no_member_may_commit_for_any_group(running):
    await running.broker.settle("g")
    assert await running.commit(MOVER, 5) == 0


async def test_a_member_commits_in_its_generation_and_no_other(running):
    member = await running.broker.settle("g")
    names = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
    assert await running.commit(MOVER, 5, **names) == 0
    for wrong, code in (
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": member.generation_id - 1}, ErrorCode.ILLEGAL_GENERATION),
    ):
        with pytest.raises(KafkaError) as raised:
            await running.commit(MOVER, 5, **names | wrong)
        assert raised.value.code == code


async def test_a_member_may_commit_what_it_has_done_while_its_group_rebalances(running):
    member = await running.broker.settle("g")
    names = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation_id}
    newcomer = await running.broker.join("g")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.broker.join, "g", newcomer.member_id)
        await trio.testing.wait_all_tasks_blocked()
        assert await running.commit(MOVER, 5, **names) == 0
        nursery.cancel_scope.cancel()


async def test_a_generation_of_a_group_that_does_not_exist_is_refused(running):
    with pytest.raises(KafkaError) as raised:
        await running.commit(MOVER, 5, generation_id_or_member_epoch=3, member_id="m")
    assert raised.value.code == ErrorCode.ILLEGAL_GENERATION
