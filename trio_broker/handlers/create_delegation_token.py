"""CreateDelegationToken: refused, since no listener authenticates its clients.

A token belongs to an authenticated principal. Kafka refuses on such listeners as well, whatever its configuration.

Source: Kafka's KafkaApis.handleCreateTokenRequest and allowTokenRequests; KIP-48.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight

USER = "User"
ANONYMOUS = "ANONYMOUS"
"""Kafka's name for a client that did not log in."""


def error_response(request: CreateDelegationTokenRequest, error: KafkaError) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=request.owner_principal_type or USER,
        principal_name=request.owner_principal_name or ANONYMOUS,
        token_requester_principal_type=USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        token_id="",
        hmac=b"",
    )


@handles(
    CreateDelegationTokenRequest,
    error_response=error_response,
    requires=[NoRight("refused to everybody: there are no tokens")],
)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    """Refuse: a client that is not authenticated may not have a token."""
    raise KafkaError("no listener authenticates its clients", code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
