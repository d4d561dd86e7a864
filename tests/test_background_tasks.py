"""No task ends the broker: each is started behind a barrier, and a broker in which one fails goes on serving."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from tests.running_broker import WAIT_SECONDS, admin_client, connected, running, until
from tests.waits import fail_after
from trio_broker.broker import Broker
from trio_broker.concurrency import barrier

ROOT = Path(__file__).parent.parent
PRODUCT = [*(ROOT / "trio_broker").rglob("*.py"), *(ROOT / "admin").rglob("*.py")]

STARTS = {"start_soon", "start", "spawn_system_task"}

WITHOUT_BARRIER = {
    # Tasks whose own code is a nursery of tasks behind barriers, and a wait without an end.
    "trio_broker/broker.py: services.replicas.run",
    "trio_broker/broker.py: services.groups.run",
    "trio_broker/broker.py: services.transactions.run",
    "trio_broker/broker.py: self.server.run",
    "trio_broker/cluster/etcd/opening.py: client.run",
    "trio_broker/coordinator/group_coordinator.py: self.runtime.run",
    "trio_broker/coordinator/transactions/transaction_coordinator.py: self.runtime.run",
    "trio_broker/network/socket_server.py: self.handlers.run",
    "trio_broker/partition/replica_manager.py: self.flusher.run",
    # What is to end with them: the broker itself, its start, and the command that runs it.
    "trio_broker/broker.py: broker.run",
    "trio_broker/dev_cluster.py: nursery.start",
    "trio_broker/testing/loop_thread.py: self.serve",
    "trio_broker/testing/cluster_thread.py: member.run",
    "trio_broker/testing/cluster_thread.py: self._start_one",
    "trio_broker/partition/log_loader.py: log_progress",
    "trio_broker/partition/log_loader.py: cancel_once",
    "trio_broker/partition/log_loader.py: work_off",
    "trio_broker/partition/log_loader.py: queue.run",
    # Barriers of their own: the loop of an Acceptor, the admin server's supervisor, and the guard of its connections.
    "trio_broker/network/socket_server.py: acceptor.run",
    "trio_broker/broker.py: serve_and_tell",
    # Waits of a start, and of the admin server, for two events, which raise nothing.
    "trio_broker/broker.py: cancel_once",
    "admin/broker_admin/server.py: cancel_once",
    "admin/broker_admin/guard.py: serve_listener",
    "admin/broker_admin/guard.py: serve_and_close",
    # Parts of a Processor or of a work queue, which ends with them, behind a barrier, and begins again.
    "trio_broker/network/processor.py: self._take_new_connections",
    "trio_broker/network/processor.py: self._take_turns",
    "trio_broker/network/processor.py: self._throttled.run",
    "trio_broker/runtime/real_workers.py: self._run_thread",
    "trio_broker/runtime/simulated_workers.py: self._run_item",
    # A part of one connection, which ends with it.
    "trio_broker/cluster/etcd/grpc_connection.py: self._write",
    "trio_broker/network/network_client.py: self._while_connected",
    "trio_broker/runtime/simulated_network.py: self._carry",
    "trio_broker/runtime/simulated_network.py: _carry_one_way",
    # Parts of one request, or of one call of a test, which fails with them.
    "trio_broker/broker_view/node/connection_diagnosis.py: self._examine",
    "trio_broker/testing/cluster_thread.py: member.wait_loaded",
    "trio_broker/testing/cluster_thread.py: cancel_once",
    "admin/broker_admin/event_stream.py: cancel_at_disconnect",
    "admin/broker_admin/event_stream.py: cancel_once",
    "admin/broker_admin/guard.py: discard",
    # The barriers themselves.
    "trio_broker/concurrency/barrier.py: run_background",
    "trio_broker/concurrency/barrier.py: run_to_end",
}
"""Where a task is started without ``trio_broker.concurrency.barrier``, and why that costs no more than it may."""


def started_tasks(source: str) -> Iterator[str]:
    """What is started in a nursery there, as it is written."""
    if not any(f".{start}" in source for start in STARTS):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTS:
            is_thread = node.func.attr == "start" and "nursery" not in ast.unparse(node.func.value)
            if node.args and not is_thread:
                yield ast.unparse(node.args[0])
        elif isinstance(node, ast.Attribute) and node.attr == "start_soon" and not isinstance(node.ctx, ast.Store):
            yield ""  # handed on, for instance to ``partial``; a call of it is found above as well


@pytest.fixture(scope="module")
def started() -> dict[str, list[str]]:
    """What each file of the product starts."""
    return {str(path.relative_to(ROOT)): list(started_tasks(path.read_text())) for path in PRODUCT}


def test_every_task_is_started_behind_a_barrier_or_is_known_to_need_none(started):
    assert {f"{path}: {task}" for path, tasks in started.items() for task in tasks if task} == WITHOUT_BARRIER


def test_nobody_hands_on_what_starts_tasks(started):
    assert [path for path, tasks in started.items() if tasks.count("") > len(tasks) / 2] == []


# ---- a real broker ---------------------------------------------------------------------------------------------------


class InjectedBug(Exception):
    """What a task of the broker meets where it waits."""


def tasks_below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield child
            yield from tasks_below(child)


def waits_in_its_own_code(task: trio.lowlevel.Task) -> bool:
    """Whether ``task`` does more than wait for its children, or for its cancellation."""
    waits = {frame.f_code.co_name for frame, _ in task.iter_await_frames()}
    return "_nested_child_finished" not in waits and ("sleep_forever" not in waits or "sleep_until" in waits)


def raise_bug() -> None:
    raise InjectedBug("where it waits")


def inject(task: trio.lowlevel.Task) -> bool:
    """Let ``task`` meet a bug where it waits, as a cancellation would; return whether it can be woken there."""
    if task._abort_func is None:
        return False
    task._attempt_abort(raise_bug)
    return task in task._runner.runq


ENDS_BY_ITSELF = {"request handler", "trio_broker.broker.Broker._start_admin.<locals>.serve_and_tell"}
"""Workers come when they are needed; the admin server is asked whether it is there."""


def tasks_of(task: trio.lowlevel.Task) -> dict[str, trio.lowlevel.Task]:
    return {each.name: each for each in tasks_below(task) if waits_in_its_own_code(each)}


def has_failed(root: trio.lowlevel.Task, task: trio.lowlevel.Task, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the bug was logged, which not every one in a row is, or another task has taken the place of ``task``."""
    return "InjectedBug" in caplog.text or task not in set(tasks_below(root))


