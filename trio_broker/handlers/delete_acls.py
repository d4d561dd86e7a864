"""DeleteAcls: there is no authorizer that would keep access control entries.

Source: Kafka's AclApis.handleDeleteAcls.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error.code, error_message=str(error), matching_acls=[])
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


@handles(DeleteAclsRequest, error_response=error_response)
async def delete_acls(request: DeleteAclsRequest, context: Context) -> DeleteAclsResponse:
    """Refuse every filter: no authorizer is configured."""
    raise KafkaError("No Authorizer is configured.", code=ErrorCode.SECURITY_DISABLED)
