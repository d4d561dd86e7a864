"""NetworkClient: several requests of several callers on one connection, and how each of them may end."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.network.scripted_peer import Peer, PeerNetwork
from trio_broker.network.errors import RequestNotSent, ResponseLost
from trio_broker.network.network_client import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NetworkClient,
)
from trio_broker.runtime.timeouts import CONNECT_SECONDS

SECONDS = 30.0

GROUPS = ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])

REFUSED = OSError(errno.ECONNREFUSED, "Connection refused")


def heartbeat(member: str = "m") -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=1, member_id=member)


@attrs.define(eq=False)
class Harness:
    network: PeerNetwork
    client: NetworkClient
    nursery: trio.Nursery
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def sends(self, message: Any, *, timeout_seconds: float = SECONDS) -> Call:
        """Send in a task of its own."""
        call = Call()

        async def send() -> None:
            try:
                with call.scope:
                    call.outcome = await self.client.send(message, timeout_seconds=timeout_seconds)
            except (RequestNotSent, ResponseLost) as error:
                call.outcome = error
            call.ended.set()

        self.nursery.start_soon(send)
        return call

    async def run(self) -> None:
        with self.scope:
            await self.client.run()


@attrs.define(eq=False)
class Call:
    outcome: Any = None
    ended: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def ends(self) -> Any:
        """What came of it."""
        await self.ended.wait()
        return self.outcome


@asynccontextmanager
async def running(*, has_sockets: bool = False) -> AsyncIterator[Harness]:
    network = PeerNetwork(has_sockets)
    client = NetworkClient(network, "b2", 9092, "b1")  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        harness = Harness(network, client, nursery)
        nursery.start_soon(harness.run)
        yield harness
        nursery.cancel_scope.cancel()


async def connected(harness: Harness) -> Peer:
    """The other end of a connection on which one request was answered."""
    call = harness.sends(heartbeat())
    peer = await harness.network.accept()
    await peer.answer((await peer.receive())[0], HeartbeatResponse())
    await call.ends()
    return peer


# Answers


async def test_the_first_request_makes_a_connection_and_agrees_on_versions(autojump_clock):
    async with running() as harness:
        await trio.testing.wait_all_tasks_blocked()
        assert not harness.network.attempts, "nothing is to be sent"
        call = harness.sends(ListGroupsRequest())
        peer = await harness.network.accept(agree=False)
        assert (await peer.agree_on_versions({ApiKey.LIST_GROUPS: (0, 3)})).client_software_name == "trio-broker"
        header, request = await peer.receive()
        assert (header.api_version, header.client_id, request) == (3, "b1", ListGroupsRequest())
        await peer.answer(header, GROUPS)
        assert (await call.ends()).groups[0].group_id == "g"


async def test_requests_of_several_callers_are_in_flight_and_answered_in_order(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        one = harness.sends(ListGroupsRequest())
        header, _ = await peer.receive()
        other = harness.sends(heartbeat("other"))
        next_header, next_request = await peer.receive()
        assert next_request.member_id == "other"
        await peer.answer(header, GROUPS)
        assert isinstance(await one.ends(), ListGroupsResponse)
        assert other.outcome is None
        await peer.answer(next_header, HeartbeatResponse(error_code=27))
        assert (await other.ends()).error_code == 27
        assert len(harness.network.attempts) == 1


async def test_an_answer_may_come_in_pieces(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        call = harness.sends(heartbeat())
        await peer.answer((await peer.receive())[0], HeartbeatResponse(), piece_bytes=1)
        assert await call.ends() == HeartbeatResponse()


@pytest.mark.parametrize("has_sockets", [True, False])
async def test_a_large_answer_comes_whole_and_so_does_the_small_one_behind_it(has_sockets):
    large = ListGroupsResponse(groups=[ListedGroup(group_id="g" * 30_000, protocol_type=str(n)) for n in range(20)])
    async with running(has_sockets=has_sockets) as harness:
        peer = await connected(harness)
        one = harness.sends(ListGroupsRequest())
        header, _ = await peer.receive()
        other = harness.sends(heartbeat())
        next_header, _ = await peer.receive()
        await peer.answer(header, large, piece_bytes=100_000)
        await peer.answer(next_header, HeartbeatResponse(error_code=27))
        assert (await one.ends(), (await other.ends()).error_code) == (large, 27)
        await peer.stream.aclose()


async def test_the_answer_to_a_cancelled_caller_is_dropped(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        gone = harness.sends(heartbeat("gone"))
        header, _ = await peer.receive()
        other = harness.sends(ListGroupsRequest())
        next_header, _ = await peer.receive()
        gone.scope.cancel()
        await gone.ends()
        await peer.answer(header, HeartbeatResponse())
        await peer.answer(next_header, GROUPS)
        assert isinstance(await other.ends(), ListGroupsResponse)


# What was not sent


async def test_a_caller_is_refused_when_the_attempt_to_connect_fails(autojump_clock, caplog):
    async with running() as harness:
        caplog.set_level(logging.INFO)
        harness.network.refusals = [REFUSED, REFUSED]
        for _ in range(2):
            with pytest.raises(RequestNotSent, match=r"^b2:9092: cannot connect: Connection refused$"):
                await harness.client.send(heartbeat(), timeout_seconds=SECONDS)
        assert [each.levelno for each in caplog.records] == [logging.WARNING], "the same reason is logged once"
        await connected(harness)
        assert caplog.records[-1].getMessage() == "b2:9092: connected again"


async def test_the_pauses_between_attempts_grow_to_a_second(autojump_clock):
    async with running() as harness:
        harness.network.refusals = [REFUSED] * 8
        for _ in range(8):
            with pytest.raises(RequestNotSent):
                await harness.client.send(heartbeat(), timeout_seconds=SECONDS)
        pauses = [after - before for before, after in pairwise(harness.network.attempts)]
        assert pauses == pytest.approx([FIRST_PAUSE_SECONDS * 2**n for n in range(5)] + [LONGEST_PAUSE_SECONDS] * 2)


async def test_a_caller_waits_for_the_next_attempt_no_longer_than_its_timeout(autojump_clock):
    async with running() as harness:
        harness.network.refusals = [REFUSED]
        with pytest.raises(RequestNotSent):
            await harness.client.send(heartbeat(), timeout_seconds=SECONDS)
        with pytest.raises(RequestNotSent, match=r"no connection for Heartbeat within 0\.01 s"):
            await harness.client.send(heartbeat(), timeout_seconds=0.01)
        await connected(harness)


async def test_a_broker_that_does_not_answer_ApiVersions_is_given_up(autojump_clock):
    async with running() as harness:
        call = harness.sends(heartbeat(), timeout_seconds=2 * CONNECT_SECONDS)
        peer = await harness.network.accept(agree=False)
        await peer.receive()
        assert isinstance(outcome := await call.ends(), RequestNotSent)
        assert "ApiVersions was not answered" in str(outcome)
        assert await peer.is_closed()


@pytest.mark.parametrize(
    ("message", "reason"),
    [(ListGroupsRequest(), "does not serve ListGroups"), (heartbeat("x" * 40_000), "cannot be asked for Heartbeat")],
)
async def test_what_cannot_be_asked_disturbs_no_other_request(message, reason, autojump_clock):
    async with running() as harness:
        refused, other = harness.sends(message), harness.sends(heartbeat())
        peer = await harness.network.accept(agree=False)
        await peer.agree_on_versions({ApiKey.LIST_GROUPS: (0, -1), ApiKey.HEARTBEAT: (0, 3)})
        header, request = await peer.receive()
        assert request.member_id == "m"
        await peer.answer(header, HeartbeatResponse())
        assert isinstance(await refused.ends(), RequestNotSent)
        assert reason in str(refused.outcome)
        assert await other.ends() == HeartbeatResponse()


# What may have been carried out


async def end_the_connection(peer: Peer) -> None:
    await peer.stream.aclose()


async def send_garbage(peer: Peer) -> None:
    await peer.stream.send_all(b"HTTP/1.1 400 Bad Request")


async def answer_another_request(peer: Peer) -> None:
    await peer.stream.send_all(b"\0\0\0\x0b\0\0\0\x7f" + bytes(7))


@pytest.mark.parametrize("end", [end_the_connection, send_garbage, answer_another_request])
async def test_all_in_flight_is_lost_with_the_connection_and_the_next_request_makes_another(
    end: Callable[[Peer], Any], autojump_clock
):
    async with running() as harness:
        peer = await connected(harness)
        calls = [harness.sends(heartbeat()), harness.sends(ListGroupsRequest())]
        for _ in calls:
            await peer.receive()
        await end(peer)
        for call in calls:
            assert isinstance(await call.ends(), ResponseLost)
        assert calls[0].outcome is not calls[1].outcome
        await connected(harness)


async def test_a_request_without_an_answer_in_time_ends_the_connection(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        slow, behind = harness.sends(heartbeat(), timeout_seconds=1), harness.sends(heartbeat(), timeout_seconds=2)
        await peer.receive()
        await peer.receive()
        assert isinstance(await slow.ends(), ResponseLost)
        assert "Heartbeat was not answered within 1 s" in str(slow.outcome)
        assert isinstance(await behind.ends(), ResponseLost)
        assert await peer.is_closed()
        await connected(harness)


async def test_a_connection_that_the_other_side_closes_while_it_is_idle_costs_no_request(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert len(harness.network.attempts) == 1, "nothing is to be sent"
        await connected(harness)


async def test_at_the_end_of_its_task_all_that_waits_fails(autojump_clock):
    async with running() as harness:
        peer = await connected(harness)
        in_flight = harness.sends(heartbeat())
        await peer.receive()
        harness.scope.cancel()
        assert isinstance(await in_flight.ends(), ResponseLost)
        assert await peer.is_closed()
        with pytest.raises(RequestNotSent, match="closed"):
            await harness.client.send(heartbeat(), timeout_seconds=SECONDS)
