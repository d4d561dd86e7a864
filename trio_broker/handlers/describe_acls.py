"""DescribeAcls: the access control entries that a filter matches.

Without an authorizer the broker says so in Kafka's words. On this error MirrorMaker stops copying entries. Where the
API is missing it logs a failure every ten minutes.

Source: Kafka's KafkaApis.handleDescribeAcls and AclApis; KIP-140.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from trio_broker.cluster.acl_control import acl_of, acl_records
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.acl_filters import filter_of
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, for_cluster


def error_response(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=str(error), resources=[])


@handles(DescribeAclsRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER)])
async def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """List the access control entries that the filter matches, by the resource that they are about."""
    if context.services.authorizer is None:
        raise KafkaError("No Authorizer is configured on the broker", code=ErrorCode.SECURITY_DISABLED)
    wanted = filter_of(request)
    if wanted.has_unknown:
        raise KafkaError("the filter has unknown elements", code=ErrorCode.INVALID_REQUEST)
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    async for record in InTurns(acl_records(context.services.metadata_cache.image).values()):
        acl = acl_of(record)
        if not wanted.matches(acl):
            continue
        key = acl.resource_type, acl.pattern_type, acl.resource_name
        if key not in resources:
            resources[key] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                acls=[],
            )
        resources[key].acls.append(
            AclDescription(
                principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission_type
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))
