"""ExpireDelegationToken: end the life of a token, at once or sooner than it would.

Source: Kafka's KafkaApis.handleExpireTokenRequest; KIP-48.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.delegation_tokens import require_token_requests
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: ExpireDelegationTokenRequest, error: KafkaError) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(
    ExpireDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("for the owner and the renewers of the token alone")],
    by_controller=True,
)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: Context
) -> ExpireDelegationTokenResponse:
    """End the token, for its owner or a renewer."""
    require_token_requests(context.principal)
    secret = bytes(request.hmac)
    context.release_for_disk()
    end_ms = await context.services.controller.expire_delegation_token(
        context.principal, secret, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=end_ms)
