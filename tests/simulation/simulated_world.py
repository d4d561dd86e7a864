"""What the clients of a simulation share: the network with its faults, the history, the trace, and chance.

Everything is drawn from one seed. The trace is a running checksum over what happened in which order; two runs from one
seed have the same.
"""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import attrs
import trio

from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader, read_request_header, read_response_header, request_header
from tests.checking.history import Event, Op, Outcome
from tests.handlers.handler_client import joined
from tests.simulation.simulated_machine import Machine
from trio_broker.network.handler_pool import DelayedAnswer
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest, Reply

REQUEST_SECONDS = 40.0
"""Virtual time after which a client gives a request up, longer than any wait that it asks the broker for."""

TICK_SECONDS = 1e-9
"""Added to each reading of the clock, so that two events are never at the same time."""


LATE_SHARE = 0.06
"""Of the requests of a ``DirectConnection`` that may come late."""

LATE_SECONDS = 2.0
"""How much later than the end of its connection a late request comes, on the average."""


class ConnectionLost(Exception):
    """The connection ended, and what became of the request is unknown."""


class Connection(Protocol):
    """A client's way to the broker. With faults, some requests or their responses are lost."""

    async def ask(self, request: Any, version: int, *, may_be_late: bool = False) -> Any:
        """Return the broker's response. With ``may_be_late`` the request may come long after its connection has ended.

        Raises:
            ConnectionLost: it may have been carried out or not.
        """
        ...

    async def ask_together(self, requests: Sequence[Any], version: int) -> list[Any]:
        """Send ``requests`` without waiting for a response; return those that come, in the order of the requests:
        fewer where the connection ends before, and what became of the others is unknown."""
        ...

    def close(self) -> None:
        """Close the connection, if there is one; the next request opens another."""
        ...


@attrs.define
class Draft:
    """An event under way: its outcome, and what is known of it besides."""

    outcome: Outcome = Outcome.OK
    fields: dict[str, Any] = attrs.field(factory=dict)

    def failed(self, error: object, outcome: Outcome = Outcome.INFO) -> None:
        self.outcome = outcome
        self.fields["error"] = str(error)


@attrs.define(eq=False)
class World:
    """``faults`` says whether connections break now; ``new_connection`` makes one for the client of a name;
    ``loses_log`` says whether a power cut may take what was acknowledged.
    """

    machine: Machine
    random: random.Random
    new_connection: Callable[[World, str], Connection]
    loses_log: bool = False
    faults: bool = True
    pause_seconds: float = 0.25
    """How long a producer pauses on the average."""
    history: list[Event] = attrs.field(factory=list)
    latest: dict[str, tuple[float, Any]] = attrs.field(factory=dict)
    """The latest answer that each client got, and when, for what is said of a simulation that does not end."""
    trace: int = 0
    requests: int = 0
    _values: int = 0
    _ticks: int = 0

    def connection(self, name: str) -> Connection:
        """A connection for the client that is called ``name``."""
        return self.new_connection(self, name)

    def now(self) -> float:
        """The virtual time, a little later than at the last call."""
        self._ticks += 1
        return trio.current_time() + self._ticks * TICK_SECONDS

    async def pause(self) -> None:
        """Let a producer pause."""
        await trio.sleep(self.random.expovariate(1 / self.pause_seconds))

    def note(self, *facts: object) -> None:
        """Add ``facts`` to the trace."""
        self.trace = zlib.crc32(repr(facts).encode(), self.trace)

    def response(self, name: str, request: Any, version: int, answer: bytes) -> Any:
        """What the client called ``name`` reads in ``answer``."""
        self.note(name, round(trio.current_time(), 6), zlib.crc32(answer))
        _, position = read_response_header(request.API_KEY, version, answer)
        response, end = decode(type(request).RESPONSE, version, answer, position)
        assert end == len(answer), f"{len(answer) - end} bytes are left over"
        return response

    def new_value(self) -> int:
        """A value for a record, which no other has."""
        self._values += 1
        return self._values

    @contextmanager
    def doing(self, process: str, op: Op, group: str = "", **fields: Any) -> Iterator[Draft]:
        """Record what the block does; an exception makes its outcome unknown, and goes on."""
        invoked, draft = self.now(), Draft()
        try:
            yield draft
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            known = {"group": group, **fields, **draft.fields}
            self.history.append(Event(process, op, invoked, self.now(), draft.outcome, **known))
            self.note(process, op, draft.outcome, sorted(known.items(), key=str))

    def tell(self, process: str, op: Op, group: str = "", **fields: Any) -> None:
        """Record what took no time."""
        with self.doing(process, op, group, **fields):
            pass


