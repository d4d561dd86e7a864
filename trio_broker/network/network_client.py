"""The client of one other server of Kafka's protocol: the requests of this broker to another one.

One connection for all callers. It is made when something is to be sent, begins with the agreement on versions, and is
made again after a failure, each time after a longer pause. Several requests are in flight at a time; each caller waits
for its own answer.

    send ──▶ _unsent ── transmitter ──▶ _sent ── receiver ──▶ the caller

A request ends in one of three ways. It is answered; it is certain that it was not sent (``RequestNotSent``); or it is
unknown whether the other broker has carried it out (``ResponseLost``), and the caller has to find out or send what may
come twice. One that is not answered in time takes the connection with it, and with that all that is in flight: answers
come in order, so nothing behind it would be answered earlier, and a broker that hangs is better asked on a new one. A
caller that was cancelled leaves its request in flight, and its answer is dropped.

Source: Kafka's NetworkClient, InFlightRequests and InterBrokerSendThread.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from kafka_wire.apis import api_name
from kafka_wire.client_connection import ApiNotServed, ClientConnection, ToSend
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.frame_receiver import FrameReceiver
from kafka_wire.framing import MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES
from kafka_wire.schema import Request
from trio_broker import SOFTWARE_NAME, __version__
from trio_broker.common.host_port import host_port
from trio_broker.concurrency.barrier import Backoff
from trio_broker.config.errors import ConfigError
from trio_broker.network.errors import RequestFailed, RequestNotSent, ResponseLost
from trio_broker.runtime.network import Network
from trio_broker.runtime.timeouts import CONNECT_SECONDS
from trio_broker.security.broker_security import BrokerSecurity
from trio_broker.security.tls_failure import failure_of_server, is_failure

log = logging.getLogger(__name__)

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

FIRST_PAUSE_SECONDS: Final = 0.05
"""Before the second attempt to connect, Kafka's ``reconnect.backoff.ms``: a broker that restarts is back in seconds."""

LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two attempts, Kafka's ``reconnect.backoff.max.ms``. What a follower is behind grows while it does not ask."""

RECEIVE_BYTES: Final = 64 * 1024
"""Received at a time; more would be allocated for each answer, and most are small. A large one is received into a
buffer of its own."""

SESSION_ENDS: Final = "the login ends soon, and another one begins"


@attrs.define(eq=False)
class ClientRequest:
    """A request of one caller, until it is answered or has failed; ``outcome`` is then the response or the error."""

    message: Request[Any]
    completed: trio.Event = attrs.field(factory=trio.Event)
    outcome: Any = None

    def complete(self, outcome: Any) -> None:
        self.outcome = outcome
        self.completed.set()

    @property
    def name(self) -> str:
        return api_name(self.message.API_KEY)


