"""gRPC without I/O against the server's side of h2: windows, resets, statuses, garbage."""

from __future__ import annotations

import struct

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from trio_broker.cluster.etcd.errors import EtcdOutOfSpace, EtcdRefused, EtcdUnavailable, EtcdUnknown
from trio_broker.cluster.etcd.grpc_streams import CallEnded, GrpcStreams, MessageReceived

HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


class Server:
    """The peer: what it receives, and what it answers by hand."""

    def __init__(self, client: GrpcStreams, *, window: int = 65_535) -> None:
        self.client = client
        self.http = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.http.local_settings = Settings(client=False, initial_values={SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.http.initiate_connection()
        self.events: list[Event] = []

    def exchange(self) -> list[MessageReceived | CallEnded]:
        """Hand over what both have to say until neither has more."""
        results: list[MessageReceived | CallEnded] = []
        while True:
            from_client, from_server = self.client.data_to_send(), self.http.data_to_send()
            if not from_client and not from_server:
                return results
            self.events += self.http.receive_data(from_client) if from_client else []
            results += self.client.receive(from_server) if from_server else []

    def received(self) -> bytes:
        return b"".join(event.data for event in self.events if isinstance(event, DataReceived))

    def answer(self, stream_id: int, *messages: bytes, status: str = "0", text: str = "") -> None:
        self.http.send_headers(stream_id, HEADERS)
        for message in messages:
            self.http.send_data(stream_id, struct.pack(">BI", 0, len(message)) + message)
        self.http.send_headers(stream_id, [("grpc-status", status), ("grpc-message", text)], end_stream=True)


def begun(message: bytes = b"request", **settings: int) -> tuple[GrpcStreams, Server, int]:
    client = GrpcStreams("etcd:2379")
    server = Server(client, **settings)
    server.exchange()
    stream_id = client.open("/etcdserverpb.KV/Range", [("hasleader", "true")])
    client.send(stream_id, message, end=True)
    return client, server, stream_id


def test_a_call_has_its_path_its_metadata_and_its_message():
    _, server, stream_id = begun()
    server.exchange()
    [request] = (event for event in server.events if isinstance(event, RequestReceived))
    headers = {str(name): str(value) for name, value in request.headers}
    assert headers[":path"] == "/etcdserverpb.KV/Range"
    assert (headers["te"], headers["hasleader"]) == ("trailers", "true")
    assert server.received() == b"\0\0\0\0\7request"
    server.answer(stream_id, b"answer")
    assert server.exchange() == [MessageReceived(stream_id, b"answer"), CallEnded(stream_id, None)]


def test_a_message_larger_than_the_window_is_sent_as_the_window_opens():
    _, server, stream_id = begun(bytes(100_000), window=10)
    server.exchange()
    assert len(server.received()) == 10
    while len(server.received()) < 100_005:
        before = len(server.received())
        server.http.increment_flow_control_window(40_000, stream_id)
        server.http.increment_flow_control_window(40_000)
        server.exchange()
        assert len(server.received()) > before


def test_an_answer_in_small_pieces_is_put_together():
    client, server, stream_id = begun()
    server.exchange()
    server.answer(stream_id, b"one", b"two" * 1000)
    results: list[MessageReceived | CallEnded] = []
    for byte in server.http.data_to_send():
        results += client.receive(bytes([byte]))
    assert results == [
        MessageReceived(stream_id, b"one"),
        MessageReceived(stream_id, b"two" * 1000),
        CallEnded(stream_id, None),
    ]


def test_a_call_that_is_refused_while_it_is_sent_has_the_reason_of_the_trailers():
    client, server, stream_id = begun(bytes(100_000), window=10)
    server.exchange()
    server.http.send_headers(
        stream_id, [*HEADERS, ("grpc-status", "3"), ("grpc-message", "too%20large")], end_stream=True
    )
    server.http.reset_stream(stream_id, 0)
    [ended] = server.exchange()
    assert isinstance(ended, CallEnded)
    assert isinstance(ended.error, EtcdRefused)
    assert str(ended.error) == "too large (gRPC code 3)"
    other = client.open("/etcdserverpb.KV/Txn")
    client.send(other, b"next", end=True)
    server.exchange()
    assert server.received().endswith(b"next")


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        ("14", "etcdserver: leader changed", EtcdUnknown),
        ("4", "context deadline exceeded", EtcdUnknown),
        ("8", "etcdserver: too many requests", EtcdUnavailable),
        ("8", "etcdserver: mvcc: database space exceeded", EtcdOutOfSpace),
        ("7", "etcdserver: permission denied", EtcdRefused),
        ("x", "", EtcdUnknown),
    ],
)
def test_what_a_status_means(status: str, text: str, error: type[Exception]):
    _, server, stream_id = begun()
    server.exchange()
    server.answer(stream_id, status=status, text=text)
    [ended] = server.exchange()
    assert isinstance(ended, CallEnded)
    assert type(ended.error) is error


def test_a_reset_without_a_status_is_unknown():
    _, server, stream_id = begun()
    server.exchange()
    server.http.reset_stream(stream_id, 2)
    [ended] = server.exchange()
    assert isinstance(ended, CallEnded)
    assert isinstance(ended.error, EtcdUnknown)


def test_a_cancelled_call_is_reset_and_what_comes_for_it_is_passed_over():
    client, server, stream_id = begun()
    server.exchange()
    server.http.send_headers(stream_id, HEADERS)
    server.http.send_data(stream_id, b"\0\0\0\0\4late")
    client.cancel(stream_id)
    assert server.exchange() == []
    assert any(isinstance(event, StreamReset) for event in server.events)


def test_the_end_of_the_connection_and_garbage_are_errors():
    client, _, _ = begun()
    with pytest.raises(ProtocolError):
        client.receive(bytes(9))
    client, server, _ = begun()
    server.exchange()
    server.http.close_connection()
    with pytest.raises(ProtocolError, match="ends the connection"):
        client.receive(server.http.data_to_send())


def test_a_compressed_message_and_one_that_is_too_long_are_errors():
    for prefix in (struct.pack(">BI", 1, 3), struct.pack(">BI", 0, 2**31)):
        client, server, stream_id = begun()
        server.exchange()
        server.http.send_headers(stream_id, HEADERS)
        server.http.send_data(stream_id, prefix + b"abc")
        with pytest.raises(ProtocolError, match="a message of"):
            client.receive(server.http.data_to_send())
