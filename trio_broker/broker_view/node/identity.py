"""Who a running broker is, for the admin app."""

from __future__ import annotations

from collections.abc import Callable

from broker_admin.views.node.identity import AdvertisedListener, NodeDescription, Readiness
from trio_broker import __version__
from trio_broker.common.security_protocol import SASL_PROTOCOLS, TLS_PROTOCOLS
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
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
            listeners=tuple(advertised_listener(self.services.config, each) for each in node.advertised.values()),
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
        return "the broker is stopping" if self._is_stopping() else self.services.undeclared


def advertised_listener(config: BrokerConfig, endpoint: Endpoint) -> AdvertisedListener:
    """A listener, and what clients need there."""
    has_login = endpoint.security_protocol in SASL_PROTOCOLS
    tls = config.ssl_of(endpoint.listener_name) if endpoint.security_protocol in TLS_PROTOCOLS else None
    return AdvertisedListener(
        endpoint.listener_name,
        endpoint.security_protocol.name,
        endpoint.host,
        endpoint.port,
        config.listener_value(endpoint.listener_name, "sasl.enabled.mechanisms") if has_login else (),
        tls.ssl_truststore_location or "" if tls is not None and tls.ssl_truststore_type == "PEM" else "",
    )
