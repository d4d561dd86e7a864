"""Requests that clients have sent and that the broker has not read, because others of their connection are ahead.

The time of a request is counted from its last byte read. What lies in the socket meanwhile is in no such time, and a
connection is served one request at a time: a client that sends faster than that waits, up to its own timeout, while
all times look well. So once a second the kernel is asked how much is unread on each connection that does anything
(SIOCINQ, a microsecond each).

Unread bytes behind a request in flight are those of the next requests. One that is only being received has unread bytes
of its own, and says nothing; on a connection that was read empty they have just come. A connection has a *backlog* when
requests have waited at every look for ``BACKLOG_SECONDS``: clients may have several requests in flight, of which the
last ones wait for a moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafka_wire.apis import ApiKey
from trio_broker.network.connection import Connection, ConnectionState
from trio_broker.network.statistics import ClientBacklog
from trio_broker.request_phase import RequestPhase
from trio_broker.runtime.network import unread_bytes

BACKLOG_SECONDS = 5.0
"""How long requests wait at every look before that is a backlog: longer than a burst."""

MAX_LOOKS = 1000
"""Connections that are looked at in one go, about a millisecond of the event loop; more of them take turns."""

RECENT_WEIGHT = 0.2
"""Of the last look in a rate: a mean over some five of them, so that one slow request does not make it."""


class UnreadRequests:
    """Looks at connections, about once a second.

    ``unread_bytes`` is the sum over all of them, ``largest`` the backlog of the client with most unread bytes, None
    when no client has one.
    """

    def __init__(self) -> None:
        self.unread_bytes = 0
        self.largest: ClientBacklog | None = None
        self._round = 0

    def look(self, connections: Iterable[Connection], now: float) -> None:
        """See what is unread at ``now`` of the monotonic clock."""
        busy = [each for each in connections if is_busy(each)]
        parts = -(-len(busy) // MAX_LOOKS) or 1
        self._round += 1
        for connection in busy:
            if connection.info.connection_id % parts == self._round % parts:
                look_at(connection, now)
        self.unread_bytes = sum(connection.unread.unread_bytes for connection in busy)
        self.largest = largest_backlog(connection for connection in busy if has_backlog(connection))


def is_busy(connection: Connection) -> bool:
    """Whether there may be something unread: it does something, has moved bytes, or had something unread."""
    return (
        connection.state is not ConnectionState.IDLE
        or connection.is_ready
        or connection.bytes_in != connection.unread.bytes_in
        or connection.unread.unread_bytes > 0
    )


def look_at(connection: Connection, now: float) -> None:
    """Note what is unread on ``connection``."""
    unread = connection.unread
    received_ahead = connection.protocol.bytes_pending
    count = unread_bytes(connection.sock) + received_ahead
    waits = requests_wait(connection, count) if count else False
    if waits is False:
        unread.waiting_since = None
    elif waits and unread.waiting_since is None:
        unread.waiting_since = now
        unread.bytes_per_second = unread.requests_per_second = None
    taken, requests = connection.bytes_in - received_ahead, connection.client.requests
    if (seconds := now - unread.looked_at) > 0 and unread.waiting_since not in (None, now):
        unread.bytes_per_second = recent_mean(unread.bytes_per_second, (taken - unread.taken_bytes) / seconds)
        unread.requests_per_second = recent_mean(unread.requests_per_second, (requests - unread.requests) / seconds)
    unread.unread_bytes, unread.looked_at = count, now
    unread.taken_bytes, unread.requests, unread.bytes_in = taken, requests, connection.bytes_in


def recent_mean(mean: float | None, latest: float) -> float:
    return latest if mean is None else mean + RECENT_WEIGHT * (latest - mean)


def requests_wait(connection: Connection, count: int) -> bool | None:
    """Whether the ``count`` unread bytes of ``connection`` are requests behind another one; None where that is not
    known.

    Behind a long poll or a rebalance they wait because the client wants it so.
    """
    match connection.state:
        case ConnectionState.IN_FLIGHT:
            request = connection.request
            if request is None or request.header.api_key == ApiKey.PRODUCE or request.waits is None:
                return True
            return request.waits.phase is not RequestPhase.PURGATORY
        case ConnectionState.SENDING:
            return True
        case ConnectionState.WAITING_FOR_READER:
            return None
        case _ if count <= rest_of_frame(connection):
            return None
        case _:
            # One that was served and has more, or one that was read empty and has just received something.
            return connection.is_ready


def rest_of_frame(connection: Connection) -> int:
    """How many bytes the request that is being received still lacks."""
    protocol = connection.protocol
    return (protocol.frame_bytes_expected or 0) - protocol.frame_bytes_received


def has_backlog(connection: Connection) -> bool:
    """Whether requests of ``connection`` have waited at every look for so long that it is no burst."""
    unread = connection.unread
    return unread.waiting_since is not None and unread.looked_at - unread.waiting_since >= BACKLOG_SECONDS


def wait_seconds(connection: Connection) -> float | None:
    """How long a request that comes now will wait in the socket of ``connection``, at the rate at which it was read
    lately; None where nothing is read, or there is no backlog.

    A client waits longer if its own kernel holds back more, which the window of TCP does not let through.
    """
    unread = connection.unread
    if not has_backlog(connection) or not unread.bytes_per_second:
        return None
    return unread.unread_bytes / unread.bytes_per_second


def largest_backlog(connections: Iterable[Connection]) -> ClientBacklog | None:
    """That of the client with most unread bytes; ``connections`` are all that have one."""
    by_client: defaultdict[str, list[Connection]] = defaultdict(list)
    for each in connections:
        by_client[client_id_of(each)].append(each)
    backlogs = [backlog_of(client_id, together) for client_id, together in by_client.items()]
    return max(backlogs, key=lambda each: each.unread_bytes, default=None)


def backlog_of(client_id: str, connections: list[Connection]) -> ClientBacklog:
    waits = [wait for each in connections if (wait := wait_seconds(each)) is not None]
    return ClientBacklog(
        client_id=client_id,
        connections=len(connections),
        unread_bytes=sum(each.unread.unread_bytes for each in connections),
        wait_seconds=max(waits, default=None),
        requests_per_second=sum(each.unread.requests_per_second or 0.0 for each in connections),
        is_producer=any(each.client.producer is not None for each in connections),
    )


def client_id_of(connection: Connection) -> str:
    """The client id of the latest request; empty before the first, and for a client that gives none."""
    return (connection.header.client_id or "") if connection.header is not None else ""
