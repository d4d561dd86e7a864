"""The links between the brokers of a cluster in one process."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from trio_broker.testing.cluster_network import ClusterLinks, CutNetwork


class Store:
    """Metadata that nobody has claimed."""

    def controller(self) -> Any:
        return self

    leader_id = -1

    def expire(self, node_id: int) -> None: ...


class Network:
    """Connections that wait for ``may_connect``; ``ends`` are their other ends."""

    def __init__(self) -> None:
        self.may_connect = trio.Event()
        self.ends: list[trio.SocketStream] = []

    async def connect(self, host: str, port: int) -> trio.SocketStream:
        await self.may_connect.wait()
        ours, theirs = trio.socket.socketpair()
        self.ends.append(trio.SocketStream(theirs))
        return trio.SocketStream(ours)


@pytest.fixture
async def network():
    made = Network()
    yield made
    for each in made.ends:
        await each.aclose()


@pytest.fixture
def links():
    made: Any = Store()
    return ClusterLinks(made, lambda port: port - 9090)


async def test_a_connection_breaks_when_its_ends_are_cut_off(network, links):
    network.may_connect.set()
    stream = await CutNetwork(links, 1, network).connect("", 9092)
    await stream.send_all(b"before")
    assert await network.ends[0].receive_some() == b"before"
    links.cut([frozenset({1}), frozenset({2, 3})])
    assert await stream.receive_some() == b""
    with pytest.raises(OSError, match="broker 2 is cut off from broker 1"):
        await CutNetwork(links, 1, network).connect("", 9092)
    links.heal()
    async with await CutNetwork(links, 1, network).connect("", 9092):
        await stream.aclose()


async def test_a_connection_that_is_being_made_when_its_ends_are_cut_off_comes_to_nothing(network, links):
    refused = []

    async def connect() -> None:
        with pytest.raises(OSError, match="cut off") as raised:
            await CutNetwork(links, 1, network).connect("", 9092)
        refused.append(raised.value)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connect)
        await trio.testing.wait_all_tasks_blocked()
        links.cut([frozenset({1}), frozenset({2, 3})])
        network.may_connect.set()
    assert refused
    assert await network.ends[0].receive_some() == b""


async def test_a_connection_that_has_ended_before_is_in_no_way_of_a_cut(network, links):
    network.may_connect.set()
    ended, other = [await CutNetwork(links, 1, network).connect("", 9092) for _ in range(2)]
    await ended.aclose()
    links.cut([frozenset({1}), frozenset({2, 3})])
    assert await other.receive_some() == b""
    await other.aclose()
