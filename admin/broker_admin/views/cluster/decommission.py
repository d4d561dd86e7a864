"""Brokers that leave the cluster, as the admin app sees them and has them leave."""

from __future__ import annotations

from typing import Protocol

from trio_broker.cluster.decommission_progress import DecommissionProgress


class DecommissionRefused(Exception):
    """A decommission is refused, and nothing was changed. ``error`` is the name of Kafka's error code."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class DecommissionView(Protocol):
    """The decommission of each broker.

    Every method raises ``DecommissionRefused`` for a broker that is not registered.
    """

    async def progress(self, broker_id: int) -> DecommissionProgress:
        """Return how far it is."""
        ...

    async def begin(self, broker_id: int, *, changed_by: str, dry_run: bool) -> DecommissionProgress:
        """Begin it, or go on with it; with ``dry_run`` say what would move where.

        Raises:
            DecommissionRefused: too few brokers would be left.
        """
        ...

    async def cancel(self, broker_id: int, *, changed_by: str, dry_run: bool) -> DecommissionProgress:
        """End it before it is complete: replicas that are on their way stay. What has moved stays where it is."""
        ...
