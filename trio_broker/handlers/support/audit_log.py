"""The audit log: which client was allowed or denied what, and why.

A refusal is a line at level INFO, of each API and right one at a time with the number of those like it, since clients
can cause any number of them; at level DEBUG every answer is a line.

Source: Kafka's StandardAuthorizerData.logAuditMessage.
"""

from __future__ import annotations

import logging

import attrs

from kafka_wire.acl import AclOperation, ResourceType
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.runtime.clock import Clock
from trio_broker.security.authorizer import Authorizer
from trio_broker.security.kafka_principal import KafkaPrincipal

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class AuditLog:
    """Notes what an authorizer has answered to requests."""

    clock: Clock
    denied: int = attrs.field(default=0, init=False)
    """How many requests were denied since the start, logged or not."""
    throttle: LogThrottle = attrs.field(
        init=False, default=attrs.Factory(lambda self: LogThrottle(log, self.clock), takes_self=True)
    )

    def note(
        self,
        authorizer: Authorizer,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        asked_for: str,
        *,
        is_allowed: bool,
    ) -> None:
        """Log one answer, as far as it is to be logged. ``asked_for`` is an API, or an address of the admin app."""
        self.denied += not is_allowed
        is_verbose = log.isEnabledFor(logging.DEBUG)
        if not is_verbose and (is_allowed or not log.isEnabledFor(logging.INFO)):
            return
        text = (
            f"{str(principal)!r:.200} at {host} is {'allowed' if is_allowed else 'denied'} {operation.name} on"
            f" {resource_type.name} {name!r:.300} for {asked_for} by"
            f" {authorizer.reason(principal, host, operation, resource_type, name)!r:.500}"
        )
        if is_verbose:
            log.log(logging.DEBUG if is_allowed else logging.INFO, text)
        else:
            self.throttle.info(f"{asked_for} {operation.name} {resource_type.name}", text)
