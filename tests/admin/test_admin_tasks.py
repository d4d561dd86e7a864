"""The tree of tasks of a real broker, and the timing of steps."""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing

from kafka_wire.messages.metadata import MetadataRequest
from tests.running_broker import connected, fetch_request, until
from trio_broker.broker_view.node import step_monitor
from trio_broker.broker_view.node import tasks as broker_tasks
from trio_broker.broker_view.node.step_monitor import StepMonitor
from trio_broker.broker_view.node.task_frames import place_of
from trio_broker.network.loop_monitor import LoopMonitor
from trio_broker.network.request_metrics import RECENT_INTERVALS


async def tasks_named(live, name):
    return [row for row in (await live.get("/api/v1/brokers/1/tasks"))["rows"] if row["name"] == name]


async def test_the_tree_begins_at_the_root_and_every_row_has_its_parent_above_it(live):
    report = await live.get("/api/v1/brokers/1/tasks")
    rows = report["rows"]
    assert (rows[0]["parent_id"], rows[0]["depth"]) == (None, 0)
    by_id = {row["task_id"]: row for row in rows}
    assert list(by_id) == sorted(by_id)
    for row in rows[1:]:
        assert row["parent_id"] < row["task_id"]
        assert row["depth"] == by_id[row["parent_id"]]["depth"] + 1
    assert report["tasks"] == sum(row["count"] for row in rows)
    assert report["further_tasks"] == 0


async def test_a_processor_waits_for_its_selector(live):
    await live.kafka.ask(MetadataRequest(topics=[]), 9)
    [row] = await tasks_named(live, "processor 0")
    assert row["waits_for"] == "wait_readable"
    assert row["waits_in"].startswith("trio_broker.network.processor:")
    assert row["waits_in"].endswith("Processor._wait")
    assert row["age_seconds"] >= 0


async def test_requests_that_wait_for_the_same_are_one_row(live):
    await live.kafka.create_topic("waiting")
    async with connected(live.broker) as one, connected(live.broker) as another:
        for kafka in (one, another):
            await kafka.send(fetch_request("waiting", max_wait_ms=600_000, min_bytes=1), 12)
        await until(lambda: live.broker.server.statistics().handlers.delayed == 2)
        rows = await tasks_named(live, "request handler")
        assert [row["count"] for row in rows if "DelayedFetch.wait" in row["waits_in"]] == [2]


async def test_the_rows_are_bounded_and_the_others_counted(live, monkeypatch):
    monkeypatch.setattr(broker_tasks, "MAX_ROWS", 5)
    report = await live.get("/api/v1/brokers/1/tasks")
    assert len(report["rows"]) == 5
    assert report["further_tasks"] == report["tasks"] - sum(row["count"] for row in report["rows"]) > 0


async def test_a_step_that_holds_the_loop_is_named(live, monkeypatch, nursery):
    monkeypatch.setattr(step_monitor, "SLOW_STEP_NS", 0)
    await live.get("/api/v1/brokers/1/tasks")
    nursery.start_soon(trio.lowlevel.checkpoint, name="a slow task")
    await trio.testing.wait_all_tasks_blocked()
    report = await live.get("/api/v1/brokers/1/tasks")
    assert report["timed_seconds"] > 0
    durations = [step["milliseconds"] for step in report["slowest_steps"]]
    assert durations == sorted(durations, reverse=True)
    assert len(durations) <= broker_tasks.SLOWEST_STEPS


async def test_passes_of_the_loop_are_shown_by_the_second(live):
    for _ in range(RECENT_INTERVALS + 1):
        live.broker.server.sample(time.perf_counter_ns())
    passes = (await live.get("/api/v1/brokers/1/tasks"))["slowest_pass_ms"]
    assert len(passes) == RECENT_INTERVALS
    assert all(each >= 0 for each in passes)


# --- what it is made of ---


async def test_a_task_that_waits_in_its_own_nursery_says_so(nursery):
    async def parent(task_status):
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            task_status.started(trio.lowlevel.current_task())

    task = await nursery.start(parent)
    await trio.testing.wait_all_tasks_blocked()
    place = place_of(task)
    assert place.waits_for.endswith("__aexit__")
    assert "parent" in place.waits_in
    nursery.cancel_scope.cancel()


async def test_steps_are_timed_only_while_somebody_asks(monkeypatch):
    monkeypatch.setattr(step_monitor, "SLOW_STEP_NS", -1)
    monitor = StepMonitor()
    monitor.want()
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()
    assert monitor.timed_seconds > 0
    assert monitor.slowest(1)
    assert trio.lowlevel.current_task() in monitor.last_steps
    monkeypatch.setattr(step_monitor, "WANTED_SECONDS", -1.0)
    monitor.want()
    await trio.lowlevel.checkpoint()
    assert monitor.timed_seconds == 0.0
    assert monitor.last_steps == {}
    with pytest.raises(KeyError):
        trio.lowlevel.remove_instrument(monitor)


async def test_the_age_of_a_task_is_known_until_it_ends():
    monitor = LoopMonitor()
    with monitor.installed():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            [task] = nursery.child_tasks
            assert task in monitor.spawned_ns
            assert trio.lowlevel.current_task() not in monitor.spawned_ns
            nursery.cancel_scope.cancel()
        assert task not in monitor.spawned_ns