def is_running(task: trio.lowlevel.Task, name: str) -> bool:
    return any(each.name == name and waits_in_its_own_code(each) for each in tasks_below(task))


async def is_ready(http: httpx.AsyncClient) -> bool:
    """Whether the admin server says so; it may be about to start again."""
    try:
        return (await http.get("readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def is_served(broker: Broker) -> bool:
    """Whether a record is taken; a Processor that is about to be replaced closes its connections."""
    try:
        async with connected(broker) as client:
            return await client.produce("t", b"value") == 0
    except (EOFError, OSError, trio.BrokenResourceError):
        return False


async def require_service(broker: Broker) -> None:
    """Nothing tells when what has failed has begun again."""
    with fail_after(WAIT_SECONDS):
        while not await is_served(broker):  # noqa: ASYNC110
            await trio.sleep(0.01)
        async with admin_client(broker) as http:
            while not await is_ready(http):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_a_bug_in_any_task_of_the_background_is_logged_and_the_broker_goes_on(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(barrier, "FIRST_PAUSE_SECONDS", 0.0)
    main = trio.lowlevel.current_task()
    settings = {"log_durability": "fsync", "admin_listener": "127.0.0.1:0", "log_scrubber_enable": "true"}
    async with running(tmp_path, log_initial_task_delay_ms="0", **settings) as broker:
        [running_task] = [each for nursery in main.child_nurseries for each in nursery.child_tasks]
        async with connected(broker) as client:
            await client.create_topic("t")
        await require_service(broker)
        names = set(tasks_of(running_task))
        assert {"log cleaner", "log scrubber", "expiration reaper", "retention", "syncs", "processor 0"} <= names
        for name in sorted(names):
            task = tasks_of(running_task).get(name)
            if task is None or not inject(task):
                continue
            await until(partial(has_failed, running_task, task, caplog))
            caplog.clear()
            if name not in ENDS_BY_ITSELF:
                await until(partial(is_running, running_task, name))
            await require_service(broker)
        assert not broker.failure


@pytest.mark.parametrize("source", ["nursery.start_soon(work)", "await self._nursery.start(work)"])
def test_a_task_without_a_barrier_is_found(source):
    assert "work" in started_tasks(f"async def run(): {source}")
