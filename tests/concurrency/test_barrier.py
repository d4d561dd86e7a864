"""A bug behind a barrier costs what is behind it, once or for a while, and nothing else."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio

from trio_broker.concurrency.barrier import LONGEST_PAUSE_SECONDS, Backoff, Barrier, start_background, start_once


class Bug(Exception):
    """What nobody expects."""


def fail() -> None:
    raise Bug("broken")


def test_a_bug_is_logged_with_its_traceback_and_what_is_behind_the_block_goes_on(caplog):
    with Barrier("the sweeper", "it goes on"):
        fail()
    [line] = caplog.records
    assert (line.levelno, line.getMessage()) == (logging.ERROR, "the sweeper failed; it goes on")
    assert "in fail" in caplog.text


def test_of_failures_in_a_row_the_first_second_fourth_and_eighth_are_logged(caplog):
    barrier = Barrier("the sweeper", "it goes on")
    for _ in range(11):
        with barrier:
            fail()
    again = [" for the 4th time in a row", " for the 8th time in a row"]
    assert [each.getMessage() for each in caplog.records] == [
        f"the sweeper failed{each}; it goes on" for each in ("", "", *again)
    ]
    with barrier:
        pass
    with barrier:
        fail()
    assert len(caplog.records) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()])
def test_what_ends_the_process_passes(error, caplog):
    with pytest.raises(type(error)), Barrier("the sweeper", "it goes on"):
        raise error
    assert not caplog.records


async def test_cancellation_passes_and_a_bug_that_comes_with_it_is_logged(caplog):
    async def wait_badly() -> None:
        try:
            await trio.sleep_forever()
        finally:
            fail()

    with trio.CancelScope() as scope:
        with Barrier("the sweeper", "it goes on"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_badly)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await trio.lowlevel.checkpoint()
        pytest.fail("the scope is cancelled")
    assert "the sweeper failed" in caplog.text


async def test_a_task_of_the_background_begins_again_after_a_pause_and_its_nursery_goes_on(nursery, autojump_clock):
    begun = []

    async def run() -> None:
        begun.append(trio.current_time())
        if len(begun) < 3:
            fail()

    start = trio.current_time()
    start_background(nursery, "sweeping", run)
    await trio.sleep(1000)
    assert [each - start for each in begun] == [0, 1, 3]


async def test_a_task_that_ends_by_itself_ends_by_a_bug_too(nursery, caplog):
    start_once(nursery, "sweeping", partial(trio.to_thread.run_sync, fail))
    while not caplog.records:
        await trio.lowlevel.checkpoint()
    assert "sweeping failed; it has ended" in caplog.text
    assert not nursery.cancel_scope.cancel_called


async def test_the_pause_grows_up_to_a_minute_and_begins_anew_after_one_without_a_failure(autojump_clock):
    backoff, pauses = Backoff(), []
    for _ in range(9):
        pauses.append(backoff.next_pause())
        await trio.sleep(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    await trio.sleep(LONGEST_PAUSE_SECONDS + 1)
    assert backoff.next_pause() == 1
