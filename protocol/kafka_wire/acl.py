"""Access control entries in the numbers of the wire: what they are about, what they allow or deny, and to whom.

The same numbers stand in the requests about entries and in ``AccessControlEntryRecord``. A number that is not known is
``UNKNOWN``, as in Kafka, so that an entry of a newer version can be read.

Source: Kafka's ResourceType, PatternType, AclOperation and AclPermissionType; KIP-11, KIP-290.
"""

from __future__ import annotations

import enum
from typing import Final

WILDCARD: Final = "*"
"""The name of a literal resource, or the host, that stands for every one."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name that the resource CLUSTER has."""


class AclNumber(enum.IntEnum):
    """A number in an entry, or in a filter of entries, where 1 stands for any."""

    @classmethod
    def _missing_(cls, value: object) -> AclNumber:
        return cls(0)


class ResourceType(AclNumber):
    """What an entry is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(AclNumber):
    """How the name in an entry is compared. ``MATCH`` is for filters: every entry that would count for the name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(AclNumber):
    """What is done to a resource; its bit in a field of authorized operations is ``1 << operation``."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermissionType(AclNumber):
    """What an entry says about an operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
"""What there is to do with a resource of each type."""
