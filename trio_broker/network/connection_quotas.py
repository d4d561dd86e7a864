"""The limits on connections: in all, of one listener, from one address, and new ones per second.

In all (``max.connections``, and what the process has descriptors for) and per second
(``max.connection.creation.rate``): accepting pauses, and clients wait in the listen queue. A listener may have limits
of its own for both; then accepting pauses there. From one address (``max.connections.per.ip`` and its overrides, and
the quota ``connection_creation_rate``): the connection is closed at once, since a pause would delay the clients at all
other addresses. Every limit is read from the settings at each use, so a change counts at once; a pause that it ends is
over at the next ``recheck``.

Source: Kafka's SocketServer.ConnectionQuotas.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial

import trio

from trio_broker.common.connection_rate import ConnectionRate
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.config.config_key import INT_MAX
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.workers import Workers

log = logging.getLogger(__name__)

TOO_MANY_FROM_ADDRESS = "max.connections.per.ip"
TOO_OFTEN_FROM_ADDRESS = "connection_creation_rate"
"""The reasons under which a refused connection is counted and logged."""


class ConnectionQuotas:
    """Counts the connections of all listeners."""

    def __init__(
        self,
        config: SocketServerConfig,
        clock: Clock,
        workers: Workers,
        *,
        descriptors: int = INT_MAX,
        admits_address: Callable[[str], bool] = lambda address: True,
    ) -> None:
        """``descriptors`` are those of the process that connections may have; ``admits_address`` counts a connection
        from an address, and says whether that is within its quota."""
        self.config = config
        self.descriptors = descriptors
        self.total = 0
        self.by_address: Counter[str] = Counter()
        self.by_listener: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._rate = ConnectionRate()
        self._rate_of: defaultdict[str, ConnectionRate] = defaultdict(ConnectionRate)
        self._room = trio.lowlevel.ParkingLot()
        self._emptiness = trio.lowlevel.ParkingLot()
        self._throttle = LogThrottle(log, clock)
        self._workers = workers
        self._overrides: Mapping[str, int] = {}
        self._overrides_seen: Mapping[str, int] = {}
        self._admits_address = admits_address

    async def admit(self, address: str, listener: str) -> bool:
        """Count a connection from ``address`` to ``listener``, after waiting for room; False, at once, if the address
        has too many already."""
        if self.by_address[address] >= self.limit_of(address):
            limit = self.limit_of(address)
            self._refuse(address, TOO_MANY_FROM_ADDRESS, f"it has {limit}, all that it may")
            return False
        if not self._admits_address(address):
            self._refuse(address, TOO_OFTEN_FROM_ADDRESS, "its quota of new connections a second is used up")
            return False
        # Counted before the wait, or several acceptors would let the same address in beyond its limit.
        self.by_address[address] += 1
        try:
            await self._wait_for_turn(listener)
        except BaseException:
            _uncount(self.by_address, address)
            raise
        self.total += 1
        self.by_listener[listener] += 1
        return True

    def release(self, address: str, listener: str) -> None:
        """A counted connection has closed."""
        self.total -= 1
        assert self.total >= 0, f"{-self.total} more connections closed than were opened"
        _uncount(self.by_listener, listener)
        _uncount(self.by_address, address)
        self.recheck()
        if not self.total:
            self._emptiness.unpark_all()

    async def wait_until_none(self) -> None:
        """Wait until there are no connections."""
        while self.total:
            await self._emptiness.park()

    def recheck(self) -> None:
        """Let accepting go on if there is room again, for instance because the limit was raised."""
        if self.total < self.limit:
            # All of them, since the limit may have been raised by more than one; each looks again.
            self._room.unpark_all()

    @property
    def limit(self) -> int:
        """How many connections there may be."""
        return min(self.config.max_connections, self.descriptors)

    def limit_of(self, address: str) -> int:
        """How many connections ``address`` may have."""
        return self._overrides.get(address, self.config.max_connections_per_ip)

    async def refresh_overrides(self) -> None:
        """Look up the host names among the overrides, if they were changed since the last call."""
        overrides = self.config.max_connections_per_ip_overrides
        if overrides is self._overrides_seen:
            return
        self._overrides_seen = overrides
        self._overrides = await self._workers.run(partial(resolve_overrides, dict(overrides)))

    async def _wait_for_turn(self, listener: str) -> None:
        own = self.config.limits_of(listener).max_connection_creation_rate
        rates = ((self._rate, self.config.max_connection_creation_rate), (self._rate_of[listener], own))
        now = trio.current_time()
        if delays := [rate.delay(now, per_second) for rate, per_second in rates if per_second < INT_MAX]:
            await trio.sleep(max(delays))
        # The last wait: between the look that ends it and the count no other acceptor runs.
        if full := self._reason_to_wait(listener):
            self._throttle.warning("max.connections", f"{full}: accepting pauses until one closes")
        while self._reason_to_wait(listener):
            await self._room.park()

    def _reason_to_wait(self, listener: str) -> str:
        """What there are too many of for one more connection to ``listener``; empty if there is room."""
        if self.total >= self.limit:
            is_setting = self.limit == self.config.max_connections
            why = "" if is_setting else ", all that the limit of open files leaves room for"
            return f"{self.total} connections{why}"
        if (count := self.by_listener[listener]) >= self.config.limits_of(listener).max_connections:
            return f"{count} connections on {listener}"
        return ""

    def _refuse(self, address: str, limit: str, why: str) -> None:
        self.refused[limit] += 1
        self._throttle.warning(limit, f"refused a connection from {address}: {why}")


def _uncount(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def plain_address(host: str) -> str:
    """``host`` as it is written in settings: an IPv4 address seen through an IPv6 socket is that IPv4 address."""
    return host.removeprefix("::ffff:") if "." in host else host


def resolve_overrides(overrides: Mapping[str, int]) -> dict[str, int]:
    """``overrides`` by address; a name counts for each of its addresses. Asks the name service, so it may block."""
    resolved: dict[str, int] = {}
    for host, limit in overrides.items():
        try:
            resolved[str(ipaddress.ip_address(host))] = limit
        except ValueError:
            with contextlib.suppress(OSError):
                for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
                    resolved[str(address[0])] = limit
    return resolved
