"""Who may do what and who may have how much: access control entries, quotas, the users that log in by SCRAM, and the
delegation tokens by which others act for a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

RESOURCE_TYPES = ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
PATTERN_TYPES = ("LITERAL", "PREFIXED")
OPERATIONS = (
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
PERMISSIONS = ("ALLOW", "DENY")
"""Kafka's names, without those that stand for none or for any."""


@attrs.frozen(kw_only=True)
class AclEntry:
    """An access control entry. ``host`` is an address, a range of addresses, or ``*``."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        return (
            f"{self.permission} {self.principal} {self.operation} on {self.resource_type} {self.resource_name}"
            f" {self.pattern_type} from {self.host}"
        )


DEFAULT_NAME = "<default>"
"""In place of a name: each of this type that has no quota of its own."""


@attrs.frozen(kw_only=True)
class QuotaEntity:
    """Whom quotas are for: a user, a client id, both together, or an address. ``<default>`` in place of a name is each
    that has no quota of its own."""

    user: str | None
    client_id: str | None
    ip: str | None

    def __str__(self) -> str:
        parts = (("user", self.user), ("client id", self.client_id), ("address", self.ip))
        return ", ".join(f"{type_} {name}" for type_, name in parts if name is not None)


@attrs.frozen(kw_only=True)
class QuotaEntry:
    """The quotas that an entity has, by Kafka's names of them."""

    entity: QuotaEntity
    quotas: Mapping[str, float]


@attrs.frozen(kw_only=True)
class ScramUser:
    """A user with the mechanisms of SCRAM that it has a password for, each with its iterations."""

    name: str
    mechanisms: Mapping[str, int]


@attrs.frozen(kw_only=True)
class TokenEntry:
    """A delegation token, without its secret. ``expires_at_ms`` may be prolonged up to ``max_at_ms``."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int


class AccessRefused(Exception):
    """Nothing was changed. ``error`` is the name of Kafka's error code."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class AccessView(Protocol):
    """Entries, quotas, users and delegation tokens of the cluster. Changes raise ``AccessRefused``."""

    def controller_id(self) -> int | None:
        """The broker that makes changes; None while there is none."""
        ...

    @property
    def has_authorizer(self) -> bool:
        """Whether entries have an effect; without, they cannot be changed."""
        ...

    async def acls(self) -> Sequence[AclEntry]: ...

    async def create_acl(self, acl: AclEntry, *, changed_by: str, dry_run: bool) -> None:
        """Add an entry; one that is there already is no error."""
        ...

    async def delete_acl(self, acl: AclEntry, *, changed_by: str, dry_run: bool) -> bool:
        """Remove an entry; return whether there was one."""
        ...

    async def quotas(self) -> Sequence[QuotaEntry]: ...

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None], *, changed_by: str, dry_run: bool
    ) -> None:
        """Set quotas, or remove those that are None; all of them or none."""
        ...

    async def users(self) -> Sequence[ScramUser]: ...

    async def tokens(self) -> Sequence[TokenEntry]: ...

    async def end_token(self, token: TokenEntry, *, changed_by: str, dry_run: bool) -> None:
        """Remove a token; who is logged in by it stays so until it would have ended."""
        ...
