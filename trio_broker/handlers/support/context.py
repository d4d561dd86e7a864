"""The context of one request: its header, its connection, and the services of the broker."""

from __future__ import annotations

from typing import Protocol, TypeVar

import attrs

from kafka_wire.apis import ApiKey
from kafka_wire.headers import RequestHeader
from kafka_wire.schema import Request
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.request_channel import ConnectionInfo, QueuedRequest
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

R = TypeVar("R")


class GroupCaller(Protocol):
    """What calls the group coordinator: a request of a Kafka client, or of the admin API."""

    @property
    def services(self) -> BrokerServices: ...

    def call_group(self, group_id: str, request: Request[R]) -> Steps[R]:
        """Let the coordinator answer ``request`` for its group."""
        ...


@attrs.define(eq=False)
class Context:
    """Passed to every handler beside the decoded message; never changed. A frozen class takes twice as long to make."""

    request: QueuedRequest
    services: BrokerServices
    is_large: bool = False
    """Whether it is one of the large requests, few of which are handled at a time (``Dispatcher.answer_large``)."""

    @property
    def header(self) -> RequestHeader:
        return self.request.header

    @property
    def version(self) -> int:
        """The API version of the request, and of its response."""
        return self.request.header.api_version

    @property
    def client_id(self) -> str | None:
        return self.request.header.client_id

    @property
    def connection(self) -> ConnectionInfo:
        return self.request.connection

    @property
    def principal(self) -> KafkaPrincipal:
        """Who has sent the request."""
        return self.request.principal

    @property
    def request_context(self) -> RequestContext:
        """The client as the group coordinator stores it with a member."""
        header = self.request.header
        return RequestContext(header.client_id or "", f"/{self.request.connection.peer_host}", header.api_version)

    def call_group(self, group_id: str, request: Request[R]) -> Steps[R]:
        """Let the coordinator answer ``request`` for its group.

        Raises:
            KafkaError: those of ``GroupCoordinator.call``.
        """
        return self.services.groups.call_steps(group_id, request, self.request_context, self.release_handler)

    @property
    def change_origin(self) -> ChangeOrigin:
        """The client as the change log keeps it with a change."""
        header, principal = self.request.header, self.principal
        return ChangeOrigin(
            ChangeChannel.KAFKA,
            header.client_id or "",
            self.request.connection.client_address,
            ApiKey(header.api_key).name,
            principal="" if principal == ANONYMOUS else str(principal),
        )

    def release_handler(self, phase: RequestPhase) -> None:
        """Give the handler slot back before a wait: one slot carries any number of delayed requests."""
        self.request.release_handler(phase)

    def release_for_disk(self) -> None:
        """As ``release_handler``, before a wait for the disk in the midst of the work.

        A large request goes on to be the one that is handled: the next would be in memory beside it.
        """
        if not self.is_large:
            self.request.release_handler(RequestPhase.DISK)
