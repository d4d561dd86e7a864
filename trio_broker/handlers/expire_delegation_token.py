"""ExpireDelegationToken: there are no tokens to end, since no listener authenticates its clients.

Source: Kafka's KafkaApis.handleExpireTokenRequest and allowTokenRequests; KIP-48.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: ExpireDelegationTokenRequest, error: KafkaError) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(
    ExpireDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("refused to everybody: there are no tokens")],
)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse:
    """Refuse: a client that is not authenticated may not end a token."""
    raise KafkaError("no listener authenticates its clients", code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
