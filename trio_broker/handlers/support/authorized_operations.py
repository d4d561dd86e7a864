"""What a client may do with a resource, as the bit field that Metadata and other responses have.

Without an authorizer every client may use every operation that the resource has.

Source: Kafka's AclEntry.supportedOperations and AuthHelper.authorizedOperations; KIP-430.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka_wire.acl import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, ResourceType
from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, Right


def bit_field(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


ALL_OPERATIONS: Final = {kind: bit_field(operations) for kind, operations in SUPPORTED_OPERATIONS.items()}


def authorized_operations(context: Context, resource_type: ResourceType, name: str, *, asked: bool) -> int:
    """The operations that the client may use, if it has asked for them."""
    if not asked:
        return OPERATIONS_NOT_REQUESTED
    if context.services.authorizer is None:
        return ALL_OPERATIONS[resource_type]
    return bit_field(
        operation
        for operation in SUPPORTED_OPERATIONS[resource_type]
        if context.may(Right(operation, resource_type), name, is_audited=False)
    )


def topic_operations(context: Context, name: str, *, asked: bool) -> int:
    return authorized_operations(context, ResourceType.TOPIC, name, asked=asked)


def group_operations(context: Context, group_id: str, *, asked: bool) -> int:
    return authorized_operations(context, ResourceType.GROUP, group_id, asked=asked)


def cluster_operations(context: Context, *, asked: bool) -> int:
    """As ``authorized_operations``; none for a client that may not describe the cluster."""
    if asked and not context.may(DESCRIBE_CLUSTER):
        return 0
    return authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME, asked=asked)
