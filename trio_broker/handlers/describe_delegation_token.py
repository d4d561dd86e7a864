"""DescribeDelegationToken: there are no tokens to describe, since no listener authenticates its clients.

Source: Kafka's KafkaApis.handleDescribeTokensRequest and allowTokenRequests; KIP-48.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: DescribeDelegationTokenRequest, error: KafkaError) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])


@handles(
    DescribeDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("refused to everybody: there are no tokens")],
)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """Refuse: a client that is not authenticated may not see tokens."""
    raise KafkaError("no listener authenticates its clients", code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
