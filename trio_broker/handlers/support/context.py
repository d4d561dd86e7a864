"""What a handler is given beside its request."""

from __future__ import annotations

import attrs

from kafka_wire.headers import RequestHeader
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest


@attrs.frozen
class Context:
    """Who asks, in which version, and the parts of the broker that can answer."""

    request: QueuedRequest
    services: BrokerServices

    @property
    def header(self) -> RequestHeader:
        return self.request.header

    @property
    def version(self) -> int:
        """The API version the client speaks; its answer goes out in the same."""
        return self.request.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.request.header.client_id

    @property
    def connection(self) -> ConnectionInfo:
        return self.request.connection

    @property
    def request_context(self) -> RequestContext:
        """Who asks, as the group coordinator remembers its members."""
        header = self.request.header
        return RequestContext(header.client_id or "", f"/{self.request.connection.peer_host}", header.api_version)

    def release_handler(self) -> None:
        """Give the handler slot back, before waiting for others: one slot carries any number of parked requests."""
        self.request.release_handler()
