"""DeleteAcls: remove the access control entries that filters match.

Source: Kafka's AclApis.handleDeleteAcls and AclControlManager.deleteAcls; KIP-140.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.acl_filters import filter_of
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster
from trio_broker.security.standard_acl import StandardAcl


def error_response(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[refused(error)] * len(request.filters))


def refused(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=str(error), matching_acls=[])


@handles(DeleteAclsRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)], by_controller=True)
async def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    """Remove what each filter matches, and answer with it."""
    if context.services.authorizer is None:
        raise KafkaError("No Authorizer is configured.", code=ErrorCode.SECURITY_DISABLED)
    wanted = [filter_of(each) async for each in InTurns(request.filters)]
    context.release_for_disk()
    results = []
    async for outcome in InTurns(await context.services.controller.delete_acls(wanted)):
        if isinstance(outcome, KafkaError):
            results.append(refused(outcome))
        else:
            removed = [matching_acl(acl) async for acl in InTurns(outcome)]
            results.append(DeleteAclsFilterResult(error_message=None, matching_acls=removed))
    return DeleteAclsResponse(filter_results=results)


def matching_acl(acl: StandardAcl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
