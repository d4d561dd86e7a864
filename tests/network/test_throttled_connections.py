"""A client above a quota is answered and then not read for a time."""

from __future__ import annotations

import attrs
import trio

from trio_broker.network.connection import ConnectionState

FOREVER_SECONDS = 1e6


class Throttling:
    """Answers at once; each request with a body is throttled for so many seconds."""

    def __init__(self):
        self.began = []

    async def __call__(self, request):
        self.began.append(trio.current_time())
        if request.body:
            request.throttle_seconds = float(bytes(request.body))
        return [request.header.correlation_id.to_bytes(4, "big")]


def states(harness):
    return [each.state for processor in harness.server._active for each in processor.connections.values()]


async def test_the_next_request_is_read_when_the_time_is_over(serving):
    handle = Throttling()
    async with serving(handle) as harness:
        client = await harness.connect()
        await client.send(1, b"0.05")
        await client.send(2)
        assert [(await client.receive())[0] for _ in range(2)] == [1, 2]
        assert handle.began[1] - handle.began[0] >= 0.05


async def test_others_are_served_meanwhile_and_it_moves_with_its_wait(serving):
    async with serving(Throttling(), num_network_threads=2) as harness:
        greedy, other = await harness.connect(), await harness.connect()
        await greedy.ask(1, str(FOREVER_SECONDS).encode())
        await greedy.send(2)
        for number in range(3):
            await other.ask(number)
        harness.server.reconfigure(attrs.evolve(harness.config, num_network_threads=1))
        await harness.until(lambda: len(states(harness)) == 2)
        await other.ask(4)
        assert states(harness).count(ConnectionState.THROTTLED) == 1


async def test_a_throttled_connection_whose_client_goes_is_closed(serving):
    async with serving(Throttling()) as harness:
        client = await harness.connect()
        await client.ask(1, str(FOREVER_SECONDS).encode())
        client.stream.socket.close()
        harness.clients.clear()

        def is_gone():
            # The sweep has to see twice that nothing moves.
            harness.clock.advance(1)
            return not states(harness)

        await harness.until(is_gone)
