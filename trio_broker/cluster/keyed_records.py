"""Metadata records that need no image of their own: of each key the last one counts, until another kind removes it.

Access control entries, SCRAM credentials, delegation tokens, quotas and the registrations of controllers are such. The
image has them as they came, and a snapshot writes them as they are.

Source: Kafka's AclsImage, ScramImage, DelegationTokenImage, ClientQuotasImage and ClusterImage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from operator import attrgetter
from typing import Any, Final

import attrs

from kafka_wire.stored.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

KeyOf = Callable[[Any], Hashable]


@attrs.frozen
class KeyedChange:
    """What a record does: ``record`` takes its place under ``key`` among those of ``kind``, or None removes it."""

    kind: type[Any]
    key: Hashable
    record: Any


def quota_key(record: ClientQuotaRecord) -> tuple[frozenset[tuple[str, str | None]], str]:
    """Whom a quota holds for, in any order of its parts, and which one it is."""
    return frozenset((each.entity_type, each.entity_name) for each in record.entity), record.key


KEYS: Final[Mapping[type[Any], KeyOf]] = {
    AccessControlEntryRecord: attrgetter("id"),
    UserScramCredentialRecord: attrgetter("name", "mechanism"),
    DelegationTokenRecord: attrgetter("token_id"),
    ClientQuotaRecord: quota_key,
    RegisterControllerRecord: attrgetter("controller_id"),
    ZkMigrationStateRecord: lambda record: None,
}
"""The kinds that are kept, and what tells one record from another; a record that removes one has the same fields."""

REMOVED_KINDS: Final[Mapping[type[Any], type[Any]]] = {
    RemoveAccessControlEntryRecord: AccessControlEntryRecord,
    RemoveUserScramCredentialRecord: UserScramCredentialRecord,
    RemoveDelegationTokenRecord: DelegationTokenRecord,
    UnregisterControllerRecord: RegisterControllerRecord,
}


def keyed_change(record: Any) -> KeyedChange | None:
    """Return what ``record`` does to keyed records; None for a record of another sort."""
    kind = REMOVED_KINDS.get(type(record), type(record))
    if (key_of := KEYS.get(kind)) is None:
        return None
    is_removed = kind is not type(record) or (isinstance(record, ClientQuotaRecord) and record.remove)
    return KeyedChange(kind, key_of(record), None if is_removed else record)
