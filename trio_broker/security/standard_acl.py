"""One access control entry: who may, or may not, do what to which resources.

Source: Kafka's StandardAcl, AclBinding, AclBindingFilter and CidrUtils; KIP-11, KIP-290, KIP-1276 for ranges of hosts.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

import attrs

from kafka_wire.acl import WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType

ANY_USER: Final = "User:*"
"""The principal of entries that are about everybody."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_CIDR = re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}")

IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operations that one may do who is allowed another one. Who is denied that other one may still do them."""


def parse_address(host: str) -> Address | None:
    """The address that ``host`` is, an IPv4 address if it is one in the notation of IPv6; None for anything else."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@lru_cache(maxsize=1024)
def parse_network(host: str) -> Network | None:
    """The addresses that ``host`` stands for, as ``10.1.0.0/16``; None for anything else."""
    try:
        return ipaddress.ip_network(host, strict=False) if _CIDR.fullmatch(host) else None
    except ValueError:
        return None


@attrs.frozen(order=True)
class StandardAcl:
    """An entry, which is a value. ``host`` is an address, a range of addresses, or ``WILDCARD``."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission_type: AclPermissionType

    @property
    def is_deny(self) -> bool:
        return self.permission_type is AclPermissionType.DENY

    def is_about(self, name: str) -> bool:
        """Whether the resource ``name``, of the same type, is one of those that the entry is about."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.pattern_type is PatternType.LITERAL and self.resource_name in (name, WILDCARD)

    def is_from(self, host: str) -> bool:
        """Whether it counts for a client at ``host``, however the address is written."""
        if self.host in (WILDCARD, host):
            return True
        if (address := parse_address(host)) is None:
            return False
        if "/" in self.host:
            return (network := parse_network(self.host)) is not None and address in network
        return address == parse_address(self.host)

    def decides(self, operation: AclOperation) -> bool:
        """Whether it allows or denies ``operation``."""
        if self.operation in (AclOperation.ALL, operation):
            return True
        return not self.is_deny and self.operation in IMPLYING.get(operation, ())

    def __str__(self) -> str:
        return (
            f"{self.permission_type.name} {self.principal} from {self.host} {self.operation.name}"
            f" on {self.resource_type.name}:{self.pattern_type.name}:{self.resource_name}"
        )


@attrs.frozen
class AclFilter:
    """Which entries are meant. ``None`` and the members ``ANY`` match every value."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission_type: AclPermissionType

    @property
    def has_unknown(self) -> bool:
        """Whether it asks for something of which this version does not know what it is."""
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission_type)

    def matches(self, acl: StandardAcl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (AclPermissionType.ANY, acl.permission_type)
        )

    def _matches_name(self, acl: StandardAcl) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.resource_name is None or acl.is_about(self.resource_name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.resource_name in (
            None,
            acl.resource_name,
        )