@attrs.define(eq=False)
class FaultyConnection:
    """A connection through the network. Frames come late, in pieces, or not at all."""

    world: World
    name: str
    _stream: trio.SocketStream | None = None

    async def ask(self, request: Any, version: int, *, may_be_late: bool = False) -> Any:
        if responses := await self.ask_together([request], version):
            return responses[0]
        raise ConnectionLost(f"{type(request).__name__}: no response")

    async def ask_together(self, requests: Sequence[Any], version: int) -> list[Any]:
        self.world.requests += len(requests)
        responses: list[Any] = []
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                for request in requests:
                    await self._send(request, version)
                for request in requests:
                    responses.append(await self._receive(request, version))
                    self.world.latest[self.name] = round(trio.current_time(), 6), responses[-1]
        except (OSError, EOFError, trio.BrokenResourceError) as error:
            self.world.note(self.name, "connection lost", type(error).__name__)
        finally:
            # Also after a cancellation: the stream would be in the middle of a frame.
            if self._stream is not None and len(responses) < len(requests):
                self.close()
        return responses

    async def _send(self, request: Any, version: int) -> None:
        chance, machine = self.world.random, self.world.machine
        await trio.sleep(chance.expovariate(1000))
        if self._stream is None:
            sock = machine.host.network.client_socket(machine.host.name, machine.port)
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        stream = self._stream
        body = request_bytes(request, version, self.name)
        frame = struct.pack(">i", len(body)) + body
        fate = chance.random() if self.world.faults else 1.0
        if fate < 0.01:
            # Cut in the middle of the frame: it was never a request.
            await stream.send_all(frame[: chance.randrange(len(frame))])
            raise EOFError("cut while sending")
        if fate < 0.02:
            await stream.send_all(frame)
            await trio.sleep(chance.expovariate(100))
            raise EOFError("cut after sending")
        if fate < 0.1:
            middle = chance.randrange(1, len(frame))
            await stream.send_all(frame[:middle])
            await trio.sleep(chance.expovariate(100))
            frame = frame[middle:]
        await stream.send_all(frame)

    async def _receive(self, request: Any, version: int) -> Any:
        assert self._stream is not None, "a request was sent"
        (size,) = struct.unpack(">i", await self._exactly(self._stream, 4))
        answer = await self._exactly(self._stream, size)
        return self.world.response(self.name, request, version, answer)

    async def _exactly(self, stream: trio.SocketStream, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = await stream.receive_some(count - len(data))
            if not chunk:
                raise EOFError("closed by the broker")
            data += chunk
        return data

    def close(self) -> None:
        """Close the connection, if there is one; the next request opens another."""
        if self._stream is not None:
            self._stream.socket.close()
            self._stream = None


def request_bytes(request: Any, version: int, client_id: str) -> bytes:
    """The request with its header, as it stands in a frame."""
    header = request_header(RequestHeader(request.API_KEY, version, 7, client_id))
    return header + joined(encode(request, version))


@attrs.define(eq=False)
class DirectConnection:
    """A connection without a network: the bytes of a request go to the broker's handlers, in a task of the broker.

    What a network may do to a request is done to it all the same: it or its response is lost, or it comes late.
    """

    world: World
    name: str

    async def ask(
        self, request: Any, version: int, *, may_be_late: bool = False, lets_next: trio.Event | None = None
    ) -> Any:
        chance, machine = self.world.random, self.world.machine
        self.world.requests += 1
        await trio.sleep(chance.expovariate(1000))
        wire = request_bytes(request, version, self.name)
        fate = chance.random() if self.world.faults else 1.0
        if may_be_late and fate < LATE_SHARE:
            machine.start_soon(self._deliver, wire, chance.expovariate(1 / LATE_SECONDS))
            raise ConnectionLost(f"{type(request).__name__}: late")
        if fate < 0.07:
            raise ConnectionLost(f"{type(request).__name__}: cut while sending")
        if fate < 0.08:
            machine.start_soon(self._deliver, wire, 0.0)
            raise ConnectionLost(f"{type(request).__name__}: cut after sending")
        with trio.move_on_after(REQUEST_SECONDS):
            answer = await self._deliver(wire, lets_next=lets_next)
            if answer is None:
                raise ConnectionLost(f"{type(request).__name__}: no broker")
            response = self.world.response(self.name, request, version, answer)
            self.world.latest[self.name] = round(trio.current_time(), 6), response
            return response
        raise ConnectionLost(f"{type(request).__name__}: no response")

    async def ask_together(self, requests: Sequence[Any], version: int) -> list[Any]:
        return await each_behind_another(self.ask, requests, version)

    async def _deliver(self, wire: bytes, seconds: float = 0.0, lets_next: trio.Event | None = None) -> bytes | None:
        """Hand a request over after ``seconds``; return the answer, None without a broker that lives long enough."""
        await trio.sleep(seconds)
        header, position = read_request_header(wire)
        request = QueuedRequest(header, memoryview(wire)[position:], CONNECTION, reply_target=DirectTarget(lets_next))
        return await self.world.machine.in_broker(lambda broker: answered(broker.dispatcher.answer(request)))

    def close(self) -> None:
        """There is nothing to close."""


@attrs.define(eq=False)
class DirectTarget:
    """Notes that a request lets the next one of its connection begin."""

    lets_next: trio.Event | None
    is_closed: bool = False
    has_more: bool = False

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        """The answer of the dispatcher is returned."""

    def unmute(self, request: QueuedRequest) -> None:
        if self.lets_next is not None:
            self.lets_next.set()


async def each_behind_another(ask: Callable[..., Awaitable[Any]], requests: Sequence[Any], version: int) -> list[Any]:
    """``ask`` each request when the one before is answered, or lets it begin, as a connection without a Processor has
    it; returns as ``Connection.ask_together``."""
    responses: dict[int, Any] = {}
    is_lost = False

    async def ask_one(index: int, lets_next: trio.Event) -> None:
        nonlocal is_lost
        try:
            responses[index] = await ask(requests[index], version, lets_next=lets_next)
        except ConnectionLost:
            is_lost = True
        lets_next.set()

    async with trio.open_nursery() as nursery:
        for index in range(len(requests)):
            # Nothing comes through behind what was lost: that would be a gap in one connection.
            if is_lost:
                break
            lets_next = trio.Event()
            nursery.start_soon(ask_one, index, lets_next)
            await lets_next.wait()
    return [responses[index] for index in itertools.takewhile(responses.__contains__, range(len(requests)))]


CONNECTION = ConnectionInfo(1, "PLAINTEXT", "10.0.0.2", 50_000, "127.0.0.1", 9092)


async def answered(answer: Any) -> bytes:
    """The bytes of an answer, once it is there.

    Raises:
        CloseConnection: there is none.
    """
    while not isinstance(answer, list):
        if isinstance(answer, DelayedAnswer):
            complete = trio.Event()
            answer.when_complete(complete.set)
            await complete.wait()
            answer = answer.resume()
        else:
            answer = await answer
    return joined(answer)
