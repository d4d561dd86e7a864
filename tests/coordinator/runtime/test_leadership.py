"""Shards come and go with the leadership of their partitions; another broker leads meanwhile."""

from __future__ import annotations

import errno
from contextlib import aclosing
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.record import NewRecord
from tests.coordinator.runtime.test_shard import TOPIC, Leases, clock, failing, running_leases
from tests.fakes.followed_metadata import elected, follow
from tests.partition.real_logs import followed, led
from trio_broker.concurrency.steps import run_steps
from trio_broker.coordinator.runtime.log import CoordinatorLog
from trio_broker.coordinator.runtime.shard import Shard
from trio_broker.partition.partition import Partition

__all__ = ["clock"]

HERE, ELSEWHERE = 1, 2


@pytest.fixture
async def leases(tmp_path, clock):
    async with running_leases(tmp_path, clock) as leases:
        yield leases


async def lead(leases: Leases, leader: int) -> None:
    """Let ``leader`` lead the partition of the leases from the next epoch on."""
    services = leases.services
    await follow(services, elected(services, TOPIC, leader), further=[Follower(leases)])


@attrs.frozen
class Follower:
    """The leases as a subscriber of the metadata."""

    leases: Leases

    async def apply_metadata(self, delta: Any, image: Any) -> None:
        self.leases.runtime.apply_metadata(delta)


async def jump(clock: trio.testing.MockClock, seconds: float) -> None:
    """Let time pass in which no thread is waited for, which a clock that jumps by itself would not know."""
    clock.jump(seconds)
    await trio.testing.wait_all_tasks_blocked()


def refusal(leases: Leases) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        leases.runtime.shard_for("n")
    return raised.value.code


@attrs.define
class HeldLoading:
    """Readings of coordinators' logs, which wait at their end."""

    gates: list[trio.Event] = attrs.Factory(list)

    @classmethod
    def begin(cls, monkeypatch: pytest.MonkeyPatch) -> HeldLoading:
        held, slices = cls(), CoordinatorLog.slices

        async def hold(log: CoordinatorLog) -> Any:
            gate = trio.Event()
            held.gates.append(gate)
            async with aclosing(slices(log)) as parts:
                async for part in parts:
                    yield part
            await gate.wait()

        monkeypatch.setattr(CoordinatorLog, "slices", hold)
        return held


async def test_a_shard_goes_with_the_leadership_and_comes_back_with_its_state(leases, monkeypatch):
    await leases.acquire("n", "a", seconds=1000)
    held = HeldLoading.begin(monkeypatch)
    before = leases.shard
    await lead(leases, ELSEWHERE)
    assert refusal(leases) == ErrorCode.NOT_COORDINATOR
    assert (before.is_closed, await run_steps(leases.runtime.find("n"))) == (True, ELSEWHERE)
    await lead(leases, HERE)
    await trio.testing.wait_all_tasks_blocked()
    assert refusal(leases) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await run_steps(leases.runtime.find("n")) == HERE
    held.gates[0].set()
    await leases.runtime.wait_until_loaded()
    assert leases.holders == {"n": "a"}
    assert await leases.acquire("m", "b") == "b"
    assert leases.shard.leader_epoch == before.leader_epoch + 2


