"""What a worker of PySpark has loaded is frozen once for each kind of task; what tasks make is still collected."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from trio_broker.spark.source import TrioBrokerDataSource
from trio_broker.spark.workarounds import worker_memory
from trio_broker.spark.workarounds.worker_memory import STREAM_PLANNER, is_worker, keeping_loaded


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "is_worker", lambda: True)
    monkeypatch.setattr(worker_memory, "_frozen", {})
    yield
    gc.unfreeze()


TASKS = 2000


class Cycle:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.own = self


def run_task(kind: str = "source") -> None:
    """A task as PySpark's worker runs it, with garbage, and what follows it."""
    with keeping_loaded(kind):
        for _ in range(50):
            Cycle()
    gc.collect()


def is_looked_at(value: object) -> bool:
    """Whether collections look at ``value``: what is frozen is not among these objects."""
    return any(each is value for each in gc.get_objects())


def cycles() -> int:
    return sum(isinstance(each, Cycle) for each in gc.get_objects())


@pytest.mark.usefixtures("worker")
def test_what_is_loaded_is_frozen_at_the_end_of_the_first_task_of_each_kind():
    counts: list[int] = []
    for kind in ("source", "source", "sink", "sink", "source"):
        loaded: list[list[int]] = [[] for _ in range(1000 * (len(counts) + 1))]
        run_task(kind)
        counts.append(gc.get_freeze_count())
        del loaded

    assert counts[0] > 1000
    assert counts[1] <= counts[0]
    assert counts[2] > counts[1] + 1000
    assert counts[4] <= counts[3] <= counts[2]


@pytest.mark.usefixtures("worker")
def test_what_was_imported_since_is_frozen_by_the_next_task(monkeypatch: pytest.MonkeyPatch):
    run_task()
    loaded: list[int] = []
    run_task()
    assert is_looked_at(loaded)
    monkeypatch.setitem(sys.modules, "imported_since", types.ModuleType("imported_since"))
    run_task()

    assert not is_looked_at(loaded)


@pytest.mark.usefixtures("worker")
def test_what_pyspark_has_loaded_is_frozen_before_a_stream_is_planned(monkeypatch: pytest.MonkeyPatch):
    loaded: list[int] = []
    monkeypatch.setattr(worker_memory, "main_module", lambda: STREAM_PLANNER)
    with keeping_loaded("source"):
        assert not is_looked_at(loaded)


@pytest.mark.usefixtures("worker")
def test_the_garbage_of_thousands_of_tasks_is_collected():
    run_task()
    frozen = gc.get_freeze_count()
    for _ in range(20):
        run_task()
        before = len(gc.get_objects())
    for _ in range(TASKS):
        with keeping_loaded("source"):
            Cycle()
    gc.collect()

    assert cycles() == 0
    assert gc.get_freeze_count() <= frozen
    # Not one object for each task; brokers in other threads of this process may have some more meanwhile.
    assert len(gc.get_objects()) < before + TASKS


@pytest.mark.usefixtures("worker")
def test_a_task_that_fails_is_the_first_one_as_well():
    with pytest.raises(ValueError, match="it"), keeping_loaded("source"):
        raise ValueError("it")

    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("worker")
def test_a_process_that_plans_and_commits_micro_batches_freezes_as_well():
    source = TrioBrokerDataSource({"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "orders"})
    source.streamWriter(StructType().add("value", "binary"), False)

    assert gc.get_freeze_count() > 1000


def test_a_driver_is_left_alone():
    before = gc.get_freeze_count()
    with keeping_loaded("source"):
        pass

    assert not is_worker()
    assert gc.get_freeze_count() == before
