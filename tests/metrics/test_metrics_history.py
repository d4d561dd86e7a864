"""Claims about samples and their history."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from trio_broker.metrics.history import HISTORY_SAMPLES, History, Sample, Sampler, sample_between
from trio_broker.metrics.reading import Reading, WorkerReading


def reading(at: float = 0.0, **changes: Any) -> Reading:
    """A reading of an idle broker ``at`` seconds, with ``changes``."""
    values: dict[str, Any] = {
        "taken_at": at,
        "taken_at_ms": int(at * 1000),
        "bytes_in": 0,
        "bytes_out": 0,
        "records_in": 0,
        "requests": 0,
        "connections": 0,
        "connections_accepted": 0,
        "network_workers": (),
        "io_workers": (),
        "queue_depth": 0,
        "queue_capacity": 500,
        "parked_requests": 0,
        "event_loop_busy_seconds": 0.0,
    }
    return Reading(**(values | changes))


def test_rates_are_what_was_added_over_the_time_that_passed() -> None:
    sample = sample_between(
        reading(10.0, bytes_in=1000, bytes_out=50, records_in=7, requests=3),
        reading(12.0, bytes_in=5000, bytes_out=50, records_in=17, requests=13),
    )
    assert sample.interval_seconds == 2.0
    assert sample.bytes_in_per_second == 2000
    assert sample.bytes_out_per_second == 0
    assert sample.records_in_per_second == 5
    assert sample.requests_per_second == 5


def test_levels_are_those_at_the_end() -> None:
    sample = sample_between(reading(0), reading(1, queue_depth=9, queue_capacity=250, parked_requests=4, connections=2))
    assert (sample.queue_depth, sample.queue_capacity, sample.parked_requests, sample.connections) == (9, 250, 4, 2)


def test_a_total_that_was_reset_gives_no_negative_rate() -> None:
    assert sample_between(reading(0, bytes_in=100), reading(1, bytes_in=10)).bytes_in_per_second == 0


def test_two_readings_at_one_moment_divide_by_nothing() -> None:
    sample = sample_between(reading(5), reading(5))
    assert sample.bytes_in_per_second == 0
    assert sample.io_idle_ratio == 1


def test_idle_is_what_is_left_of_the_interval_per_worker_and_in_the_mean() -> None:
    sample = sample_between(
        reading(0, io_workers=(WorkerReading("0", 5.0), WorkerReading("1", 0.0))),
        reading(2, io_workers=(WorkerReading("0", 6.0), WorkerReading("1", 0.0))),
    )
    assert [worker.idle_ratio for worker in sample.io_workers] == [0.5, 1.0]
    assert sample.io_idle_ratio == 0.75


@pytest.mark.parametrize(("busy_seconds", "idle"), [(1.001, 0.0), (0.0, 1.0)])
def test_idle_stays_within_nought_and_one(busy_seconds: float, idle: float) -> None:
    sample = sample_between(
        reading(0, network_workers=(WorkerReading("0", 0.0),)),
        reading(1, network_workers=(WorkerReading("0", busy_seconds),)),
    )
    assert sample.network_idle_ratio == idle


def test_a_worker_that_began_in_between_is_judged_by_its_own_life() -> None:
    sample = sample_between(reading(0), reading(1, io_workers=(WorkerReading("8", 0.1, started_at=0.5),)))
    assert sample.io_workers[0].idle_ratio == pytest.approx(0.8)


def test_a_new_worker_under_an_old_name_is_not_taken_for_the_old_one() -> None:
    old = WorkerReading("3", 900.0, started_at=-1000.0)
    new = WorkerReading("3", 0.25, started_at=0.5)
    sample = sample_between(reading(0, io_workers=(old,)), reading(1, io_workers=(new,)))
    assert sample.io_workers[0].idle_ratio == 0.5


def test_a_count_that_went_down_is_a_new_workers_even_if_it_tells_no_start() -> None:
    sample = sample_between(
        reading(0, io_workers=(WorkerReading("3", 900.0),)), reading(1, io_workers=(WorkerReading("3", 0.25),))
    )
    assert sample.io_workers[0].idle_ratio == 0.75


def test_workers_that_ended_are_gone_from_the_sample() -> None:
    sample = sample_between(
        reading(0, io_workers=(WorkerReading("0", 0.0), WorkerReading("1", 0.0))),
        reading(1, io_workers=(WorkerReading("0", 0.0),)),
    )
    assert [worker.name for worker in sample.io_workers] == ["0"]


def test_the_loop_is_busy_for_the_share_it_did_not_wait() -> None:
    assert sample_between(reading(0), reading(4, event_loop_busy_seconds=1.0)).event_loop_busy_ratio == 0.25


def test_the_history_keeps_five_minutes() -> None:
    history = History(reading(0))
    for second in range(1, HISTORY_SAMPLES + 11):
        history.add(reading(second))
    assert len(history.samples) == HISTORY_SAMPLES == 300
    assert history.samples[0].taken_at_ms == 11_000
    assert history.samples[-1] is history.latest_sample
    assert history.latest_reading.taken_at == HISTORY_SAMPLES + 10


def test_listeners_hear_of_each_sample_until_they_leave() -> None:
    history = History(reading(0))
    heard: list[Sample] = []
    leave = history.subscribe(heard.append)
    first = history.add(reading(1))
    leave()
    history.add(reading(2))
    assert heard == [first]


async def test_the_sampler_reads_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    history = History(reading(trio.current_time()))
    with trio.move_on_after(5.5):
        await Sampler(history, lambda: reading(trio.current_time())).run()
    assert [sample.interval_seconds for sample in history.samples] == pytest.approx([1.0] * 5)


async def test_the_sampler_does_not_make_up_for_beats_it_missed(mock_clock: trio.testing.MockClock) -> None:
    """A loop that was stuck for four seconds gives one sample of four seconds, not four of nothing."""
    history = History(reading(trio.current_time()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Sampler(history, lambda: reading(trio.current_time())).run)
        for seconds in (0.0, 4.0, 0.5, 0.5):
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert history.samples[0].interval_seconds == pytest.approx(4.0)
    assert len(history.samples) <= 3