async def test_a_request_that_waits_ends_with_the_leadership(leases):
    await leases.acquire("n", "a")
    answers = []

    async def wait() -> None:
        answers.append(await leases.acquire("n", "b", waits=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        await lead(leases, ELSEWHERE)
    assert answers == [ErrorCode.NOT_COORDINATOR]


async def test_timers_go_with_the_leadership_and_come_back(leases, mock_clock):
    await leases.acquire("n", "a", seconds=10)
    shard = leases.shard
    await lead(leases, ELSEWHERE)
    await jump(mock_clock, 20)
    assert shard.log.partition.log_end_offset == 1, "nothing was released by the broker that does not lead"
    await lead(leases, HERE)
    await leases.runtime.wait_until_loaded()
    assert leases.holders == {"n": "a"}
    await jump(mock_clock, 20)
    assert leases.holders == {}


async def test_what_is_loaded_in_a_past_epoch_is_dropped(leases, monkeypatch):
    await leases.acquire("n", "a", seconds=1000)
    held = HeldLoading.begin(monkeypatch)
    await lead(leases, HERE)
    await trio.testing.wait_all_tasks_blocked()
    stale = leases.runtime.shards[0]
    await lead(leases, ELSEWHERE)
    await lead(leases, HERE)
    await trio.testing.wait_all_tasks_blocked()
    held.gates[0].set()
    await trio.testing.wait_all_tasks_blocked()
    assert (stale.is_closed, refusal(leases)) == (True, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    held.gates[1].set()
    await leases.runtime.wait_until_loaded()
    assert leases.shard.leader_epoch == stale.leader_epoch + 2


async def test_a_load_or_an_unload_that_comes_late_changes_nothing(leases):
    await leases.acquire("n", "a")
    shard = leases.shard
    epoch = shard.leader_epoch
    leases.runtime.schedule_load(0, epoch - 1)
    leases.runtime.schedule_load(0, epoch)
    leases.runtime.schedule_unload(0, epoch)
    assert leases.shard is shard
    await lead(leases, ELSEWHERE)
    leases.runtime.schedule_load(0, epoch)
    assert refusal(leases) == ErrorCode.NOT_COORDINATOR


async def test_a_load_that_fails_is_tried_again_until_the_leadership_is_lost(leases, monkeypatch, mock_clock, caplog):
    await leases.acquire("n", "a", seconds=1000)
    failing(monkeypatch, "replay", 1)
    await lead(leases, HERE)
    await leases.runtime.shards[0].was_tried.wait()
    assert refusal(leases) == ErrorCode.NOT_COORDINATOR
    await jump(mock_clock, 2)
    await leases.runtime.wait_until_loaded()
    assert leases.holders == {"n": "a"}
    monkeypatch.setattr(CoordinatorLog, "slices", unreadable)
    await lead(leases, HERE)
    shard: Shard[Any] = leases.runtime.shards[0]
    await shard.was_tried.wait()
    await jump(mock_clock, 100)
    await lead(leases, ELSEWHERE)
    assert (shard.is_closed, leases.runtime.shards) == (True, {})
    caplog.clear()
    await jump(mock_clock, 1000)
    assert "loading of" not in caplog.text


async def unreadable(log: CoordinatorLog) -> Any:
    raise OSError(errno.EMFILE, "too many open files")
    yield


def begin_epoch(partition: Partition) -> None:
    """Begin the next leader epoch of the partition, of which the coordinator has not heard yet."""
    partition.writer.state.lead(led(partition.leader_epoch + 1), 0.0)


async def test_nothing_is_appended_in_another_epoch_than_the_shards(leases, monkeypatch):
    await leases.acquire("n", "a")
    shard = leases.shard
    begin_epoch(shard.log.partition)
    assert refusal(leases) == ErrorCode.NOT_COORDINATOR
    # A deadline or a marker comes without a request.
    with pytest.raises(KafkaError) as raised:
        shard.log.append([NewRecord(0, b"n", None)])
    assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert shard.log.partition.log_end_offset == 1


async def test_what_a_timer_does_in_another_epoch_closes_the_shard_and_leaves_the_log(leases, mock_clock):
    await leases.acquire("n", "a", seconds=10)
    shard = leases.shard
    begin_epoch(shard.log.partition)
    await jump(mock_clock, 20)
    assert (shard.is_closed, shard.log.partition.log_end_offset) == (True, 1)


async def test_an_answer_is_not_given_for_an_offset_that_another_leader_may_have_filled(leases):
    await leases.acquire("n", "a")
    shard = leases.shard
    shard.log.partition.writer.state.follow(followed(shard.leader_epoch + 1))
    with pytest.raises(KafkaError) as raised:
        await leases.runtime.until_durable(shard, 1, lambda phase: None)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


async def test_of_many_partitions_only_those_that_changed_are_loaded_anew(tmp_path, clock):
    async with running_leases(tmp_path, clock, partitions=50) as leases:
        before = dict(leases.runtime.shards)
        services = leases.services
        await follow(services, elected(services, TOPIC, ELSEWHERE, 7), further=[Follower(leases)])
        assert leases.runtime.shards == {index: shard for index, shard in before.items() if index != 7}
