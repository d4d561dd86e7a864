"""How often connections may come."""

from __future__ import annotations

BURST_SECONDS = 1.0
"""After a pause of the clients, one second's worth of connections is accepted at once, so that a group of clients may
start together."""


class ConnectionRate:
    """A token bucket in one number: the time at which the next connection is due."""

    def __init__(self) -> None:
        self.due = float("-inf")

    def delay(self, now: float, per_second: int) -> float:
        """Seconds that the connection accepted at ``now`` must wait; counts it."""
        self.due = max(self.due, now - BURST_SECONDS) + 1 / per_second
        return max(0.0, self.due - now)
