"""One gRPC connection on Trio: calls side by side, over any stream.

One task reads and one writes, so a caller that is cancelled leaves the connection whole. When the connection ends, each
call under way ends as unknown.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final

import trio
from h2.exceptions import ProtocolError

from trio_broker.cluster.etcd.errors import EtcdError, EtcdUnavailable, EtcdUnknown
from trio_broker.cluster.etcd.grpc_streams import CallEnded, GrpcStreams
from trio_broker.cluster.etcd.pulse import Pulse
from trio_broker.security.tls_failure import failure_of_server, is_failure

READ_BYTES: Final = 64 * 1024


class Call:
    """A call under way: ``send`` and ``receive`` messages."""

    def __init__(self, connection: GrpcConnection, stream_id: int) -> None:
        self._connection = connection
        self.stream_id = stream_id
        self._messages: list[bytes] = []
        self._ended = False
        self._error: EtcdError | None = None
        self._changed = Pulse()

    def send(self, message: bytes, *, end: bool = False) -> None:
        """Hand a message to the connection; with ``end`` it is the last one."""
        self._connection.send(self.stream_id, message, end=end)

    async def receive(self) -> bytes | None:
        """Return the next message, None when the call has ended well.

        Raises:
            EtcdError: it ended otherwise.
        """
        while not self._messages:
            if self._ended:
                if self._error is not None:
                    raise self._error
                return None
            await self._changed.wait()
        return self._messages.pop(0)

    def note_message(self, message: bytes) -> None:
        self._messages.append(message)
        self._changed.wake()

    def note_end(self, error: EtcdError | None) -> None:
        self._ended, self._error = True, error
        self._changed.wake()


class GrpcConnection:
    """The calls on ``stream``. ``run`` moves their bytes, until the connection ends or ``close`` is called."""

    def __init__(self, stream: trio.abc.Stream, authority: str, *, scheme: str = "http") -> None:
        self._stream = stream
        self._streams = GrpcStreams(authority, scheme=scheme)
        self._calls: dict[int, Call] = {}
        self._to_send = Pulse()
        self._scope = trio.CancelScope()
        self.is_open = True

    async def run(self) -> None:
        """Read and write. Never raises for what the peer does: the calls learn it."""
        reason = "the connection was closed"
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    reason = await self._read()
                    nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError) as broken:
            reason = reason_of(broken.exceptions[0])
        finally:
            self.is_open = False
            for call in list(self._calls.values()):
                call.note_end(EtcdUnknown(reason))
            await trio.aclose_forcefully(self._stream)

    def close(self) -> None:
        """End the connection, and with it all calls."""
        self.is_open = False
        self._scope.cancel()

    def send(self, stream_id: int, message: bytes, *, end: bool) -> None:
        with self._closing_on_error():
            self._streams.send(stream_id, message, end=end)

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except ProtocolError:
            self.close()
        self._to_send.wake()

    @contextlib.asynccontextmanager
    async def call(self, path: str, metadata: Iterable[tuple[str, str]] = ()) -> AsyncIterator[Call]:
        """Begin a call; leaving the block cancels it if it has not ended.

        Raises:
            EtcdUnavailable: the connection takes no more calls.
        """
        try:
            call = Call(self, self._streams.open(path, metadata))
        except ProtocolError as error:
            self.close()
            raise EtcdUnavailable(str(error)) from error
        self._calls[call.stream_id] = call
        if not self.is_open:
            call.note_end(EtcdUnavailable("the connection was closed"))
        self._to_send.wake()
        try:
            yield call
        finally:
            del self._calls[call.stream_id]
            with self._closing_on_error():
                self._streams.cancel(call.stream_id)

    async def _write(self) -> None:
        while True:
            while data := self._streams.data_to_send():
                await self._stream.send_all(data)
            await self._to_send.wait()

    async def _read(self) -> str:
        """Read until the peer ends the connection, and return how it did."""
        while data := await self._stream.receive_some(READ_BYTES):
            try:
                events = self._streams.receive(data)
            except ProtocolError as error:
                return str(error)
            for event in events:
                if (call := self._calls.get(event.stream_id)) is None:
                    continue
                if isinstance(event, CallEnded):
                    call.note_end(event.error)
                else:
                    call.note_message(event.message)
            self._to_send.wake()
        return "the member closed the connection"


def reason_of(broken: BaseException) -> str:
    """Why a connection broke, or did not come about, in the words of the settings."""
    cause = broken.__cause__ or broken
    if isinstance(cause, OSError) and is_failure(cause):
        why = failure_of_server(cause, shown="metadata.store.certificate.file", trusted="metadata.store.ca.file")
        return f"no TLS: {why}"
    return f"the connection broke: {cause}"
