"""New connections: dealt out in turn, limited, and not stopped by a process that ran out of descriptors."""

from __future__ import annotations

import errno
import logging
import socket
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_broker.common.log_throttle import LogThrottle
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Acceptor, Listener, listen
from trio_broker.network.connection_quotas import ConnectionQuotas
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.network import RealNetwork
from trio_broker.runtime.real_workers import RealWorkers

LISTENER = Listener("PLAINTEXT", "127.0.0.1", 0)


@attrs.define(eq=False)
class FakeProcessor:
    """A new_connections that nobody empties."""

    capacity: int
    new_connections: Any = attrs.field(init=False)
    arrivals: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.new_connections, self.arrivals = trio.open_memory_channel(self.capacity)


class FakeConnections:
    """Connections that are numbers."""

    def __init__(self, *capacities: int) -> None:
        self.processors: list[Any] = [FakeProcessor(capacity) for capacity in capacities]
        self.config = SocketServerConfig()
        self.sock = listen(LISTENER, self.config, RealNetwork())
        self.acceptor = Acceptor(
            listener=LISTENER,
            sock=self.sock,
            config=self.config,
            quotas=ConnectionQuotas(self.config, ManualClock(), RealWorkers()),
            processors=lambda: self.processors,
            make_connection=lambda sock, info: info.connection_id,  # type: ignore[arg-type, return-value]
            next_connection_id=lambda: 0,
            throttled_log=LogThrottle(logging.getLogger("accepting"), ManualClock()),
        )
        self.sock.close()

    async def give(self, connection: Any) -> None:
        await self.acceptor._hand_over(connection)

    def depths(self) -> list[int]:
        return [processor.new_connections.statistics().current_buffer_used for processor in self.processors]


async def test_connections_are_dealt_out_in_turn():
    fake = FakeConnections(20, 20, 20)
    for number in range(30):
        await fake.give(number)
    assert fake.depths() == [10, 10, 10]


async def test_a_processor_whose_inlet_is_full_is_skipped():
    fake = FakeConnections(20, 2, 20)
    for number in range(20):
        await fake.give(number)
    assert fake.depths()[1] == 2
    assert sum(fake.depths()) == 20


async def test_when_all_are_full_the_acceptor_waits_for_the_last(nursery):
    fake = FakeConnections(1, 1)
    for number in range(2):
        await fake.give(number)
    nursery.start_soon(fake.give, "waits")
    await wait_all_tasks_blocked()
    waiting = [processor.new_connections.statistics().tasks_waiting_send for processor in fake.processors]
    assert sorted(waiting) == [0, 1]
    fake.processors[waiting.index(1)].arrivals.receive_nowait()
    await wait_all_tasks_blocked()
    assert fake.depths() == [1, 1]


async def test_a_processor_that_retires_meanwhile_is_not_waited_for(nursery):
    fake = FakeConnections(0)
    nursery.start_soon(fake.give, "connection")
    await wait_all_tasks_blocked()
    retired = fake.processors[0]
    fake.processors[:] = [FakeProcessor(1)]
    retired.new_connections.close()
    await wait_all_tasks_blocked()
    assert fake.depths() == [1]


async def test_an_acceptor_that_is_cancelled_leaves_what_it_has_handed_over():
    fake = FakeConnections(1, 1)
    with (
        listen(LISTENER, SocketServerConfig(), RealNetwork()) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, address = listening.accept()
        with trio.CancelScope() as scope:
            # Just before the connection is put into a channel with room, which waits for nothing.
            fake.acceptor.make_connection = lambda sock, info: scope.cancel()  # type: ignore[assignment, return-value]
            await fake.acceptor._admit(accepted, address)
        assert scope.cancelled_caught
        assert sum(fake.depths()) == 1
        assert fake.acceptor.quotas.total == 1
        assert accepted.fileno() >= 0
        accepted.close()


class Failing:
    """An ``accept`` that fails a number of times first."""

    def __init__(self, number: int, times: int) -> None:
        self.number = number
        self.times = times

    def __call__(self, sock: socket.socket) -> Any:
        if self.times:
            self.times -= 1
            raise OSError(self.number, "no")
        return sock.accept()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS])
async def test_an_outage_of_descriptors_or_memory_is_survived_with_one_line(serving, caplog, number):
    caplog.set_level(logging.INFO)
    async with serving(accept=Failing(number, 3)) as harness:
        client = await harness.connect()
        assert await client.ask(1, b"after all") == b"after all"
    lines = [record.getMessage() for record in caplog.records if "accepting on" in record.getMessage()]
    assert ["pauses" in line for line in lines] == [True, False]


async def test_at_the_limit_each_connection_that_closes_lets_one_in_without_a_line(serving, caplog):
    caplog.set_level(logging.INFO)
    failing = Failing(errno.EMFILE, 0)
    async with serving(accept=failing) as harness:
        for number in range(4):
            failing.times = 1
            assert await (await harness.connect()).ask(number, b"let in") == b"let in"
    lines = [record.getMessage() for record in caplog.records if "accepting on" in record.getMessage()]
    assert ["pauses" in line for line in lines] == [True, False]


async def test_a_connection_lost_before_it_was_accepted_is_nothing(serving, caplog):
    async with serving(accept=Failing(errno.ECONNABORTED, 5)) as harness:
        client = await harness.connect()
        assert await client.ask(1, b"fine") == b"fine"
    assert not caplog.records


async def test_a_fourth_connection_from_one_address_is_closed_at_once(serving, caplog):
    async with serving(max_connections_per_ip=3) as harness:
        clients = [await harness.connect() for _ in range(3)]
        for client in clients:
            await client.ask(1)
        for _ in range(5):
            assert await (await harness.connect()).is_closed()
        assert harness.server.statistics().connections_rejected == {"max.connections.per.ip": 5}
        for client in clients:
            await client.ask(2)
    assert len(caplog.records) == 1


async def test_a_connection_beyond_max_connections_waits_until_one_closes(serving):
    async with serving(max_connections=2) as harness:
        first, second = await harness.connect(), await harness.connect()
        await first.ask(1)
        await second.ask(1)
        third = await harness.connect()
        await third.send(7, b"waiting")
        await second.ask(2)
        assert harness.server.statistics().connections == 2
        await first.stream.aclose()
        assert await third.receive() == (7, b"waiting")


async def test_options_of_sockets_are_set(serving):
    async with serving(socket_send_buffer_bytes=-1, socket_receive_buffer_bytes=-1) as harness:
        client = await harness.connect()
        await client.ask(1)
        [connection] = harness.server.connections()
        assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.info.peer_host == connection.info.local_host == "127.0.0.1"
        assert connection.info.local_port == harness.port


async def test_the_send_buffer_of_a_socket_is_bounded_by_default(serving):
    async with serving() as harness:
        client = await harness.connect()
        await client.ask(1)
        [connection] = harness.server.connections()
        # Linux doubles what is asked for, which counts its own bookkeeping, unless net.core.wmem_max is less.
        assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * 256 * 1024


def test_a_taken_port_is_reported():
    with listen(LISTENER, SocketServerConfig(), RealNetwork()) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen(Listener("PLAINTEXT", "127.0.0.1", port), SocketServerConfig(), RealNetwork())
