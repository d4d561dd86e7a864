"""The queue between Processors and handlers, and the slot for the answer."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from kafka_wire.headers import RequestHeader
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, ReplySlot, RequestChannel

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)


def request(number: int) -> QueuedRequest:
    return QueuedRequest(RequestHeader(3, 1, number, None), memoryview(b""), INFO)


def number_of(received: QueuedRequest | None) -> int:
    assert received is not None
    return received.header.correlation_id


async def test_requests_are_received_in_the_order_of_sending():
    channel = RequestChannel(10)
    for number in range(5):
        channel.send_nowait(request(number))
    assert [number_of(await channel.receive()) for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_full_channel_makes_senders_wait_and_keeps_their_order(nursery):
    channel = RequestChannel(1)
    for number in range(5):
        nursery.start_soon(channel.send, request(number))
        await wait_all_tasks_blocked()
    with pytest.raises(trio.WouldBlock):
        channel.send_nowait(request(9))
    assert channel.statistics().senders_waiting == 4
    assert [number_of(await channel.receive()) for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_a_waiting_receiver_is_given_the_request_directly(nursery):
    channel = RequestChannel(1)
    received = []

    async def receive() -> None:
        received.append(number_of(await channel.receive()))

    for _ in range(3):
        nursery.start_soon(receive)
    await wait_all_tasks_blocked()
    for number in range(3):
        channel.send_nowait(request(number))
    assert channel.statistics().depth == 0
    await wait_all_tasks_blocked()
    assert sorted(received) == [0, 1, 2]


async def test_a_cancelled_receiver_loses_nothing(nursery):
    channel = RequestChannel(5)
    with trio.CancelScope() as scope:
        nursery.start_soon(wait_then_cancel, scope)
        await channel.receive()
    assert scope.cancelled_caught
    channel.send_nowait(request(1))
    assert number_of(await channel.receive()) == 1


async def wait_then_cancel(scope: trio.CancelScope) -> None:
    await wait_all_tasks_blocked()
    scope.cancel()


async def test_a_request_handed_over_before_the_cancellation_is_not_lost(nursery):
    channel = RequestChannel(5)
    received = []

    async def receive(scope: trio.CancelScope) -> None:
        with scope:
            received.append(number_of(await channel.receive()))

    scope = trio.CancelScope()
    nursery.start_soon(receive, scope)
    await wait_all_tasks_blocked()
    channel.send_nowait(request(1))
    scope.cancel()
    await wait_all_tasks_blocked()
    assert received == [1]


async def test_a_cancelled_sender_sends_nothing(nursery):
    channel = RequestChannel(1)
    channel.send_nowait(request(1))
    with trio.CancelScope() as scope:
        nursery.start_soon(wait_then_cancel, scope)
        await channel.send(request(2))
    assert scope.cancelled_caught
    assert number_of(await channel.receive()) == 1
    with pytest.raises(trio.WouldBlock):
        channel.receive_nowait()


async def test_raising_the_capacity_admits_those_who_wait(nursery):
    channel = RequestChannel(1)
    for number in range(4):
        nursery.start_soon(channel.send, request(number))
        await wait_all_tasks_blocked()
    channel.capacity = 3
    await wait_all_tasks_blocked()
    assert (channel.statistics().depth, channel.statistics().senders_waiting) == (3, 1)


async def test_lowering_the_capacity_keeps_what_is_queued():
    channel = RequestChannel(5)
    for number in range(5):
        channel.send_nowait(request(number))
    channel.capacity = 2
    with pytest.raises(trio.WouldBlock):
        channel.send_nowait(request(9))
    assert [number_of(channel.receive_nowait()) for _ in range(5)] == [0, 1, 2, 3, 4]
    channel.send_nowait(request(5))


async def test_a_dismissed_receiver_goes_without_a_request(nursery):
    channel = RequestChannel(1)
    received = []

    async def receive(task_status: trio.TaskStatus[trio.lowlevel.Task]) -> None:
        task_status.started(trio.lowlevel.current_task())
        received.append(await channel.receive())

    task = await nursery.start(receive)
    await wait_all_tasks_blocked()
    assert channel.dismiss(task)
    assert not channel.dismiss(task)
    await wait_all_tasks_blocked()
    assert received == [None]


async def test_the_statistics_tell_the_peak_of_ever_and_of_late():
    channel = RequestChannel(10)
    for number in range(7):
        channel.send_nowait(request(number))
    for _ in range(7):
        channel.receive_nowait()
    channel.roll_peak()
    assert channel.statistics().recent_peak_depth == 7
    channel.roll_peak()
    statistics = channel.statistics()
    assert (statistics.depth, statistics.peak_depth, statistics.recent_peak_depth) == (0, 7, 0)
    assert (statistics.capacity, statistics.requests) == (10, 7)


async def test_an_answer_is_delivered_whether_it_comes_before_or_after_the_wait(nursery):
    slot = ReplySlot()
    slot.put([b"early"])
    assert await slot.wait() == [b"early"]

    async def answer() -> None:
        await wait_all_tasks_blocked()
        slot.put([b"late"])

    nursery.start_soon(answer)
    assert await slot.wait() == [b"late"]


async def test_an_answer_to_a_connection_that_has_gone_is_dropped(nursery):
    slot = ReplySlot()
    with trio.CancelScope() as scope:
        nursery.start_soon(wait_then_cancel, scope)
        await slot.wait()
    assert slot.is_abandoned
    slot.put([b"nobody is there"])


async def test_an_abandoned_slot_wakes_its_connection_with_the_reason(nursery):
    slot = ReplySlot()
    reason = CloseConnection("the client went away")

    async def abandon() -> None:
        await wait_all_tasks_blocked()
        slot.abandon(reason)
        slot.put([b"nobody is there"])

    nursery.start_soon(abandon)
    assert await slot.wait() is reason


async def test_parking_a_request_that_no_slot_holds_does_nothing():
    request(1).release_handler()


def test_a_connection_prints_its_listener_and_its_peer():
    assert str(INFO) == "PLAINTEXT://10.0.0.1:5000#1"
