"""Loading beside the first tasks of a worker, and at once in any other process."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from tests.waits import within
from trio_broker.spark.background_load import BackgroundLoad
from trio_broker.spark.workarounds import worker_memory
from trio_broker.spark.workarounds.worker_memory import keeping_loaded

WAIT_SECONDS = 60


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker_memory, "is_worker", lambda: True)
    monkeypatch.setattr(worker_memory, "_frozen", {})
    yield
    gc.unfreeze()


class SlowLoad:
    """A load that ends when it may; ``get`` of a worker never waits for it."""

    def __init__(self, min_rows: int = 0) -> None:
        self.may_end = threading.Event()
        self.calls = 0
        self.load = BackgroundLoad(self._load, min_rows=min_rows)

    def _load(self) -> str:
        self.calls += 1
        assert within(self.may_end.wait, WAIT_SECONDS)
        return "loaded"

    def end(self) -> None:
        self.may_end.set()
        for thread in threading.enumerate():
            if thread.name == "load":
                within(thread.join, WAIT_SECONDS)


def test_a_process_that_is_no_worker_waits() -> None:
    slow = SlowLoad()
    slow.may_end.set()

    assert [slow.load.get(), slow.load.get(), slow.calls] == ["loaded", "loaded", 1]


@pytest.mark.usefixtures("worker")
def test_a_worker_has_nothing_until_it_is_loaded() -> None:
    slow = SlowLoad()
    assert [slow.load.get(), slow.load.get()] == [None, None]
    slow.end()

    assert [slow.load.get(), slow.calls] == ["loaded", 1]


@pytest.mark.usefixtures("worker")
def test_a_worker_loads_nothing_before_it_has_rows_enough() -> None:
    slow = SlowLoad(min_rows=10)
    slow.may_end.set()
    for rows in (0, 4, 5, 0):
        slow.load.get(rows)
        slow.end()
    assert slow.calls == 0
    slow.load.get(1)
    slow.end()

    assert [slow.load.get(), slow.calls] == ["loaded", 1]


def test_a_process_that_is_no_worker_loads_for_any_number_of_rows() -> None:
    slow = SlowLoad(min_rows=10)
    slow.may_end.set()

    assert slow.load.get(1) == "loaded"


@pytest.mark.usefixtures("worker")
def test_a_load_that_fails_is_not_there_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    calls = []

    def fails() -> str:
        calls.append("load")
        raise ValueError

    load = BackgroundLoad(fails)
    assert load.get() is None
    SlowLoad().end()

    assert [load.get(), calls] == [None, ["load"]]


@pytest.mark.usefixtures("worker")
def test_nothing_is_frozen_before_the_load_has_ended_and_then_what_it_loaded() -> None:
    slow = SlowLoad()
    slow.load.get()
    with keeping_loaded("source"):
        pass
    assert gc.get_freeze_count() == 0
    slow.end()
    with keeping_loaded("source"):
        pass

    assert gc.get_freeze_count() > 1000
