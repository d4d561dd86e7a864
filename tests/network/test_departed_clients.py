"""Clients that have left are known for an hour, so many of them and the latest connections of each."""

from __future__ import annotations

import socket

from kafka_wire.apis import ApiKey
from kafka_wire.frame_receiver import FrameReceiver
from kafka_wire.headers import RequestHeader
from trio_broker.network.channel import PlaintextChannel
from trio_broker.network.connection import Connection
from trio_broker.network.departed_clients import KEPT_MS, MAX_CLIENTS, MAX_CONNECTIONS, DepartedClients
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.failed_handshakes import MAX_TEXT_CHARACTERS
from trio_broker.network.recent_errors import MAX_CLIENT_ID_CHARACTERS
from trio_broker.network.request_channel import ConnectionInfo

PEER = CloseConnection("closed by the client", CloseCause.PEER)


def leave(
    departed: DepartedClients, client_id: str | None, *, now_ms: int = 0, number: int = 1, why: CloseConnection = PEER
) -> None:
    """End a connection of that client; without an id it has sent no request."""
    with socket.socket() as sock:
        info = ConnectionInfo(number, "PLAINTEXT", "127.0.0.1", 50_000, "127.0.0.1", 9092)
        connection = Connection(PlaintextChannel(sock), info, FrameReceiver(1000), 0.0)
        if client_id is not None:
            connection.header = RequestHeader(ApiKey.METADATA, 9, 1, client_id)
        departed.add(connection, why, now=5.0, now_ms=now_ms)


def kept(departed: DepartedClients, now_ms: int = 0) -> list[tuple[str, int]]:
    return [(each.statistics.client_id, each.statistics.connection_id) for each in departed.connections(now_ms)]


def test_a_client_is_forgotten_after_an_hour():
    departed = DepartedClients()
    leave(departed, "early", now_ms=0)
    leave(departed, "late", now_ms=1000)
    assert kept(departed, KEPT_MS) == [("early", 1), ("late", 1)]
    assert kept(departed, KEPT_MS + 1) == [("late", 1)]
    leave(departed, "new", now_ms=KEPT_MS + 1)
    assert kept(departed, 0) == [("late", 1), ("new", 1)], "what is over holds no memory"


def test_a_client_that_leaves_again_is_the_latest_with_its_latest_connections():
    departed = DepartedClients()
    leave(departed, "busy")
    leave(departed, "other")
    for number in range(2, MAX_CONNECTIONS + 3):
        leave(departed, "busy", number=number)
    assert kept(departed) == [("other", 1), *(("busy", number) for number in range(3, MAX_CONNECTIONS + 3))]


def test_only_so_many_clients_are_kept():
    departed = DepartedClients()
    for number in range(MAX_CLIENTS + 5):
        leave(departed, f"c{number}")
    assert [client_id for client_id, _ in kept(departed)] == [f"c{number}" for number in range(5, MAX_CLIENTS + 5)]


def test_clients_without_a_name_or_with_a_long_one_are_not_kept():
    departed = DepartedClients()
    leave(departed, None)
    leave(departed, "x" * (MAX_CLIENT_ID_CHARACTERS + 1))
    assert kept(departed) == []


def test_a_reason_is_kept_as_far_as_it_is_shown():
    departed = DepartedClients()
    leave(departed, "a", why=CloseConnection(f"login failed: no such user: {'x' * 10_000}", CloseCause.AUTHENTICATION))
    [connection] = departed.connections(0)
    assert len(connection.reason) == MAX_TEXT_CHARACTERS
