"""When a connection has waited too long."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kafka_wire.frame_receiver import FrameReceiver
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.channel import PlaintextChannel
from trio_broker.network.connection import (
    FRAME_GRACE_SECONDS,
    MIN_FRAME_BYTES_PER_SECOND,
    Connection,
    ConnectionState,
    frame_deadline,
    reason_to_close,
)
from trio_broker.network.errors import CloseCause
from trio_broker.network.request_channel import ConnectionInfo

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)
CONFIG = SocketServerConfig(connections_max_idle_ms=60_000)


@pytest.fixture
def ends() -> Iterator[tuple[Connection, socket.socket]]:
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        yield Connection(PlaintextChannel(ours), INFO, FrameReceiver(1000), 100.0), peer


def cause(connection: Connection, now: float) -> CloseCause | None:
    reason = reason_to_close(connection, now, CONFIG)
    return None if reason is None else reason.cause


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (ConnectionState.IDLE, CloseCause.IDLE),
        (ConnectionState.RECEIVING, CloseCause.IDLE),
        (ConnectionState.WAITING_FOR_MEMORY, CloseCause.IDLE),
        (ConnectionState.SENDING, CloseCause.STUCK_RESPONSE),
        (ConnectionState.WAITING_FOR_READER, CloseCause.STUCK_RESPONSE),
        (ConnectionState.IN_FLIGHT, None),
    ],
)
def test_a_connection_on_which_nothing_moves_is_closed_unless_we_owe_it_an_answer(ends, state, expected):
    connection, _ = ends
    connection.state = state
    assert cause(connection, 160.0) is None
    assert cause(connection, 160.1) is expected


def test_a_negative_limit_lets_connections_be_idle_for_ever(ends):
    connection, _ = ends
    connection.state = ConnectionState.IDLE
    assert reason_to_close(connection, 1e12, SocketServerConfig(connections_max_idle_ms=-1)) is None


def test_a_connection_that_moves_bytes_is_not_idle(ends):
    connection, _ = ends
    connection.bytes_in += 1
    connection.note_progress(150.0)
    assert cause(connection, 200.0) is None
    connection.note_progress(205.0)
    assert cause(connection, 210.1) is CloseCause.IDLE


def test_a_frame_has_time_by_its_size(ends):
    connection, _ = ends
    connection.state = ConnectionState.RECEIVING
    connection.frame_deadline = frame_deadline(100.0, 10 * MIN_FRAME_BYTES_PER_SECOND)
    assert connection.frame_deadline == 100.0 + FRAME_GRACE_SECONDS + 10
    assert cause(connection, 140.0) is None
    assert cause(connection, 140.1) is CloseCause.SLOW_FRAME


def test_a_client_that_went_away_while_its_request_waits_is_noticed(ends):
    connection, peer = ends
    connection.state = ConnectionState.IN_FLIGHT
    assert cause(connection, 102.0) is None
    peer.close()
    assert cause(connection, 100.5) is None
    assert cause(connection, 102.0) is CloseCause.GONE_WHILE_WAITING


def test_a_client_that_has_sent_more_is_not_gone(ends):
    connection, peer = ends
    peer.send(b"the next request")
    assert not connection.channel.peer_is_gone()
