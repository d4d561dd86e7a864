"""RenewDelegationToken: there are no tokens to prolong, since no listener authenticates its clients.

Source: Kafka's KafkaApis.handleRenewTokenRequest and allowTokenRequests; KIP-48.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: RenewDelegationTokenRequest, error: KafkaError) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(
    RenewDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("refused to everybody: there are no tokens")],
)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    """Refuse: a client that is not authenticated may not prolong a token."""
    raise KafkaError("no listener authenticates its clients", code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
