"""The clients whose last connection has ended, for an hour: what a post-mortem begins with.

Kept by client id and software, the latest connections of each, with what they carried and the errors that they got.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from trio_broker.network.connection import Connection
from trio_broker.network.connection_statistics import connection_statistics
from trio_broker.network.errors import CloseConnection
from trio_broker.network.failed_handshakes import MAX_TEXT_CHARACTERS
from trio_broker.network.recent_errors import MAX_CLIENT_ID_CHARACTERS
from trio_broker.network.statistics import DepartedConnection

KEPT_MS = 3_600_000
"""An hour: long enough for somebody to be called when a client has died."""

MAX_CLIENTS = 200
"""Clients that are kept, those that left last; with their connections some 2 MB at most."""

MAX_CONNECTIONS = 5
"""Connections that are kept of each: a client has one for each broker and purpose."""


class DepartedClients:
    """See the head of the file."""

    def __init__(self) -> None:
        self._connections: OrderedDict[tuple[str, str, str], deque[DepartedConnection]] = OrderedDict()

    def add(self, connection: Connection, reason: CloseConnection, *, now: float, now_ms: int) -> None:
        """Keep what ``connection`` was, if its client has named itself and not at length.

        ``now`` of the monotonic clock is ``now_ms`` of the other one.
        """
        client_id = None if connection.header is None else connection.header.client_id
        if client_id is None or len(client_id) > MAX_CLIENT_ID_CHARACTERS:
            return
        software = connection.client.software
        key = client_id, software.name, software.version
        kept = self._connections.setdefault(key, deque(maxlen=MAX_CONNECTIONS))
        text = str(reason)[:MAX_TEXT_CHARACTERS]
        kept.append(DepartedConnection(connection_statistics(connection, now=now, now_ms=now_ms), now_ms, text))
        self._connections.move_to_end(key)
        while len(self._connections) > MAX_CLIENTS or self._oldest_is_over(now_ms):
            self._connections.popitem(last=False)

    def _oldest_is_over(self, now_ms: int) -> bool:
        oldest = next(iter(self._connections.values()))
        return oldest[-1].left_at_ms < now_ms - KEPT_MS

    def connections(self, now_ms: int) -> Sequence[DepartedConnection]:
        """The connections that ended within the last hour, by client, in the order in which these left."""
        return [each for kept in self._connections.values() for each in kept if each.left_at_ms >= now_ms - KEPT_MS]
