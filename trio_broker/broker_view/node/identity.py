"""Who a running broker is, for the admin app."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.views.node.identity import AdvertisedListener, NodeDescription, Readiness
from trio_broker import __version__
from trio_broker.handlers.support.services import BrokerServices


class LiveIdentityView:
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
            now_ms=self.services.clock.now_ms(),
            uptime_seconds=self.services.clock.monotonic() - self._started_at,
        )

    def readiness(self) -> Readiness:
        reason = self._reason_not_ready()
        return Readiness(ready=not reason, reason=reason)

    def _reason_not_ready(self) -> str:
        """Why clients are not served, or the empty string. A failed disk comes first: it is why the broker stops."""
        if reason := self.services.log_dir_failures.reason_not_served():
            return reason
        return "the broker is stopping" if self._is_stopping() else ""
