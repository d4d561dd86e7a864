"""What a client may do with a resource, as the bit field that Metadata and other responses have.

There is no authorizer, so every client may use every operation that the resource has, as in Kafka without one.

Source: Kafka's AclOperation and AclEntry.supportedOperations; KIP-430.
"""

from __future__ import annotations

import enum

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


class AclOperation(enum.IntEnum):
    """Kafka's operation codes; the bit in the field is ``1 << code``."""

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


def bit_field(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS = bit_field(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

ALL_GROUP_OPERATIONS = bit_field(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

ALL_CLUSTER_OPERATIONS = bit_field(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)


def topic_operations(*, asked: bool) -> int:
    return ALL_TOPIC_OPERATIONS if asked else OPERATIONS_NOT_REQUESTED


def group_operations(*, asked: bool) -> int:
    return ALL_GROUP_OPERATIONS if asked else OPERATIONS_NOT_REQUESTED


def cluster_operations(*, asked: bool) -> int:
    return ALL_CLUSTER_OPERATIONS if asked else OPERATIONS_NOT_REQUESTED
