"""A shard runs any machine: here one of leases, over real logs."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.record import NewRecord
from tests.coordinator.coordinator_harness import no_park, running_coordinator
from tests.coordinator.runtime.lease_machine import Acquire, Lease, LeaseMachine, ReleaseAll
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.concurrency.steps import run_steps
from trio_broker.coordinator.runtime import coordinator_runtime
from trio_broker.coordinator.runtime import shard as shard_module
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.runtime.log import CoordinatorLog
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.coordinator.runtime.shard import Shard
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.runtime.clock import ManualClock

TOPIC = "__leases"


@attrs.define
class Leases:
    """What handlers would call."""

    runtime: CoordinatorRuntime[LeaseMachine]
    services: BrokerServices

    @property
    def shard(self) -> Shard[LeaseMachine]:
        return self.runtime.shard_for("n")

    @property
    def holders(self) -> dict[str, str | None]:
        return {lease.name: lease.holder for lease in self.shard.machine.leases.values()}

    async def call(self, key: str, request: Any) -> Any:
        steps = self.runtime.call(self.shard, key, request, RequestContext("client", "/127.0.0.1", 0), no_park)
        return await run_steps(steps)

    async def acquire(self, name: str, holder: str, seconds: int = 10, *, waits: bool = False) -> Any:
        return await self.call(name, Acquire(name, holder, seconds, waits))


@asynccontextmanager
async def running_leases(directory: Path, clock: ManualClock, partitions: int = 1) -> AsyncIterator[Leases]:
    async with running_coordinator(directory, clock=clock, log_durability="page-cache") as broker:
        services = broker.services
        runtime = CoordinatorRuntime(
            topic=TOPIC,
            new_topic=lambda: NewTopic(name=TOPIC, num_partitions=partitions, configs={"cleanup.policy": "compact"}),
            new_machine=LeaseMachine,
            commit_timeout_seconds=5,
            replicas=services.replicas,
            controller=services.controller,
            metadata_cache=services.metadata_cache,
            clock=clock,
            expiry_clock=services.runtime.expiry_clock,
        )
        if TOPIC not in services.metadata_cache.image.topics:
            await services.controller.create_topics([runtime.new_topic()])
        async with trio.open_nursery() as nursery:
            await nursery.start(runtime.run)
            await runtime.wait_until_loaded()
            yield Leases(runtime, services)
            nursery.cancel_scope.cancel()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def leases(tmp_path, clock):
    async with running_leases(tmp_path, clock) as leases:
        yield leases


def refuse_appends(leases, monkeypatch, *, after=0):
    """Let the disk be full after some more batches."""
    log = leases.shard.log.partition.log
    append, batches = log.append, iter(range(after))

    def until_full(*arguments, **keywords):
        if next(batches, None) is None:
            raise OSError(errno.ENOSPC, "no space left on device")
        return append(*arguments, **keywords)

    monkeypatch.setattr(log, "append", until_full)


async def test_a_record_is_applied_before_its_response_is_sent(leases):
    assert await leases.acquire("n", "a") == "a"
    assert (leases.holders, leases.shard.log.partition.log_end_offset) == ({"n": "a"}, 1)
    assert [lease.holder for lease in leases.shard.machine.observed] == ["a"]


async def test_an_event_without_a_result_is_answered_without_a_record(leases):
    await leases.acquire("n", "a")
    assert await leases.acquire("n", "b") == "a"
    assert leases.shard.log.partition.log_end_offset == 1


async def test_only_keys_that_have_a_state_stay_in_memory(leases):
    await leases.acquire("n", "a")
    for number in range(100):
        leases.runtime.shard_for(f"unknown-{number}")
        assert await leases.call(f"nobody-{number}", ReleaseAll("nobody")) == 0
    assert leases.runtime._known_partitions == {"n": 0}


async def test_no_more_than_the_latest_keys_stay_in_memory(leases, monkeypatch):
    monkeypatch.setattr(coordinator_runtime, "MAX_KNOWN_KEYS", 2)
    for name in ("a", "b", "n" * 300, "c"):
        await leases.acquire(name, "holder")
    assert list(leases.runtime._known_partitions) == ["b", "c"]


async def test_after_a_restart_the_state_is_what_it_was(tmp_path, clock):
    async with running_leases(tmp_path, clock) as leases:
        for number in range(5):
            await leases.acquire(f"n{number}", "ab"[number % 2])
        assert await leases.call("a", ReleaseAll("a")) == 3
        before = dict(leases.shard.machine.leases)
    async with running_leases(tmp_path, clock) as leases:
        assert leases.shard.machine.leases == before
        assert leases.holders == {"n1": "b", "n3": "b"}


async def test_a_damaged_record_costs_only_itself(tmp_path, clock):
    async with running_leases(tmp_path, clock) as leases:
        await leases.acquire("n", "a")
        leases.shard.log.append([NewRecord(0, b"n", b"garbage")])
        await leases.acquire("m", "b")
    async with running_leases(tmp_path, clock) as leases:
        assert leases.holders == {"n": "a", "m": "b"}


async def test_nothing_of_a_refused_result_holds_but_what_it_has_for_that(leases, monkeypatch):
    refuse_appends(leases, monkeypatch)
    assert await leases.acquire("n", "a") == ErrorCode.NOT_COORDINATOR
    assert leases.holders == {}
    monkeypatch.undo()
    assert await leases.acquire("n", "b") == "b"


async def test_of_a_result_in_several_batches_those_before_a_refusal_hold(leases, monkeypatch):
    for number in range(5):
        await leases.acquire(f"n{number}", "a")
    monkeypatch.setattr(shard_module, "RECORDS_PER_BATCH", 2)
    refuse_appends(leases, monkeypatch, after=1)
    with pytest.raises(KafkaError) as raised:
        await leases.call("a", ReleaseAll("a"))
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    assert set(leases.holders) == {"n2", "n3", "n4"}


async def test_a_request_that_is_refused_changes_nothing(leases):
    with pytest.raises(KafkaError):
        await leases.acquire("n", "a", seconds=0)
    assert (leases.holders, leases.shard.log.partition.log_end_offset) == ({}, 0)


async def test_a_deadline_is_kept_before_and_after_a_restart(tmp_path, clock, autojump_clock):
    async with running_leases(tmp_path, clock) as leases:
        await leases.acquire("short", "a", seconds=10)
        await leases.acquire("long", "a", seconds=100)
        await trio.sleep(11)
        assert leases.holders == {"long": "a"}
        clock.advance(11)
    async with running_leases(tmp_path, clock) as leases:
        await trio.sleep(80)
        assert leases.holders == {"long": "a"}
        await trio.sleep(10)
        assert leases.holders == {}


async def test_a_deadline_that_was_moved_on_is_kept_all_the_same(leases, autojump_clock):
    await leases.acquire("n", "a", seconds=10)
    await trio.sleep(5)
    await leases.call("a", ReleaseAll("a"))
    await leases.acquire("n", "b", seconds=10)
    await trio.sleep(9)
    assert leases.holders == {"n": "b"}
    await trio.sleep(2)
    assert leases.holders == {}


async def test_what_is_due_is_tried_again_when_the_log_refuses_it(leases, monkeypatch, autojump_clock):
    await leases.acquire("n", "a", seconds=10)
    refuse_appends(leases, monkeypatch)
    await trio.sleep(11)
    assert leases.holders == {"n": "a"}
    monkeypatch.undo()
    await trio.sleep(1)
    assert leases.holders == {}


async def test_a_deadline_that_the_log_refuses_comes_again(leases, monkeypatch, autojump_clock):
    await leases.acquire("n", "a")
    waiter: list[Any] = []

    async def wait() -> None:
        waiter.append(await leases.acquire("n", "b", waits=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(9)
        refuse_appends(leases, monkeypatch)
        await trio.sleep(2)
    assert (waiter, leases.holders) == ([ErrorCode.NOT_COORDINATOR], {"n": "a"})
    monkeypatch.undo()
    await trio.sleep(10)
    assert leases.holders == {}


async def test_a_request_waits_until_another_event_answers_it(leases, autojump_clock):
    await leases.acquire("n", "a")
    assert await leases.acquire("n", "b", waits=True) == "b"
    assert (trio.current_time() >= 10, leases.holders) == (True, {"n": "b"})


async def test_a_closed_shard_answers_those_who_wait_and_nobody_else(leases):
    await leases.acquire("n", "a")
    shard, waiter = leases.shard, []

    async def wait() -> None:
        waiter.append(await leases.acquire("n", "b", waits=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        leases.runtime.close()
    assert waiter == [ErrorCode.NOT_COORDINATOR]
    with pytest.raises(KafkaError) as raised:
        shard.require_active()
    assert raised.value.code == ErrorCode.NOT_COORDINATOR


async def test_a_machine_without_successors_has_none():
    with pytest.raises(AssertionError, match="nothing to replace"):
        LeaseMachine().replace("n", Lease("n", "a"))


# ---- bugs ------------------------------------------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, method: str, failures: int) -> None:
    """Let a method of the machine fail so many times."""
    real, left = getattr(LeaseMachine, method), iter(range(failures))

    def fail_first(machine: LeaseMachine, *arguments: Any) -> Any:
        if next(left, None) is not None:
            raise RuntimeError("a bug")
        return real(machine, *arguments)

    monkeypatch.setattr(LeaseMachine, method, fail_first)


async def test_a_bug_in_what_is_due_is_tried_again_and_concerns_no_other_key(
    leases, monkeypatch, autojump_clock, caplog
):
    await leases.acquire("n", "a", seconds=10)
    await leases.acquire("m", "b", seconds=20)
    failing(monkeypatch, "on_timeout", 4)
    await trio.sleep(11)
    assert leases.holders == {"n": "a", "m": "b"}
    await trio.sleep(2)
    assert leases.holders == {"m": "b"}
    assert caplog.text.count("RuntimeError: a bug") == 1, "not at each try"


async def test_a_shard_whose_state_may_differ_from_its_log_is_loaded_anew(leases, monkeypatch, autojump_clock, caplog):
    await leases.acquire("n", "a", seconds=100)
    before = leases.shard
    failing(monkeypatch, "apply", 1)
    with pytest.raises(KafkaError) as raised:
        await leases.acquire("m", "b", seconds=100)
    assert raised.value.code == ErrorCode.NOT_COORDINATOR
    assert before.is_closed
    assert "its state may differ from its log, which is loaded anew" in caplog.text
    await leases.runtime.wait_until_loaded()
    assert leases.shard is not before
    assert leases.holders == {"n": "a", "m": "b"}, "what is in the log counts"
    await trio.sleep(101)
    assert leases.holders == {}


async def test_a_bug_in_an_observer_loads_anew_what_was_appended_before_it(leases, monkeypatch, autojump_clock):
    failing(monkeypatch, "observe", 1)
    with pytest.raises(KafkaError):
        await leases.acquire("n", "a")
    await leases.runtime.wait_until_loaded()
    assert leases.holders == {"n": "a"}


async def test_a_shard_is_loaded_however_often_that_fails_first(tmp_path, clock, monkeypatch, autojump_clock):
    async with running_leases(tmp_path, clock) as leases:
        await leases.acquire("n", "a", seconds=10_000)
    slices, failures = CoordinatorLog.slices, iter(range(20))

    async def fail_first(log: CoordinatorLog) -> Any:
        if log.partition.topic_partition.topic == TOPIC and next(failures, None) is not None:
            raise OSError(errno.EMFILE, "too many open files")
        async for each in slices(log):
            yield each

    monkeypatch.setattr(CoordinatorLog, "slices", fail_first)
    async with running_leases(tmp_path, clock) as leases:
        assert leases.holders == {"n": "a"}
    assert next(failures, None) is None


async def test_a_load_that_fails_midway_reads_no_further_and_is_begun_anew(
    tmp_path, clock, monkeypatch, autojump_clock, caplog
):
    """What it reads from is closed there and then: a warning of a generator that is garbage fails this."""
    async with running_leases(tmp_path, clock) as leases:
        await leases.acquire("n", "a", seconds=10_000)
    replay, failures = LeaseMachine.replay, iter(range(2))

    def fail_first(machine: LeaseMachine, record: Any) -> None:
        if next(failures, None) is not None:
            raise RuntimeError("a bug in replaying")
        replay(machine, record)

    monkeypatch.setattr(LeaseMachine, "replay", fail_first)
    async with running_leases(tmp_path, clock) as leases:
        assert leases.holders == {"n": "a"}
    assert next(failures, None) is None


async def test_metadata_go_on_while_a_shard_is_loaded(leases, monkeypatch, autojump_clock):
    """The publisher, which has the controller's lock, does not wait for it."""
    hold = trio.Event()

    async def hang(log: CoordinatorLog) -> Any:
        await hold.wait()
        yield None

    monkeypatch.setattr(CoordinatorLog, "slices", hang)
    leases.runtime.shards.clear()
    leases.runtime.load_led_partitions()
    await trio.testing.wait_all_tasks_blocked()
    [outcome] = await leases.runtime.controller.create_topics([NewTopic(name="t", num_partitions=1)])
    assert not isinstance(outcome, KafkaError)
    with pytest.raises(KafkaError) as raised:
        leases.runtime.shard_for("n")
    assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_topic_that_another_broker_has_just_created_is_asked_for_again_without_an_error(leases, caplog):
    leases.runtime.metadata_cache, present = MetadataCache(MetadataImage()), leases.runtime.metadata_cache
    with pytest.raises(KafkaError) as raised:
        await leases.runtime._create_topic()
    leases.runtime.metadata_cache = present
    assert raised.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
