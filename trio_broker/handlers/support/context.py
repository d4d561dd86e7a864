"""The context of one request: its header, its connection, and the services of the broker."""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeVar

import attrs

from kafka_wire.acl import CLUSTER_NAME
from kafka_wire.apis import ApiKey
from kafka_wire.headers import RequestHeader
from kafka_wire.schema import Request
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.support.rights import DESCRIBE_TOPIC, Right, not_authorized
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

    def may(self, right: Right, name: str = CLUSTER_NAME, *, is_audited: bool = True) -> bool:
        """Whether the client has a right to the resource ``name``; without an authorizer everybody has every right.

        Not to be audited is what nobody is refused for: what a list leaves out, or a right in whose place another does.
        """
        authorizer = self.services.authorizer
        if authorizer is None:
            return True
        question = self.principal, self.connection.peer_host, right.operation, right.resource_type, name
        is_allowed = authorizer.authorize(*question)
        if is_audited:
            api = ApiKey(self.header.api_key).name
            self.services.audit_log.note(authorizer, *question, api, is_allowed=is_allowed)
        return is_allowed

    def may_any(self, right: Right) -> bool:
        """Whether there can be any resource of its type to which the client has ``right``."""
        authorizer = self.services.authorizer
        return authorizer is None or authorizer.authorize_by_resource_type(
            self.principal, self.connection.peer_host, right.operation, right.resource_type
        )

    def require(self, right: Right, name: str = CLUSTER_NAME) -> None:
        """Raise ``KafkaError`` with the error of ``right`` if the client does not have it."""
        if not self.may(right, name):
            raise not_authorized(right)

    @property
    def request_context(self) -> RequestContext:
        """The client as the group coordinator stores it with a member."""
        header, host, authorizer = self.request.header, self.request.connection.peer_host, self.services.authorizer
        may_see = None
        if authorizer is not None:
            right = DESCRIBE_TOPIC
            # Not ``may``, which would keep the bytes of the request for as long as this is kept.
            may_see = partial(authorizer.authorize, self.principal, host, right.operation, right.resource_type)
        return RequestContext(header.client_id or "", f"/{host}", header.api_version, may_see)

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
