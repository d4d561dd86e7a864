"""Who a running broker is, for the admin app."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.views.node import AdvertisedListener, NodeDescription, Readiness
from trio_broker import __version__
from trio_broker.handlers.support.services import BrokerServices


class LiveNodeView:
    """The part of the admin app's view that is about the node."""

    def __init__(self, services: BrokerServices, is_stopping: Callable[[], bool]) -> None:
        self.services = services
        self._is_stopping = is_stopping
        self.started_at_ms = services.clock.now_ms()
        self._started_at = services.clock.monotonic()

    def description(self) -> NodeDescription:
        node = self.services.node
        return NodeDescription(
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            version=__version__,
            durability=self.services.config.node.log_durability,
            listeners=tuple(
                AdvertisedListener(each.listener_name, each.security_protocol.name, each.host, each.port)
                for each in node.advertised.values()
            ),
            started_at_ms=self.started_at_ms,
            uptime_seconds=self.services.clock.monotonic() - self._started_at,
        )

    def readiness(self) -> Readiness:
        reason = self._reason_not_ready()
        return Readiness(ready=not reason, reason=reason)

    def _reason_not_ready(self) -> str:
        """Why clients are not served, or the empty string.

        While one of several data directories works, the partitions in it are served, so one failed disk is no reason.
        Without the metadata log nothing can be decided: no topic, no setting, no producer id.
        """
        if self._is_stopping():
            return "the broker is stopping"
        if (failure := self.services.metadata_log.failure) is not None:
            return f"the metadata log failed: {failure}"
        failures = [directory.failure for directory in self.services.replicas.log_manager.directories]
        if all(failures):
            return f"every data directory failed: {'; '.join(map(str, failures))}"
        return ""
