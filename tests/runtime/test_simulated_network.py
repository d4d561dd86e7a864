"""Sockets of a simulated network behave as a broker expects of TCP, and links between its hosts fail as a
test says."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener, listen, prepare_socket
from trio_broker.runtime.network import unread_bytes
from trio_broker.runtime.simulated_network import SimulatedHost, SimulatedNetwork
from trio_broker.runtime.timeouts import CONNECT_SECONDS

CONFIG = SocketServerConfig()

HOST = "b1"
PORT = 9092


@pytest.fixture
def host() -> SimulatedHost:
    return SimulatedNetwork().host(HOST)


def test_bytes_are_there_as_soon_as_they_are_sent(host):
    with listen(Listener("PLAINTEXT", "127.0.0.1", 9092), CONFIG, host) as listening:
        client = host.network.client_socket(HOST, PORT)
        accepted, peer = listening.accept()
        prepare_socket(accepted, CONFIG)
        with client, accepted:
            client.send(b"request")
            assert unread_bytes(accepted) == 7
            assert accepted.recv(100) == b"request"
            accepted.send(b"response")
            assert client.recv(100) == b"response"
            assert accepted.getsockname() == listening.getsockname() == ("127.0.0.1", 9092)
            assert isinstance(peer[0], str)
            accepted.shutdown(socket.SHUT_WR)
            assert client.recv(100) == b""
            assert unread_bytes(accepted) == 0
        assert unread_bytes(accepted) == 0


def test_port_0_gets_a_port_of_its_own(host):
    with (
        listen(Listener("A", "127.0.0.1", 0), CONFIG, host) as one,
        listen(Listener("B", "127.0.0.1", 0), CONFIG, host) as other,
    ):
        assert one.getsockname() != other.getsockname()


def test_a_port_that_nobody_listens_on_refuses(host):
    with pytest.raises(ConnectionRefusedError):
        host.network.client_socket(HOST, PORT)
    listen(Listener("PLAINTEXT", "127.0.0.1", 9092), CONFIG, host).close()
    with pytest.raises(ConnectionRefusedError):
        host.network.client_socket(HOST, PORT)


def test_a_port_is_taken_once_and_by_host_and_network(host):
    with listen(Listener("A", "127.0.0.1", 9092), CONFIG, host):
        with pytest.raises(OSError, match="in use"):
            listen(Listener("B", "127.0.0.1", 9092), CONFIG, host)
        listen(Listener("A", "127.0.0.1", 9092), CONFIG, host.network.host("b2")).close()
        listen(Listener("A", "127.0.0.1", 9092), CONFIG, SimulatedNetwork().host(HOST)).close()


# Between hosts


@attrs.define(eq=False)
class Pair:
    """A connection from host ``a`` to a server on host ``b``."""

    network: SimulatedNetwork
    ours: trio.abc.Stream
    theirs: trio.SocketStream


@asynccontextmanager
async def connected(network: SimulatedNetwork) -> AsyncIterator[Pair]:
    with listen(Listener("A", "127.0.0.1", PORT), CONFIG, network.host("b")) as listening:
        ours = await network.host("a").connect("b", PORT)
        accepted, _ = listening.accept()
    # The same socket again: Trio takes no subclass.
    theirs = socket.fromfd(accepted.fileno(), accepted.family, accepted.type)
    async with ours, trio.SocketStream(trio.socket.from_stdlib_socket(theirs)) as stream:
        with accepted:
            yield Pair(network, ours, stream)


async def exchange(pair: Pair) -> None:
    """Send something in both directions."""
    await pair.ours.send_all(b"request")
    assert await pair.theirs.receive_some() == b"request"
    await pair.theirs.send_all(b"response")
    assert await pair.ours.receive_some() == b"response"


async def arrival_seconds(sender: trio.abc.Stream, receiver: trio.abc.Stream) -> float:
    """How long a byte is under way."""
    began = trio.current_time()
    await sender.send_all(b"x")
    assert await receiver.receive_some() == b"x"
    return trio.current_time() - began


async def test_hosts_are_reached_by_name_and_each_reaches_itself(autojump_clock):
    network = SimulatedNetwork()
    async with connected(network) as pair:
        await exchange(pair)
    with listen(Listener("A", "0.0.0.0", PORT), CONFIG, network.host("b")):
        for name in ("b", "localhost", "127.0.0.1"):
            await (await network.host("b").connect(name, PORT)).aclose()
        with pytest.raises(ConnectionRefusedError):
            await network.host("a").connect("localhost", PORT)
    with pytest.raises(OSError, match="not known"):
        await network.host("a").connect("nowhere", PORT)


async def test_the_end_of_one_side_reaches_the_other(autojump_clock):
    async with connected(SimulatedNetwork()) as pair:
        await pair.ours.aclose()
        assert await pair.theirs.receive_some() == b""


async def test_what_is_sent_over_a_link_that_is_cut_arrives_when_it_is_healed(autojump_clock):
    async with connected(SimulatedNetwork()) as pair:
        link = pair.network.link("a", "b")
        link.cut()
        await pair.ours.send_all(b"request")
        with trio.move_on_after(1000) as scope:
            await pair.theirs.receive_some()
        assert scope.cancelled_caught
        await pair.theirs.send_all(b"the other direction is whole")
        assert await pair.ours.receive_some()
        link.heal()
        assert await pair.theirs.receive_some() == b"request"
        await exchange(pair)


async def test_the_end_of_a_process_is_not_seen_over_a_link_that_is_cut(autojump_clock):
    async with connected(SimulatedNetwork()) as pair:
        link = pair.network.link("b", "a")
        link.cut()
        pair.network.host("b").reset()
        with trio.move_on_after(1000) as scope:
            await pair.ours.receive_some()
        assert scope.cancelled_caught
        link.heal()
        assert await pair.ours.receive_some() == b""


@pytest.mark.parametrize("end", ["a", "b"])
async def test_connections_end_with_the_process_of_either_end(end, autojump_clock):
    async with connected(SimulatedNetwork()) as pair:
        pair.network.host(end).reset()
        assert await (pair.ours if end == "b" else pair.theirs).receive_some() == b""


@pytest.mark.parametrize("direction", [("a", "b"), ("b", "a")])
async def test_no_connection_is_made_over_a_link_that_is_cut_in_either_direction(direction, autojump_clock):
    network = SimulatedNetwork()
    link = network.link(*direction)
    with listen(Listener("A", "127.0.0.1", PORT), CONFIG, network.host("b")):
        link.cut()
        began = trio.current_time()
        with pytest.raises(TimeoutError):
            await network.host("a").connect("b", PORT)
        assert trio.current_time() - began == CONNECT_SECONDS
        link.heal()
        await (await network.host("a").connect("b", PORT)).aclose()


async def test_a_delay_is_of_one_direction_and_follows_from_the_seed(autojump_clock):
    seconds = []
    for seed in (1, 1, 2):
        async with connected(SimulatedNetwork(seed)) as pair:
            pair.network.link("a", "b").delay_seconds = 1.0
            assert await arrival_seconds(pair.theirs, pair.ours) == 0.0
            seconds.append(await arrival_seconds(pair.ours, pair.theirs))
    assert 0.0 < seconds[0] < 1.0
    assert seconds[0] == pytest.approx(seconds[1])
    assert seconds[0] != pytest.approx(seconds[2])


async def test_a_connection_that_breaks_ends_on_both_sides_and_others_go_on(autojump_clock):
    network = SimulatedNetwork()
    async with connected(network) as pair:
        network.link("a", "b").cut()
        await pair.ours.send_all(b"it is lost")
        await trio.testing.wait_all_tasks_blocked()
        network.break_connections("b", "a")
        assert await pair.theirs.receive_some() == b""
        assert await pair.ours.receive_some() == b""
        network.link("a", "b").heal()
        async with connected(network) as again:
            network.break_connections("a", "c")
            await exchange(again)
