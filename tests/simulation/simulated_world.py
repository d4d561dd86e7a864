"""What the clients of a simulation share: the network with its faults, the history, the trace, and chance.

Everything is drawn from one seed. The trace is a running checksum over what happened in which order; two runs from one
seed have the same.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import trio

from kafka_wire.codec import decode, encode
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from tests.checking.history import Event, Op, Outcome
from tests.handlers.handler_client import joined
from trio_broker.runtime.simulated_network import SimulatedNetwork

REQUEST_SECONDS = 40.0
"""Virtual time after which a client gives a request up, longer than any wait that it asks the broker for."""

TICK_SECONDS = 1e-9
"""Added to each reading of the clock, so that two events are never at the same time."""


class ConnectionLost(Exception):
    """The connection ended, and what became of the request is unknown."""


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
    """``faults`` says whether connections break now."""

    network: SimulatedNetwork
    random: random.Random
    port: int
    faults: bool = True
    history: list[Event] = attrs.field(factory=list)
    latest: dict[str, tuple[float, Any]] = attrs.field(factory=dict)
    """The latest answer that each client got, and when, for what is said of a simulation that does not end."""
    trace: int = 0
    requests: int = 0
    _values: int = 0
    _ticks: int = 0

    def now(self) -> float:
        """The virtual time, a little later than at the last call."""
        self._ticks += 1
        return trio.current_time() + self._ticks * TICK_SECONDS

    def note(self, *facts: object) -> None:
        """Add ``facts`` to the trace."""
        self.trace = zlib.crc32(repr(facts).encode(), self.trace)

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
            told = {"group": group, **fields, **draft.fields}
            self.history.append(Event(process, op, invoked, self.now(), draft.outcome, **told))
            self.note(process, op, draft.outcome, sorted(told.items(), key=str))

    def tell(self, process: str, op: Op, group: str = "", **fields: Any) -> None:
        """Record what took no time."""
        with self.doing(process, op, group, **fields):
            pass


@attrs.define(eq=False)
class FaultyConnection:
    """A client's way to the broker, one request at a time. Frames come late, in pieces, or not at all."""

    world: World
    name: str
    _stream: trio.SocketStream | None = None
    _in_frame: bool = False

    async def ask(self, request: Any, version: int) -> Any:
        """Return the broker's response.

        Raises:
            ConnectionLost: it may have been carried out or not.
        """
        self.world.requests += 1
        try:
            with trio.move_on_after(REQUEST_SECONDS):
                response = await self._exchange(request, version)
                self.world.latest[self.name] = round(trio.current_time(), 6), response
                return response
            raise ConnectionLost(f"{type(request).__name__}: no response")
        except (OSError, EOFError, trio.BrokenResourceError) as error:
            raise ConnectionLost(f"{type(request).__name__}: {error!r}") from error
        finally:
            # Also after a cancellation: the stream would be in the middle of a frame.
            if self._stream is not None and self._in_frame:
                self.close()

    async def _exchange(self, request: Any, version: int) -> Any:
        chance = self.world.random
        await trio.sleep(chance.expovariate(1000))
        if self._stream is None:
            sock = self.world.network.connect(self.world.port)
            self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        stream = self._stream
        header = request_header(RequestHeader(request.API_KEY, version, 7, self.name))
        body = header + joined(encode(request, version))
        frame = struct.pack(">i", len(body)) + body
        self._in_frame = True
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
        (size,) = struct.unpack(">i", await self._exactly(stream, 4))
        answer = await self._exactly(stream, size)
        self._in_frame = False
        self.world.note(self.name, round(trio.current_time(), 6), zlib.crc32(answer))
        _, position = read_response_header(request.API_KEY, version, answer)
        response, end = decode(type(request).RESPONSE, version, answer, position)
        assert end == len(answer), f"{len(answer) - end} bytes are left over"
        return response

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
        self._in_frame = False
