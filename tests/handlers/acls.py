"""Access control entries as clients write them: a broker that asks for rights, and entries that give some."""

from __future__ import annotations

from typing import Any

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.handlers.wire_client import WireClient
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER

ADMIN = "admin"

SECURE = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": f"User:{ADMIN}"}
"""Settings of a broker that asks for rights; only ``ADMIN`` has any at first."""


def entry(
    name: str = "orders",
    operation: AclOperation = AclOperation.READ,
    *,
    type_: ResourceType = ResourceType.TOPIC,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    principal: str = "User:alice",
    **fields: Any,
) -> AclCreation:
    return AclCreation(
        resource_type=type_,
        resource_name=name,
        principal=principal,
        operation=operation,
        permission_type=permission,
        **{"resource_pattern_type": PatternType.LITERAL, "host": "*", **fields},
    )


def matching(**fields: Any) -> DeleteAclsFilter:
    """A filter of all entries but for ``fields``."""
    anything = {
        "resource_type_filter": ResourceType.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PatternType.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": AclOperation.ANY,
        "permission_type": AclPermissionType.ANY,
    }
    return DeleteAclsFilter(**{**anything, **fields})


async def allow(broker: WireClient, *entries: AclCreation) -> None:
    """Have the administrator create entries."""
    response = await broker.as_user(ADMIN).ask(CreateAclsRequest(creations=list(entries)), 3)
    assert [each.error_code for each in response.results] == [0] * len(entries), response


async def revoke(broker: WireClient, **fields: Any) -> None:
    """Have the administrator delete entries."""
    response = await broker.as_user(ADMIN).ask(DeleteAclsRequest(filters=[matching(**fields)]), 3)
    assert all(each.matching_acls for each in response.filter_results), response
