"""DescribeAcls: the broker has no authorizer, and says so in Kafka's words.

On this error MirrorMaker stops copying access control entries. Where the API is missing it logs a failure every ten
minutes.

Source: Kafka's KafkaApis.handleDescribeAcls and AclApis.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles


def error_response(request: DescribeAclsRequest, error: KafkaError) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error.code, error_message=str(error), resources=[])


@handles(DescribeAclsRequest, error_response=error_response)
async def describe_acls(request: DescribeAclsRequest, context: Context) -> DescribeAclsResponse:
    """Say that no authorizer is configured, hence no access control entries."""
    raise KafkaError("No Authorizer is configured on the broker", code=ErrorCode.SECURITY_DISABLED)
