"""Commands are executed one at a time, in order of arrival, each to its end."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trio_broker.partition.command_queue import CommandQueue


async def test_commands_are_executed_one_after_the_other_as_they_came(nursery, autojump_clock):
    queue, log = CommandQueue(), []

    async def command(number: int) -> None:
        log.append(f"begin {number}")
        await trio.sleep(10 - number)
        log.append(f"end {number}")

    for number in range(3):
        nursery.start_soon(queue.execute, lambda number=number: command(number))
        await trio.testing.wait_all_tasks_blocked()
    assert queue.is_busy
    await queue.wait_idle()
    assert log == ["begin 0", "end 0", "begin 1", "end 1", "begin 2", "end 2"]
    assert not queue.is_busy


async def test_a_command_that_has_begun_is_carried_to_its_end(autojump_clock):
    queue, ended = CommandQueue(), []

    async def command() -> None:
        await trio.sleep(5)
        ended.append(trio.current_time())

    began = trio.current_time()
    with trio.move_on_after(1):
        await queue.execute(command)
    assert ended == [began + 5]
    assert not queue.is_busy


async def test_a_command_whose_caller_goes_before_it_begins_is_never_executed(nursery, autojump_clock):
    queue, executed = CommandQueue(), []

    async def slow() -> None:
        await trio.sleep(5)

    async def note(name: str) -> None:
        executed.append(name)

    nursery.start_soon(queue.execute, slow)
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(1):
        await queue.execute(lambda: note("gone"))
    await queue.execute(lambda: note("next"))
    assert executed == ["next"]


async def test_one_that_fails_lets_the_next_begin(nursery, autojump_clock):
    queue = CommandQueue()

    async def fail() -> None:
        await trio.sleep(1)
        raise OSError("the disk is full")

    async def succeed() -> str:
        return "done"

    async def expect_failure() -> None:
        with pytest.raises(OSError, match="full"):
            await queue.execute(fail)

    nursery.start_soon(expect_failure)
    await trio.testing.wait_all_tasks_blocked()
    assert await queue.execute(succeed) == "done"
