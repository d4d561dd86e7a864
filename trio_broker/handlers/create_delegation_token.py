"""CreateDelegationToken: have a token, with which others may act as its owner.

Source: Kafka's KafkaApis.handleCreateTokenRequest; KIP-48, KIP-373.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.cluster.delegation_token_control import NewToken, token_hmac
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.delegation_tokens import REQUESTER_SINCE_VERSION, require_token_requests
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CREATE_TOKENS, InHandler
from trio_broker.security.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal


def error_response(request: CreateDelegationTokenRequest, error: KafkaError) -> CreateDelegationTokenResponse:
    return refused(owner_of(request, ANONYMOUS), error)


def refused(owner: KafkaPrincipal, error: KafkaError) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error.code,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
        token_id="",
        hmac=b"",
    )


@handles(
    CreateDelegationTokenRequest,
    error_response=error_response,
    requires=[InHandler([CREATE_TOKENS], "of another owner, the request: DELEGATION_TOKEN_AUTHORIZATION_FAILED")],
    by_controller=True,
)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse:
    """Create a token of the client, or of another owner."""
    requester = context.principal
    owner = owner_of(request, requester)
    response = await answer(request, context, owner)
    if context.version >= REQUESTER_SINCE_VERSION:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return response


async def answer(
    request: CreateDelegationTokenRequest, context: Context, owner: KafkaPrincipal
) -> CreateDelegationTokenResponse:
    """The response, but for who has asked."""
    renewers = [KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers]
    try:
        require_token_requests(context.principal)
        if owner != context.principal:
            context.require(CREATE_TOKENS, str(owner))
        context.release_for_disk()
        token = await context.services.controller.create_delegation_token(
            NewToken(owner, context.principal, renewers, request.max_lifetime_ms)
        )
    except KafkaError as error:
        if error.code == ErrorCode.NOT_CONTROLLER:
            raise
        return refused(owner, error)
    secret_key = context.services.config.sasl.delegation_token_secret_key
    assert secret_key is not None, "there is a token"
    return CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiration_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret_key, token.token_id),
    )


def owner_of(request: CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    """Whose token is asked for: the requester's, if no other is named."""
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or USER_TYPE, request.owner_principal_name)
