"""The filters of DescribeAcls and DeleteAcls."""

from __future__ import annotations

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.messages.delete_acls import DeleteAclsFilter
from kafka_wire.messages.describe_acls import DescribeAclsRequest
from trio_broker.security.standard_acl import AclFilter


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        resource_type=ResourceType(asked.resource_type_filter),
        resource_name=asked.resource_name_filter,
        pattern_type=PatternType(asked.pattern_type_filter),
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=AclOperation(asked.operation),
        permission_type=AclPermissionType(asked.permission_type),
    )