@attrs.define(eq=False)
class NetworkClient:
    """``run`` is a task of the owner; nothing is sent without it, and all that waits fails at its end. ``client_id`` is
    in every request; ``security`` is None where connections are plain and without a login."""

    network: Network
    host: str
    port: int
    client_id: str
    security: BrokerSecurity | None = None
    _unsent: deque[ClientRequest] = attrs.field(factory=deque, init=False)
    _sent: deque[ClientRequest] = attrs.field(factory=deque, init=False)
    """The oldest first, as in the ``in_flight`` of the connection."""
    _waiting: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set while something is unsent."""
    _connection: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Of what is done with the present connection."""
    _end: str = attrs.field(default="", init=False)
    """Why the connection ended."""
    _session_ends: float = attrs.field(default=math.inf, init=False)
    """When the connection is to be replaced, of Trio's clock: its login has an end."""
    _is_reachable: bool = attrs.field(default=True, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def __str__(self) -> str:
        return host_port(self.host, self.port)

    # --- For callers ---

    async def send(self, message: Request[ResponseT], *, timeout_seconds: float) -> ResponseT:
        """Send a request in the newest version that both sides have, and return its response.

        Raises:
            RequestNotSent: there was no connection in time, the attempt to make one failed, the other broker does not
                have the API, or a value does not fit into the request.
            ResponseLost: it was sent, and the connection ended or the time was over before the answer.
        """
        if self._is_closed:
            raise RequestNotSent(f"{self}: the client is closed")
        request = ClientRequest(message)
        self._unsent.append(request)
        self._waiting.set()
        try:
            with trio.move_on_after(timeout_seconds):
                await request.completed.wait()
        finally:
            was_unsent = not request.completed.is_set() and request in self._unsent
            if was_unsent:
                self._unsent.remove(request)
        if not request.completed.is_set():
            if was_unsent:
                raise RequestNotSent(f"{self}: no connection for {request.name} within {timeout_seconds:g} s")
            self._drop(f"{request.name} was not answered within {timeout_seconds:g} s")
            raise ResponseLost(f"{self}: {self._end}")
        if isinstance(request.outcome, RequestFailed):
            raise request.outcome
        response: ResponseT = request.outcome
        return response

    # --- The task ---

    async def run(self) -> None:
        """Connect whenever something is to be sent, until cancelled."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self._is_closed = False
        try:
            while True:
                await self._until_unsent()
                await self._connect_and_converse()
                await trio.sleep(backoff.next_pause())
        finally:
            self._is_closed = True
            self._fail(self._sent, ResponseLost, "the client was closed before the answer")
            self._fail(self._unsent, RequestNotSent, "the client was closed")

    async def _connect_and_converse(self) -> None:
        self._end = ""
        with trio.CancelScope() as self._connection:
            try:
                stream = await self.network.connect(self.host, self.port)
            except OSError as error:
                self._note_unreachable(f"cannot connect: {error.strerror or error}")
                return
            # Also where the agreement on versions is cancelled.
            async with stream:
                new_sasl_client = None if self.security is None else self.security.new_sasl_client
                protocol = ClientConnection(self.client_id, SOFTWARE_NAME, __version__, new_sasl_client)
                receiver = FrameReceiver(MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES)
                secured: trio.abc.Stream | None = None
                with trio.move_on_after(CONNECT_SECONDS):
                    secured = await self._while_connected(partial(self._open, stream, protocol, receiver))
                if secured is None:
                    self._note_unreachable(self._end or f"ApiVersions was not answered within {CONNECT_SECONDS:g} s")
                    return
                self._note_reachable()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._while_connected, partial(self._transmit, secured, protocol))
                    await self._while_connected(partial(self._receive, secured, protocol, receiver))
        self._fail(self._sent, ResponseLost, self._end)

    async def _while_connected(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Await ``work``; whatever ends the connection ends all that is done with it, and None is returned."""
        try:
            return await work()
        except ConfigError as error:
            self._drop(f"this broker's own settings prevent it: {error}")
        except KafkaError as error:
            self._drop(f"it refuses with {error.code.name}{f': {error}' if str(error) else ''}")
        except ApiNotServed as error:
            self._drop(f"there is no login: it {error}")
        except WireError as error:
            self._drop(f"the answer is not Kafka's: {error}")
        except (OSError, trio.BrokenResourceError) as error:
            cause = error.__cause__ or error
            if isinstance(cause, OSError) and is_failure(cause):
                self._drop(f"no TLS: {failure_of_server(cause)}")
            else:
                self._drop(f"the connection broke: {cause}")
        return None

    async def _open(
        self, stream: trio.abc.Stream, protocol: ClientConnection, receiver: FrameReceiver
    ) -> trio.abc.Stream:
        """Shake hands, agree on versions, and log in, as far as that is asked for; return the stream for requests."""
        if self.security is not None and self.security.new_context is not None:
            context = await self.security.workers.run(self.security.new_context)
            # Frames have a size, so an end without TLS's own word for it cuts nothing off.
            stream = trio.SSLStream(stream, context, server_hostname=self.host, https_compatible=True)
            await stream.do_handshake()
        to_send: ToSend | None = protocol.begin()
        while to_send is not None:
            await stream.send_all(b"".join(to_send))
            answer = await self._next_frame(stream, receiver)
            if self.security is None:
                to_send = protocol.receive_opening(answer)
            else:
                to_send = await self.security.workers.run(partial(protocol.receive_opening, answer))
        self._session_ends = trio.current_time() + protocol.login_seconds
        return stream

    async def _transmit(self, stream: trio.abc.Stream, protocol: ClientConnection) -> None:
        while True:
            await self._until_unsent()
            if trio.current_time() >= self._session_ends:
                if self._sent:
                    await trio.sleep_forever()  # ``_receive`` ends the connection behind the last answer.
                self._drop(SESSION_ENDS)
                await trio.lowlevel.checkpoint()
            # Together: what waits while the socket takes no more goes as one.
            to_send: ToSend = []
            while self._unsent:
                request = self._unsent.popleft()
                try:
                    version = protocol.version_for(type(request.message))
                    to_send += protocol.request(request.message, version)[1]
                except ApiNotServed as error:
                    request.complete(RequestNotSent(f"{self} {error}"))
                except ValueError as error:
                    request.complete(RequestNotSent(f"{self} cannot be asked for {request.name} so: {error}"))
                else:
                    self._sent.append(request)
            await stream.send_all(b"".join(to_send))

    async def _receive(self, stream: trio.abc.Stream, protocol: ClientConnection, receiver: FrameReceiver) -> None:
        while True:
            response = protocol.receive_response(await self._next_frame(stream, receiver))[1]
            self._sent.popleft().complete(response)
            if not self._sent and trio.current_time() >= self._session_ends:
                self._drop(SESSION_ENDS)

    async def _next_frame(self, stream: trio.abc.Stream, receiver: FrameReceiver) -> memoryview:
        """Return the next frame.

        Raises:
            WireError: its size is none of Kafka's.
            OSError, trio.BrokenResourceError: the connection has ended.
        """
        while (frame := receiver.next_frame()) is None:
            if (buffer := receiver.receive_buffer()) is not None:
                count = await receive_into(stream, buffer)
                receiver.bytes_received(count)
            else:
                data = await stream.receive_some(RECEIVE_BYTES)
                count = len(data)
                receiver.receive_data(memoryview(data))
            if not count:
                raise ConnectionError("the other side closed it")
        return frame

    async def _until_unsent(self) -> None:
        while not self._unsent:
            self._waiting = trio.Event()
            await self._waiting.wait()

    # --- Ends ---

    def _drop(self, reason: str) -> None:
        """End the connection, for the first reason."""
        self._end = self._end or reason
        self._connection.cancel()

    def _fail(self, requests: deque[ClientRequest], kind: type[RequestFailed], reason: str) -> None:
        while requests:
            # Each its own: an exception that is raised twice collects the tracebacks of both.
            requests.popleft().complete(kind(f"{self}: {reason}"))

    def _note_unreachable(self, reason: str) -> None:
        if self._is_reachable:
            log.warning("%s: %s; it is tried again while it is needed", self, reason)
        self._is_reachable = False
        self._fail(self._unsent, RequestNotSent, reason)

    def _note_reachable(self) -> None:
        if not self._is_reachable:
            log.info("%s: connected again", self)
        self._is_reachable = True


async def receive_into(stream: trio.abc.Stream, buffer: memoryview) -> int:
    """Receive what there is into ``buffer``, as much as it has room for; return how much that was, 0 at the end.

    Each receive is a pass of the event loop, so what a leader sends by the mebibyte is not taken in small pieces.

    Raises:
        OSError, trio.BrokenResourceError: the connection has ended.
    """
    if isinstance(stream, trio.SocketStream):
        return await stream.socket.recv_into(buffer)
    # TLS opens a record of 16 KiB at a time, whatever it is given to fill.
    data = await stream.receive_some(min(len(buffer), RECEIVE_BYTES))
    buffer[: len(data)] = data
    return len(data)
