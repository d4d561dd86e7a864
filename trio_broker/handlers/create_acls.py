"""CreateAcls: there is no authorizer to keep access control entries.

Source: Kafka's AclApis.handleCreateAcls.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    result = AclCreationResult(error_code=error.code, error_message=str(error))
    return CreateAclsResponse(results=[result] * len(request.creations))


@handles(CreateAclsRequest, error_response=error_response)
async def create_acls(request: CreateAclsRequest, context: Context) -> CreateAclsResponse:
    """Refuse every entry: no authorizer is configured."""
    raise KafkaError("No Authorizer is configured.", code=ErrorCode.SECURITY_DISABLED)
