"""Who the broker is, and whether it serves clients."""

from __future__ import annotations

from typing import Protocol

import attrs


@attrs.frozen
class AdvertisedListener:
    """One address clients may dial, the ``mechanisms`` by which they log in, and the file with the certificates that
    the broker trusts there; empty without."""

    name: str
    security_protocol: str
    host: str
    port: int
    mechanisms: tuple[str, ...] = ()
    authority: str = ""


@attrs.frozen
class NodeDescription:
    """Who the broker is. ``durability`` is the mode's name: ``fsync`` or ``page-cache``.

    ``now_ms`` is its wall clock, by which it dates what it reports. It may have been set since ``started_at_ms``;
    ``uptime_seconds`` counts on regardless.
    """

    node_id: int
    cluster_id: str
    version: str
    durability: str
    listeners: tuple[AdvertisedListener, ...]
    started_at_ms: int
    now_ms: int
    uptime_seconds: float


@attrs.frozen
class Readiness:
    """Whether clients are served; when not, ``reason`` says why."""

    ready: bool
    reason: str = ""


class IdentityView(Protocol):
    """Who the broker is, as the admin app sees it."""

    def description(self) -> NodeDescription:
        """Who the broker is and how long it has been up."""
        ...

    def readiness(self) -> Readiness:
        """Whether it serves clients now."""
        ...
