"""DescribeDelegationToken: the tokens of some owners, or of all, as far as the client may see them.

Each broker answers by its own metadata. An answer has the secrets of the tokens, as in Kafka: who sees one may use it.

Source: Kafka's KafkaApis.handleDescribeTokensRequest and DelegationTokenManager.filterToken; KIP-48, KIP-373.
"""

from __future__ import annotations

from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafka_wire.stored.metadata import DelegationTokenRecord
from trio_broker.cluster.delegation_token_control import DISABLED, may_see, token_hmac, token_records
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.delegation_tokens import REQUESTER_SINCE_VERSION, require_token_requests
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS, InHandler
from trio_broker.security.kafka_principal import KafkaPrincipal


def error_response(request: DescribeDelegationTokenRequest, error: KafkaError) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])


@handles(
    DescribeDelegationTokenRequest,
    error_response=error_response,
    requires=[
        InHandler(
            [DESCRIBE_DELEGATION_TOKEN, DESCRIBE_TOKENS],
            "left out without both, unless it is the client's own or the client may renew it",
        )
    ],
)
async def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse:
    """List the tokens that the client has something to do with, or a right to see."""
    require_token_requests(context.principal)
    secret_key = context.services.config.sasl.delegation_token_secret_key
    if not secret_key:
        raise DISABLED
    asked = None
    if request.owners is not None:
        asked = [KafkaPrincipal(each.principal_type, each.principal_name) async for each in InTurns(request.owners)]
    tokens = [
        described(token, token_hmac(secret_key, token.token_id), context.version)
        async for token in InTurns(token_records(context.services.metadata_cache.image).values())
        if (asked is None or any(may_see(owner, token) for owner in asked)) and is_shown(token, context)
    ]
    return DescribeDelegationTokenResponse(tokens=tokens)


def is_shown(token: DelegationTokenRecord, context: Context) -> bool:
    """Whether the client may see ``token``, and so use it."""
    return (
        may_see(context.principal, token)
        or context.may(DESCRIBE_DELEGATION_TOKEN, token.token_id, is_audited=False)
        or context.may(DESCRIBE_TOKENS, token.owner, is_audited=False)
    )


def described(token: DelegationTokenRecord, secret: bytes, version: int) -> DescribedDelegationToken:
    owner, requester = KafkaPrincipal.parse(token.owner), KafkaPrincipal.parse(token.requester)
    renewers = (KafkaPrincipal.parse(each) for each in token.renewers)
    description = DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name) for each in renewers
        ],
    )
    if version >= REQUESTER_SINCE_VERSION:
        description.token_requester_principal_type = requester.type
        description.token_requester_principal_name = requester.name
    return description
