"""The delegation tokens of a cluster: made, seen, prolonged and ended, for a client with a credential of its own.

Source: Kafka's CreateDelegationToken, DescribeDelegationToken, RenewDelegationToken and ExpireDelegationToken APIs;
KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from kafka_wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from trio_broker.client.errors import check
from trio_broker.client.kafka_client import KafkaClient

USER_TYPE: Final = "User"
"""Of the principals that own tokens and renew them."""

BROKERS_LIMIT: Final = -1
"""The duration that stands for the longest that the broker allows."""

AT_ONCE: Final = -1
"""After how long a token ends."""


@attrs.frozen
class DelegationToken:
    """A token. Times are in milliseconds since 1970; it ends at ``expires_at_ms``, and can be prolonged up to
    ``max_timestamp_ms``."""

    token_id: str
    owner: str
    renewers: tuple[str, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_timestamp_ms: int
    hmac: bytes = attrs.field(repr=False)

    @property
    def password(self) -> str:
        """What a client logs in with by SCRAM, beside the id."""
        return base64.b64encode(self.hmac).decode()


def create_token(
    client: KafkaClient, owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> DelegationToken:
    """Create a token of the client's user, or of ``owner``.

    Raises:
        Refused: the cluster has no tokens, or the client may not have one.
    """
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else USER_TYPE,
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type=USER_TYPE, principal_name=name) for name in renewers],
        max_lifetime_ms=max_lifetime_ms,
    )

    def ask() -> DelegationToken:
        made = client.ask(client.controller(), request)
        check("delegation token", made.error_code)
        return DelegationToken(
            made.token_id,
            made.principal_name,
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            bytes(made.hmac),
        )

    return client.attempt(ask, repeatable=False)


def describe_tokens(client: KafkaClient, users: Sequence[str] = ()) -> list[DelegationToken]:
    """Return the tokens that the client may see, with their secrets: all, or those that concern some users, as owners,
    as renewers or because they have asked for them.

    Raises:
        Refused: the cluster has no tokens, or the client may not ask for them.
    """
    named = [DescribeDelegationTokenOwner(principal_type=USER_TYPE, principal_name=name) for name in users]

    def ask() -> list[DelegationToken]:
        response = client.ask(client.any_broker(), DescribeDelegationTokenRequest(owners=named or None))
        check("delegation tokens", response.error_code)
        return [
            DelegationToken(
                each.token_id,
                each.principal_name,
                tuple(renewer.principal_name for renewer in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
                bytes(each.hmac),
            )
            for each in response.tokens
        ]

    return client.attempt(ask)


def renew_token(client: KafkaClient, token: DelegationToken, period_ms: int) -> int:
    """Prolong a token by ``period_ms`` from now; return its new end.

    Raises:
        Refused: the client is neither owner nor renewer, or the token is over.
    """

    def ask() -> int:
        request = RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms)
        response = client.ask(client.controller(), request)
        check(f"delegation token {token.token_id}", response.error_code)
        return response.expiry_timestamp_ms

    return client.attempt(ask)


def expire_token(client: KafkaClient, token: DelegationToken) -> None:
    """End a token at once; one that is gone is no error.

    Raises:
        Refused: the client is neither owner nor renewer.
    """

    def ask() -> None:
        request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=AT_ONCE)
        response = client.ask(client.controller(), request)
        if response.error_code != ErrorCode.DELEGATION_TOKEN_NOT_FOUND:
            check(f"delegation token {token.token_id}", response.error_code)

    client.attempt(ask)
