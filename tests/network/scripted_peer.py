"""Another broker as a ``NetworkClient`` sees it: streams in memory, and a test that answers what comes."""

from __future__ import annotations

from typing import Any

import attrs
import trio
import trio.testing

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.frame_receiver import FrameReceiver
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.headers import RequestHeader, read_request_header, response_header
from kafka_wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.catalogue import all_requests

MAX_BYTES = 1 << 20


@attrs.define(eq=False)
class Peer:
    """The other end of one connection."""

    stream: Any
    receiver: FrameReceiver = attrs.field(factory=lambda: FrameReceiver(MAX_BYTES))

    async def receive(self) -> tuple[RequestHeader, Any]:
        """The next request, with its header."""
        while (frame := self.receiver.next_frame()) is None:
            data = await self.stream.receive_some()
            assert data, "the client closed the connection"
            self.receiver.receive_data(memoryview(data))
        header, position = read_request_header(frame)
        request, _ = decode(all_requests()[header.api_key], header.api_version, frame, position)
        return header, request

    async def answer(self, header: RequestHeader, response: Any, *, piece_bytes: int = MAX_BYTES) -> None:
        version = header.api_version
        body = response_header(header.api_key, version, header.correlation_id) + encode_bytes(response, version)
        framed = SIZE_PREFIX.pack(len(body)) + body
        for begin in range(0, len(framed), piece_bytes):
            await self.stream.send_all(framed[begin : begin + piece_bytes])
            await trio.testing.wait_all_tasks_blocked()

    async def agree_on_versions(self, served: dict[int, tuple[int, int]] | None = None) -> ApiVersionsRequest:
        """Answer the first request with what this broker serves: everything, but for ``served``."""
        everything = {key: (kind.VERSIONS.low, kind.VERSIONS.high) for key, kind in all_requests().items()}
        ranges = {**everything, **(served or {})}
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
        header, request = await self.receive()
        assert isinstance(request, ApiVersionsRequest)
        await self.answer(header, ApiVersionsResponse(api_keys=keys))
        return request

    async def is_closed(self) -> bool:
        """Wait for the client to close; False if it sends something instead."""
        data: bytes = await self.stream.receive_some()
        return not data


def socket_stream_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Two ends of a connection with real sockets."""
    ours, theirs = trio.socket.socketpair()
    return trio.SocketStream(ours), trio.SocketStream(theirs)


@attrs.define(eq=False)
class PeerNetwork:
    """A network whose connections end in the test: ``accept`` is the other end of the next one.

    With ``has_sockets`` these are real. ``refusals`` are the errors of the next attempts to connect.
    """

    has_sockets: bool = False
    refusals: list[OSError] = attrs.field(factory=list)
    attempts: list[float] = attrs.field(factory=list)
    """When there was one."""
    _accepted: Any = attrs.field(factory=lambda: trio.open_memory_channel[Peer](10))

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        self.attempts.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop(0)
        ours, theirs = socket_stream_pair() if self.has_sockets else trio.testing.memory_stream_pair()
        self._accepted[0].send_nowait(Peer(theirs))
        return ours

    async def accept(self, *, agree: bool = True) -> Peer:
        """The next connection, which has agreed on versions."""
        peer: Peer = await self._accepted[1].receive()
        if agree:
            await peer.agree_on_versions()
        return peer
