"""The clients of a broker: their connections, and where the broker holds them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.network.statistics import ConnectionStage, ConnectionStatistics, DepartedConnection


@attrs.frozen
class ServedVersions:
    """The versions of one API that ApiVersions lists."""

    api: str
    min_version: int
    max_version: int


@attrs.frozen
class NetworkLimits:
    """What connections share, and how much of it is taken.

    ``request_bytes_limit`` is ``queued.max.request.bytes``, None where there is none.
    """

    request_bytes_held: int
    request_bytes_limit: int | None
    queue_depth: int
    queue_capacity: int
    handlers_busy: int
    handlers: int


class ClientsView(Protocol):
    """The clients of a broker, as the admin app sees them."""

    async def connections(self) -> Sequence[ConnectionStatistics]:
        """Every connection, each as it is at one moment; thousands are read in turns."""
        ...

    def departed_connections(self) -> Sequence[DepartedConnection]:
        """The latest connections that ended within the last hour, of clients that have named themselves."""
        ...

    async def connection_stages(self) -> Mapping[ConnectionStage, int]:
        """How many connections stand where."""
        ...

    def network_limits(self) -> NetworkLimits:
        """What connections wait for when they are held back."""
        ...

    def served_versions(self) -> Sequence[ServedVersions]:
        """What ApiVersions lists for every client, in the order of the APIs' keys."""
        ...
