"""RenewDelegationToken: prolong the life of a token, at most to the end that it had from the beginning.

Source: Kafka's KafkaApis.handleRenewTokenRequest; KIP-48.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.delegation_tokens import require_token_requests
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: RenewDelegationTokenRequest, error: KafkaError) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)


@handles(
    RenewDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("for the owner and the renewers of the token alone")],
    by_controller=True,
)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse:
    """Prolong the token, for its owner or a renewer."""
    require_token_requests(context.principal)
    secret = bytes(request.hmac)
    context.release_for_disk()
    end_ms = await context.services.controller.renew_delegation_token(
        context.principal, secret, request.renew_period_ms
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=end_ms)
