"""One HTTP POST of some JSON to a server that need not be a friend.

It takes a bounded time and memory whatever the server does: hang, refuse, send without an end, or answer a byte at a
time. Redirects are not followed, so a request goes nowhere but where the setting says. The connection is used once:
requests are minutes apart.

HTTP is h11's, which hypercorn brings, and TLS is Trio's, with certificates checked against the system's authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence

import h11
import trio

from trio_broker.config.alert_config import HttpAddress
from trio_broker.runtime.network import Connect

TIMEOUT_SECONDS = 10.0
"""From the look-up of the name to the status. A receiver that takes longer does so when it is needed most."""

BODY_SECONDS = 1.0
"""How long the rest of an answer is read after its status, which is all that counts: so that a receiver which writes a
short body does not see a reset."""

MAX_ANSWER_BYTES = 16_384
"""What is read of an answer at most: a status, its headers and a word or two."""

RECEIVED_BYTES = 4_096
"""Of one read."""


class PostError(Exception):
    """The server did not take it. The text says why in a few words, and nothing of what was sent or received."""


async def post(address: HttpAddress, headers: Mapping[str, str], body: bytes, *, connect: Connect) -> None:
    """Send ``body`` to ``address``.

    Raises:
        PostError: it was not answered with a 2xx status in time.
    """
    try:
        with trio.fail_after(TIMEOUT_SECONDS):
            status = await _exchanged(address, headers, body, connect)
    except trio.TooSlowError:
        raise PostError(f"no answer within {TIMEOUT_SECONDS:.0f} s") from None
    except ssl.SSLCertVerificationError as error:
        raise PostError(f"the certificate is not trusted: {error.verify_message}") from None
    except trio.BrokenResourceError as error:
        is_tls = isinstance(error.__cause__, ssl.SSLCertVerificationError)
        raise PostError("the certificate is not trusted" if is_tls else "the connection broke") from None
    except OSError as error:
        raise PostError(f"cannot connect: {error.strerror or 'nobody listens there'}") from None
    except h11.RemoteProtocolError:
        raise PostError("the answer is not HTTP, or too long") from None
    if 300 <= status < 400:
        raise PostError(f"answered with status {status}: redirects are not followed")
    if not 200 <= status < 300:
        raise PostError(f"answered with status {status}")


async def _exchanged(address: HttpAddress, headers: Mapping[str, str], body: bytes, connect: Connect) -> int:
    """The status of the answer."""
    stream = await connect(address.host, address.port)
    if address.is_tls:
        context = ssl.create_default_context()
        # Many servers end the connection without TLS's own end, which no answer here depends on.
        stream = trio.SSLStream(stream, context, server_hostname=address.host, https_compatible=True)
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER_BYTES)
        for data in _request(connection, address, headers, body):
            await stream.send_all(data)
        answer = _Answer(stream, connection)
        status = await answer.status()
        with trio.move_on_after(BODY_SECONDS):
            await answer.read_rest()
        return status
    finally:
        # Not the polite end of TLS, which waits for the other side.
        await trio.aclose_forcefully(stream)


def _request(
    connection: h11.Connection, address: HttpAddress, headers: Mapping[str, str], body: bytes
) -> Sequence[bytes]:
    own = {"Host": address.host_header, "Content-Length": f"{len(body)}", "Connection": "close"}
    request = h11.Request(method="POST", target=address.target, headers=list((own | dict(headers)).items()))
    return [connection.send(request) or b"", connection.send(h11.Data(data=body)) or b""]


class _Answer:
    """What comes back on ``stream``, of which ``MAX_ANSWER_BYTES`` are read."""

    def __init__(self, stream: trio.abc.Stream, connection: h11.Connection) -> None:
        self._stream = stream
        self._connection = connection
        self._received = 0

    async def status(self) -> int:
        """The status of the final answer.

        Raises:
            h11.RemoteProtocolError: it is not HTTP, or does not come within the bound.
        """
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Response):
                return event.status_code
            if event is h11.NEED_DATA and not await self._receive():
                raise h11.RemoteProtocolError("too long")

    async def read_rest(self) -> None:
        """Read on until the end or the bound, for the other side's sake."""
        try:
            while await self._receive():
                pass
        except (h11.RemoteProtocolError, trio.BrokenResourceError):
            pass

    async def _receive(self) -> bool:
        """Take what has come; return whether there may be more that is to be read."""
        if self._received >= MAX_ANSWER_BYTES:
            return False
        data = await self._stream.receive_some(RECEIVED_BYTES)
        self._received += len(data)
        self._connection.receive_data(bytes(data))
        return bool(data)
