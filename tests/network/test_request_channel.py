"""The queue between Processors and handlers."""

from __future__ import annotations

from kafka_wire.headers import RequestHeader
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, RequestChannel

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)


def request(number: int) -> QueuedRequest:
    return QueuedRequest(RequestHeader(3, 1, number, None), memoryview(b""), INFO)


def channel_of(capacity: int, count: int) -> RequestChannel:
    channel = RequestChannel(capacity)
    for number in range(count):
        channel.send(request(number))
    return channel


def received(channel: RequestChannel) -> list[int]:
    """The numbers of all that can be received."""
    numbers = []
    while (taken := channel.receive()) is not None:
        numbers.append(taken.header.correlation_id)
    return numbers


def test_requests_are_received_in_the_order_of_sending():
    assert received(channel_of(10, 5)) == [0, 1, 2, 3, 4]


def test_an_empty_channel_has_nothing():
    assert RequestChannel(1).receive() is None


def test_requests_that_find_the_channel_full_wait_and_keep_their_order():
    channel = channel_of(1, 5)
    assert (channel.statistics().depth, channel.statistics().senders_waiting) == (1, 4)
    assert received(channel) == [0, 1, 2, 3, 4]
    assert channel.statistics().peak_depth == 1


def test_a_request_is_blocked_until_there_is_room_for_it():
    channel = channel_of(1, 1)
    late = request(1)
    channel.send(late)
    assert late.is_blocked
    channel.receive()
    assert not late.is_blocked


def test_a_request_whose_connection_ended_waits_no_longer():
    channel = channel_of(1, 1)
    gone, stays = request(1), request(2)
    channel.send(gone)
    channel.send(stays)
    assert channel.withdraw(gone)
    assert received(channel) == [0, 2]


def test_a_request_that_has_its_room_cannot_be_withdrawn():
    channel = RequestChannel(1)
    queued = request(0)
    channel.send(queued)
    assert not channel.withdraw(queued)
    assert received(channel) == [0]


def test_raising_the_capacity_admits_those_who_wait():
    channel = channel_of(1, 5)
    channel.capacity = 3
    assert (channel.statistics().depth, channel.statistics().senders_waiting) == (3, 2)


def test_lowering_the_capacity_keeps_what_is_queued():
    channel = channel_of(5, 5)
    channel.capacity = 2
    late = request(9)
    channel.send(late)
    assert late.is_blocked
    assert received(channel) == [0, 1, 2, 3, 4, 9]


def test_the_statistics_tell_the_peak_of_ever_and_of_late():
    channel = channel_of(10, 7)
    received(channel)
    channel.roll_peak()
    assert channel.statistics().recent_peak_depth == 7
    channel.roll_peak()
    statistics = channel.statistics()
    assert (statistics.depth, statistics.peak_depth, statistics.recent_peak_depth) == (0, 7, 0)
    assert statistics.capacity == 10


def test_releasing_a_slot_that_no_request_holds_does_nothing():
    request(1).release_handler()


def test_a_connection_prints_its_listener_and_its_peer():
    assert str(INFO) == "PLAINTEXT://10.0.0.1:5000#1"
