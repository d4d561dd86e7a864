"""How long a running broker's requests take, and what limits it, for the admin app."""

from __future__ import annotations

from collections.abc import Mapping

from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.bottleneck import Bottleneck
from trio_broker.metrics.history import History
from trio_broker.metrics.latency import LatencyReport, api_label, api_latencies, latency_summary
from trio_broker.metrics.standing_verdict import StandingVerdict
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestTimes


class LiveLatencyView:
    """The part of the admin app's view that is about the times of requests."""

    def __init__(self, services: BrokerServices, metrics: RequestChannelMetrics, samples: History) -> None:
        self.services = services
        self.request_metrics = metrics
        self._standing = StandingVerdict()
        samples.subscribe(self._standing.add)
        self._counts_since = services.clock.monotonic()

    def report(self) -> LatencyReport:
        syncs = self.services.replicas.flusher.statistics()
        return LatencyReport(
            apis=api_latencies(self.request_metrics, self.services.clock.monotonic() - self._counts_since),
            sync_count=syncs.syncs,
            syncs=latency_summary(syncs.sync_times),
            sync_waits=latency_summary(syncs.wait_times),
        )

    def request_times(self) -> Mapping[str, RequestTimes]:
        """All requests since the start, by the label of their API."""
        return {api_label(api_key): each.since_start() for api_key, each in self.request_metrics.by_api.items()}

    def bottleneck(self) -> Bottleneck:
        return self._standing.verdict
