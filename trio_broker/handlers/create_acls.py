"""CreateAcls: add access control entries.

An entry that there is already is no error, and is not added once more.

Source: Kafka's AclApis.handleCreateAcls and AclControlManager.createAcls; KIP-140.
"""

from __future__ import annotations

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster
from trio_broker.security.standard_acl import StandardAcl


def error_response(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[refused(error)] * len(request.creations))


def refused(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=str(error))


@handles(CreateAclsRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)], by_controller=True)
async def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    """Add each access control entry, or answer with its error."""
    if context.services.authorizer is None:
        raise KafkaError("No Authorizer is configured.", code=ErrorCode.SECURITY_DISABLED)
    wanted = [acl_of(creation) async for creation in InTurns(request.creations)]
    context.release_for_disk()
    outcomes = await context.services.controller.create_acls(wanted)
    return CreateAclsResponse(
        results=[
            refused(outcome) if isinstance(outcome, KafkaError) else AclCreationResult(error_message=None)
            async for outcome in InTurns(outcomes)
        ]
    )


def acl_of(creation: AclCreation) -> StandardAcl:
    return StandardAcl(
        resource_type=ResourceType(creation.resource_type),
        resource_name=creation.resource_name,
        pattern_type=PatternType(creation.resource_pattern_type),
        principal=creation.principal,
        host=creation.host,
        operation=AclOperation(creation.operation),
        permission_type=AclPermissionType(creation.permission_type),
    )
