"""Who decides what a principal may do.

Source: Kafka's Authorizer.
"""

from __future__ import annotations

from typing import Protocol

from kafka_wire.acl import AclOperation, ResourceType
from trio_broker.security.kafka_principal import KafkaPrincipal


class Authorizer(Protocol):
    """Answers at once, by what it knows at the moment; nothing that it has answered needs to hold later."""

    @property
    def generation(self) -> int:
        """Grows whenever an answer may be another one than before."""
        ...

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether ``principal``, at the address ``host``, may do ``operation`` to the resource ``name``."""
        ...

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there can be any resource of that type to which it may."""
        ...

    def reason(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> str:
        """Why ``authorize`` answers as it does, for the audit log."""
        ...
