"""A reply hands one answer from whoever has it to the task that waits for it."""

from __future__ import annotations

import pytest
import trio

from trio_broker.coordinator.reply import Reply


async def test_an_answer_that_is_there_is_not_waited_for():
    reply, parked = Reply(), []
    reply.give("answer", 7)
    assert await reply.wait(lambda: parked.append(True)) == "answer"
    assert reply.required_offset == 7
    assert not parked


async def test_who_waits_for_others_gives_its_slot_back_first(autojump_clock, nursery):
    reply, parked = Reply(), []

    async def answer_later():
        await trio.sleep(10)
        assert parked
        reply.give(None)

    nursery.start_soon(answer_later)
    assert await reply.wait(lambda: parked.append(True)) is None
    assert trio.current_time() == 10


def test_a_second_answer_is_our_bug():
    reply = Reply()
    reply.give(1)
    with pytest.raises(AssertionError, match="answered twice"):
        reply.give(2)
