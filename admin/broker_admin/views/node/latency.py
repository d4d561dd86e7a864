"""How long requests take, and what limits the broker."""

from __future__ import annotations

from typing import Protocol

from trio_broker.metrics.bottleneck import Bottleneck
from trio_broker.metrics.latency import LatencyReport


class LatencyView(Protocol):
    """The times of a broker's requests, as the admin app sees them."""

    def report(self) -> LatencyReport:
        """The answered requests by API and phase, with their errors."""
        ...

    def bottleneck(self) -> Bottleneck:
        """What limits the broker, by the samples of the last seconds."""
        ...
