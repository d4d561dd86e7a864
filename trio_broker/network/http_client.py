"""One HTTP request to a server that need not be a friend: a POST of some JSON, or a GET.

It takes a bounded time and memory whatever the server does: hang, refuse, send without an end, or answer a byte at a
time. Redirects are not followed, so a request goes nowhere but where the setting says. The connection is used once:
requests are minutes apart.

HTTP is h11's, which hypercorn brings, and TLS is Trio's, with certificates checked against the system's authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar

import attrs
import h11
import trio

from trio_broker.config.alert_config import HttpAddress
from trio_broker.runtime.network import Connect
from trio_broker.runtime.workers import Workers

T = TypeVar("T")

Read: TypeAlias = "Callable[[_Answer], Awaitable[T]]"
"""Reads as much of an answer as is wanted, and returns what it is."""

TIMEOUT_SECONDS = 10.0
"""From the look-up of the name to the status, or to the end of what was asked for. A receiver that takes longer does so
when it is needed most."""

BODY_SECONDS = 1.0
"""How long the rest of an answer is read after its status, which is all that counts: so that a receiver which writes a
short body does not see a reset."""

MAX_ANSWER_BYTES = 16_384
"""What is read of the answer to a POST at most: a status, its headers and a word or two."""

RECEIVED_BYTES = 4_096
"""Of one read."""


class HttpError(Exception):
    """The server did not do it. The text says why in a few words, and nothing of what was sent or received."""


async def post(
    address: HttpAddress, headers: Mapping[str, str], body: bytes, *, connect: Connect, workers: Workers
) -> None:
    """Send ``body`` to ``address``.

    Raises:
        HttpError: it was not answered with a 2xx status in time.
    """
    own = {"Content-Length": f"{len(body)}"}
    request = _request(address, "POST", own | dict(headers), body)
    await _exchange(address, request, _read_status, connect, workers)


async def get(address: HttpAddress, *, connect: Connect, workers: Workers, max_bytes: int) -> bytes:
    """Return what ``address`` has.

    Raises:
        HttpError: it was not answered with a 2xx status, or not with at most ``max_bytes`` bytes, in time.
    """
    request = _request(address, "GET", {"Accept": "application/json"}, b"")
    return await _exchange(address, request, partial(_read_body, max_bytes=max_bytes), connect, workers)


async def _exchange(address: HttpAddress, request: _Request, read: Read[T], connect: Connect, workers: Workers) -> T:
    """Return what ``read`` makes of the answer."""
    try:
        with trio.fail_after(TIMEOUT_SECONDS):
            return await _exchanged(address, request, read, connect, workers)
    except trio.TooSlowError:
        raise HttpError(f"no answer within {TIMEOUT_SECONDS:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise HttpError(f"the certificate is not trusted: {error.verify_message}") from None
    except trio.BrokenResourceError as error:
        is_tls = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        raise HttpError("the certificate is not trusted" if is_tls else "the connection broke") from None
    except OSError as error:
        raise HttpError(f"cannot connect: {error.strerror or 'nobody listens there'}") from None
    except h11.RemoteProtocolError:
        raise HttpError("the answer is not HTTP, or too long") from None


async def _exchanged(address: HttpAddress, request: _Request, read: Read[T], connect: Connect, workers: Workers) -> T:
    # In a thread: to read the system's authorities takes tens of milliseconds. Each time, since they are renewed.
    context = await workers.run(ssl.create_default_context) if address.is_tls else None
    stream = await connect(address.host, address.port)
    if context is not None:
        # Many servers end the connection without TLS's own end, which no answer here depends on.
        stream = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
    try:
        for data in request.data:
            await stream.send_all(data)
        return await read(_Answer(stream, request.connection))
    finally:
        # Not the polite end of TLS, which waits for the other side.
        await trio.aclose_forcefully(stream)


async def _read_status(answer: _Answer) -> None:
    await answer.require_success(MAX_ANSWER_BYTES)
    with trio.move_on_after(BODY_SECONDS):
        await answer.read_rest(MAX_ANSWER_BYTES)


async def _read_body(answer: _Answer, max_bytes: int) -> bytes:
    await answer.require_success(MAX_ANSWER_BYTES)
    return await answer.body(MAX_ANSWER_BYTES + max_bytes)


@attrs.frozen
class _Request:
    """A request in bytes, and HTTP's state behind it."""

    connection: h11.Connection
    data: Sequence[bytes]


def _request(address: HttpAddress, method: str, headers: Mapping[str, str], body: bytes) -> _Request:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER_BYTES)
    own = {"Host": address.host_header, "Connection": "close"}
    request = h11.Request(method=method, target=address.target, headers=list((own | dict(headers)).items()))
    data = [connection.send(each) or b"" for each in (request, h11.Data(data=body), h11.EndOfMessage())]
    return _Request(connection, [each for each in data if each])


class _Answer:
    """What comes back on ``stream``, of which so many bytes are read as each method is given."""

    def __init__(self, stream: trio.abc.Stream, connection: h11.Connection) -> None:
        self._stream = stream
        self._connection = connection
        self._received = 0

    async def require_success(self, max_bytes: int) -> None:
        """Read until the status of the final answer is there.

        Raises:
            HttpError: it is none of success.
            h11.RemoteProtocolError: it is not HTTP, or does not come within the bound.
        """
        while not isinstance(event := await self._next_event(max_bytes), h11.Response):
            pass
        status = event.status_code
        if 300 <= status < 400:
            raise HttpError(f"answered with status {status}: redirects are not followed")
        if not 200 <= status < 300:
            raise HttpError(f"answered with status {status}")

    async def body(self, max_bytes: int) -> bytes:
        """Return the rest of the answer.

        Raises:
            h11.RemoteProtocolError: it is not HTTP, or does not end within the bound.
        """
        body = bytearray()
        while not isinstance(event := await self._next_event(max_bytes), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                body += event.data
        return bytes(body)

    async def read_rest(self, max_bytes: int) -> None:
        """Read on until the end or the bound, for the other side's sake."""
        try:
            while await self._receive(max_bytes):
                pass
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            pass

    async def _next_event(self, max_bytes: int) -> object:
        while (event := self._connection.next_event()) is h11.NEED_DATA:
            if self._received >= max_bytes:
                raise h11.RemoteProtocolError("too long")
            # The end of the connection is something that HTTP wants to know.
            await self._receive(max_bytes)
        if isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            raise h11.RemoteProtocolError("it ends too early")
        return event

    async def _receive(self, max_bytes: int) -> bool:
        """Take what has come; return whether there may be more that is to be read."""
        if self._received >= max_bytes:
            return False
        data = await self._stream.receive_some(RECEIVED_BYTES)
        self._received += len(data)
        self._connection.receive_data(bytes(data))
        return bool(data)
