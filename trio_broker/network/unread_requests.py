"""Requests that clients have sent and that the broker has not read, because others of their connection are ahead.

The time of a request is counted from its last byte read. What lies in the socket meanwhile is in no such time, and a
connection has one request or a few under way: a client that sends faster than those are answered waits, up to its own
timeout, while all times look well. So once a second the kernel is asked how much is unread on each connection that
does anything (SIOCINQ, a microsecond each).

Unread bytes behind a request in flight are those of the next requests. One that is only being received has unread bytes
of its own, and says nothing; on a connection that was read empty they have just come. A connection has a *backlog* when
requests have waited at every look for some seconds: clients may have several requests in flight, of which the
last ones wait for a moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kafka_wire.apis import ApiKey
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.connection import Connection, ConnectionState
from trio_broker.network.statistics import ClientBacklog
from trio_broker.runtime.network import unread_bytes

MAX_LOOKS = 1000
"""Connections that are looked at in one go, about a millisecond of the event loop; more of them take turns."""


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
        for connection in busy[self._round % parts :: parts]:
            look_at(connection, now)
        unread = [connection for connection in busy if connection.unread.count]
        self.unread_bytes = sum(connection.unread.count for connection in unread)
        self.largest = largest_backlog(connection for connection in unread if connection.unread.is_backlog)


def is_busy(connection: Connection) -> bool:
    """Whether there may be something unread: it does something, has moved bytes, or had something unread."""
    return (
        connection.state is not ConnectionState.IDLE
        or connection.is_ready
        or connection.bytes_in != connection.unread.bytes_in
        or connection.unread.count > 0
    )


def look_at(connection: Connection, now: float) -> None:
    """Note what is unread on ``connection``."""
    received_ahead = connection.protocol.bytes_pending
    count = unread_bytes(connection.sock) + received_ahead
    connection.unread.note(
        now,
        count,
        waits=requests_wait(connection, count) if count else False,
        bytes_in=connection.bytes_in,
        taken_bytes=connection.bytes_in - received_ahead,
    )


def requests_wait(connection: Connection, count: int) -> bool | None:
    """Whether the ``count`` unread bytes of ``connection`` are requests behind another one; None where that is not
    known.

    Behind a long poll or a rebalance they wait because the client wants it so.
    """
    match connection.state:
        case ConnectionState.IN_FLIGHT:
            request = connection.requests[0]
            if request.header.api_key == ApiKey.PRODUCE or request.waits is None:
                return True
            return request.waits.phase is not RequestPhase.PURGATORY
        case ConnectionState.SENDING:
            return True
        case ConnectionState.WAITING_FOR_READER:
            return None
        case _ if count <= rest_of_frame(connection):
            return None
        case _:
            # A connection that was served and has more, or that was read empty and has just received something.
            return connection.is_ready


def rest_of_frame(connection: Connection) -> int:
    """How many bytes the request that is being received still lacks."""
    protocol = connection.protocol
    return (protocol.frame_bytes_expected or 0) - protocol.frame_bytes_received


def largest_backlog(connections: Iterable[Connection]) -> ClientBacklog | None:
    """That of the client with most unread bytes; ``connections`` are all that have one."""
    by_client: defaultdict[str, list[Connection]] = defaultdict(list)
    for each in connections:
        by_client[each.client_id].append(each)
    backlogs = [backlog_of(client_id, together) for client_id, together in by_client.items()]
    return max(backlogs, key=lambda each: each.unread_bytes, default=None)


def backlog_of(client_id: str, connections: list[Connection]) -> ClientBacklog:
    waits = [wait for each in connections if (wait := each.unread.wait_seconds) is not None]
    return ClientBacklog(
        client_id=client_id,
        connections=len(connections),
        unread_bytes=sum(each.unread.count for each in connections),
        wait_seconds=max(waits, default=None),
        is_producer=any(each.client.producer is not None for each in connections),
    )
