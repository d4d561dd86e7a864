"""The connections that failed before the client got anywhere: TLS or HTTP at a port without, a failed TLS handshake, an
unserved version.

Such a client shows its user a timeout or nothing at all, so the broker's own record is where the cause can be found.
Failures of one host at one listener with one cause are one entry with a count, so that a client that retries
every second does not displace the others.
"""

from __future__ import annotations

from collections import OrderedDict

from trio_broker.network.connection import Connection
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.statistics import FailedHandshake

MAX_FAILED_HANDSHAKES = 100
"""Entries kept, the latest ones; about 1 KB each."""

MAX_TEXT_CHARACTERS = 300
"""Of a reason, which may hold what the client sent, and of a client id."""

ALWAYS_FAILED = frozenset(
    {
        *(CloseCause.TLS, CloseCause.HANDSHAKE, CloseCause.NO_TLS, CloseCause.HTTP),
        *(CloseCause.UNSUPPORTED_VERSION, CloseCause.AUTHENTICATION),
    }
)

FAILED_BEFORE_ANY_REQUEST = frozenset({CloseCause.REFUSED, CloseCause.TRUNCATED, CloseCause.SLOW_FRAME})
"""Causes that are failed handshakes only on a connection without a request that could be read."""


def is_failed_handshake(connection: Connection, cause: CloseCause) -> bool:
    """Whether a connection that ended for ``cause`` never served its client."""
    return cause in ALWAYS_FAILED or (cause in FAILED_BEFORE_ANY_REQUEST and connection.client.requests == 0)


class FailedHandshakes:
    """The latest failures, bounded."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str, CloseCause], FailedHandshake] = OrderedDict()

    def add(self, connection: Connection, reason: CloseConnection, now_ms: int) -> None:
        """Keep why ``connection`` ended."""
        info, header = connection.info, connection.header
        key = (info.listener_name, info.peer_host, reason.cause)
        before = self._failures.pop(key, None)
        client_id = None if header is None or header.client_id is None else header.client_id[:MAX_TEXT_CHARACTERS]
        self._failures[key] = FailedHandshake(
            listener_name=info.listener_name,
            peer_host=info.peer_host,
            cause=reason.cause.value,
            reason=str(reason)[:MAX_TEXT_CHARACTERS],
            client_id=client_id,
            software=str(connection.client.software) if connection.client.software.name else None,
            count=1 if before is None else before.count + 1,
            first_at_ms=now_ms if before is None else before.first_at_ms,
            last_at_ms=now_ms,
        )
        if len(self._failures) > MAX_FAILED_HANDSHAKES:
            self._failures.popitem(last=False)

    def latest_first(self) -> list[FailedHandshake]:
        return list(reversed(self._failures.values()))
