"""gRPC over HTTP/2 without I/O: the client's side of one connection.

Bytes of the peer go into ``receive``, which returns what they mean; ``data_to_send`` has what is to be sent. A message
waits here for the peer's flow control, so that no caller has to, and is dropped when its stream ends: a server answers
a request that is too large while that is still being sent.

Source: gRPC over HTTP2 (PROTOCOL-HTTP2.md): a message is a flag, its length in four bytes, and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote

import attrs
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from trio_broker.cluster.etcd.errors import EtcdError, EtcdUnknown, GrpcStatus, error_of

_PREFIX: Final = struct.Struct(">BI")

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Of an answer: far above a page of a range; a longer one is garbage."""


@attrs.frozen
class MessageReceived:
    stream_id: int
    message: bytes


@attrs.frozen
class CallEnded:
    """No more messages come; ``error`` is None after a success."""

    stream_id: int
    error: EtcdError | None


@attrs.define
class _Stream:
    """A call: what it has yet to send, and what has arrived of the next message."""

    unsent: bytearray = attrs.field(factory=bytearray)
    ends: bool = False
    """Whether the caller sends nothing more."""
    received: bytearray = attrs.field(factory=bytearray)
    status: tuple[int, str] | None = None


class GrpcStreams:
    """The calls of one connection."""

    def __init__(self, authority: str, *, scheme: str = "http") -> None:
        self._authority, self._scheme = authority, scheme
        self._http = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._http.initiate_connection()
        self._streams: dict[int, _Stream] = {}

    def open(self, path: str, metadata: Iterable[tuple[str, str]] = ()) -> int:
        """Begin a call and return the number of its stream.

        Raises:
            ProtocolError: the peer takes no more of them.
        """
        stream_id = self._http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", self._scheme),
            (":authority", self._authority),
            (":path", path),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            *metadata,
        ]
        self._http.send_headers(stream_id, headers)
        self._streams[stream_id] = _Stream()
        return stream_id

    def send(self, stream_id: int, message: bytes, *, end: bool) -> None:
        """Send a message; with ``end`` it is the last one of the caller."""
        if (stream := self._streams.get(stream_id)) is not None:
            stream.unsent += _PREFIX.pack(0, len(message)) + message
            stream.ends = end
            self._send_allowed(stream_id, stream)

    def cancel(self, stream_id: int) -> None:
        """Forget a call, and tell the peer."""
        if self._streams.pop(stream_id, None) is not None:
            self._http.reset_stream(stream_id, ErrorCodes.CANCEL)

    def data_to_send(self) -> bytes:
        return self._http.data_to_send()

    def receive(self, data: bytes | bytearray) -> Sequence[MessageReceived | CallEnded]:
        """Return what ``data`` of the peer means.

        Raises:
            ProtocolError: the peer breaks the protocol, or ends the connection.
        """
        results: list[MessageReceived | CallEnded] = []
        for event in self._http.receive_data(bytes(data)):
            results += self._handle(event)
        # A window may have opened.
        for stream_id, stream in self._streams.items():
            self._send_allowed(stream_id, stream)
        return results

    def _send_allowed(self, stream_id: int, stream: _Stream) -> None:
        """Send as much as the peer's windows allow."""
        while stream.unsent:
            size = min(
                len(stream.unsent), self._http.local_flow_control_window(stream_id), self._http.max_outbound_frame_size
            )
            if size <= 0:
                return
            ends = stream.ends and size == len(stream.unsent)
            self._http.send_data(stream_id, bytes(stream.unsent[:size]), end_stream=ends)
            del stream.unsent[:size]

    def _handle(self, event: Event) -> Sequence[MessageReceived | CallEnded]:
        match event:
            case ConnectionTerminated():
                raise ProtocolError("the peer ends the connection")
            case DataReceived():
                # At once, for streams that were cancelled too: the window is the connection's.
                self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                return self._messages(event.stream_id, event.data)
            case ResponseReceived() | TrailersReceived():
                self._note_status(event.stream_id, {str(name): str(value) for name, value in event.headers})
            case StreamEnded() | StreamReset():
                # What the trailers said counts: they precede the reset of a request that was too large.
                return self._ended(event.stream_id)
        return ()

    def _messages(self, stream_id: int, data: bytes) -> Sequence[MessageReceived]:
        if (stream := self._streams.get(stream_id)) is None:
            return ()
        stream.received += data
        results = []
        while len(stream.received) >= _PREFIX.size:
            compressed, size = _PREFIX.unpack_from(stream.received)
            if compressed or size > MAX_MESSAGE_BYTES:
                raise ProtocolError(f"a message of {size} bytes, with the flag {compressed}")
            end = _PREFIX.size + size
            if len(stream.received) < end:
                break
            results.append(MessageReceived(stream_id, bytes(stream.received[_PREFIX.size : end])))
            del stream.received[:end]
        return results

    def _note_status(self, stream_id: int, headers: dict[str, str]) -> None:
        """Note the status of a call. Where there is no answer it stands among the first headers already."""
        if (stream := self._streams.get(stream_id)) is None:
            return
        if (code := headers.get("grpc-status")) is not None:
            stream.status = (
                int(code) if code.isdecimal() else GrpcStatus.UNKNOWN,
                unquote(headers.get("grpc-message", "")),
            )
        elif (http_status := headers.get(":status", "200")) != "200":
            stream.status = GrpcStatus.UNAVAILABLE, f"HTTP status {http_status}"

    def _ended(self, stream_id: int) -> Sequence[CallEnded]:
        if (stream := self._streams.pop(stream_id, None)) is None:
            return ()
        if stream.status is None:
            return (CallEnded(stream_id, EtcdUnknown("the call ended without a status")),)
        code, text = stream.status
        return (CallEnded(stream_id, None if code == GrpcStatus.OK else error_of(code, text)),)
