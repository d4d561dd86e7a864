"""A reply hands one answer from the task that has it to the task that waits for it."""

from __future__ import annotations

import pytest
import trio

from trio_broker.common.request_phase import RequestPhase
from trio_broker.coordinator.runtime.response_future import ResponseFuture


async def test_an_answer_that_is_there_is_not_waited_for():
    future = ResponseFuture()
    pending: list[RequestPhase] = []
    future.set_result("answer", 7)
    assert await future.wait(pending.append) == "answer"
    assert future.required_offset == 7
    assert not pending


async def test_who_waits_for_others_gives_its_slot_back_first(autojump_clock, nursery):
    future = ResponseFuture()
    pending: list[RequestPhase] = []

    async def answer_later():
        await trio.sleep(10)
        assert pending == [RequestPhase.PURGATORY]
        future.set_result(None)

    nursery.start_soon(answer_later)
    assert await future.wait(pending.append) is None
    assert trio.current_time() == 10


def test_a_second_answer_is_our_bug():
    future = ResponseFuture()
    future.set_result(1)
    with pytest.raises(AssertionError, match="answered twice"):
        future.set_result(2)
