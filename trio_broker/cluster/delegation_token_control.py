"""Decides about delegation tokens, and finds them in the image.

A token is a name that the controller draws, and a password that follows from it by ``delegation.token.secret.key``: so
records have no secret in them, and every broker that has the key knows the password. A client that has a token acts
as its owner. The owner, the requester and the renewers see it; the owner and the renewers may prolong or end it.

Source: Kafka's DelegationTokenControlManager, DelegationTokenManager and TokenInformation; KIP-48, KIP-373.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.limits import INT64_MAX
from kafka_wire.primitives import uuid_text
from kafka_wire.stored.metadata import DelegationTokenRecord, RemoveDelegationTokenRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.sasl_config import SaslConfig
from trio_broker.runtime.randomness import Random, random_uuid
from trio_broker.security.kafka_principal import USER_TYPE, KafkaPrincipal
from trio_broker.security.sasl.scram import TokenLogin

DISABLED: Final = KafkaError(
    "there are no delegation tokens: delegation.token.secret.key is not set",
    code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
)

MAX_NAMES_BYTES: Final = 4096
"""Of the owner and the renewers of one token, together: each user may create tokens, and all brokers keep them."""

MAX_TOKENS: Final = 10_000
"""Of one requester at a time: a user needs no right to create tokens of its own, and all brokers keep them for days."""


@attrs.frozen
class NewToken:
    """Whose token is wanted, by whom, who else may prolong it, and for how long at most; not above 0 for the broker's
    limit."""

    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: Sequence[KafkaPrincipal]
    max_lifetime_ms: int


def token_records(image: MetadataImage) -> Mapping[str, DelegationTokenRecord]:
    """All tokens, by their ids."""
    return image.records_of(DelegationTokenRecord)


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """The secret of a token. Its password is this in base64."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def find_token_login(image: MetadataImage, secret_key: str | None, token_id: str, now_ms: int) -> TokenLogin | None:
    """What a client logs in by with a token; None if there is no such token, or none that is valid now."""
    token = token_records(image).get(token_id)
    if token is None or not secret_key or is_expired(token, now_ms):
        return None
    owner = KafkaPrincipal.parse(token.owner)
    # In Kafka an owner may be of another type, and its tokens are those of the user of that name.
    if owner.type != USER_TYPE:
        return None
    password = base64.b64encode(token_hmac(secret_key, token_id)).decode()
    return TokenLogin(owner.name, password, token.expiration_timestamp)


def may_see(principal: KafkaPrincipal, token: DelegationTokenRecord) -> bool:
    """Whether a token concerns ``principal``, who then needs no right to see it."""
    return str(principal) in (token.owner, token.requester, *token.renewers)


def decide_new_token(
    image: MetadataImage, config: SaslConfig, wanted: NewToken, now_ms: int, random: Random
) -> Steps[ControllerResult[DelegationTokenRecord]]:
    """Create a token.

    Raises:
        KafkaError: INVALID_PRINCIPAL_TYPE: its owner or a renewer is no user. INVALID_REQUEST: their names are too
            long. POLICY_VIOLATION: the requester has too many. DELEGATION_TOKEN_AUTH_DISABLED.
    """
    for each in (wanted.owner, *wanted.renewers):
        if each.type != USER_TYPE:
            text = f"{each} is no {USER_TYPE}, which owners and renewers of tokens are"
            raise KafkaError(text, code=ErrorCode.INVALID_PRINCIPAL_TYPE)
    name_bytes = sum(len(str(each).encode()) for each in (wanted.owner, *wanted.renewers))
    if name_bytes > MAX_NAMES_BYTES:
        text = f"the names of owner and renewers have {name_bytes} bytes, at most {MAX_NAMES_BYTES} are kept"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
    _require_enabled(config)
    yield from _require_few(image, str(wanted.requester))
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if wanted.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, wanted.max_lifetime_ms)
    max_timestamp = _later(now_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=str(wanted.owner),
        requester=str(wanted.requester),
        renewers=[str(renewer) for renewer in wanted.renewers],
        issue_timestamp=now_ms,
        max_timestamp=max_timestamp,
        expiration_timestamp=min(max_timestamp, _later(now_ms, config.delegation_token_expiry_time_ms)),
        token_id=uuid_text(random_uuid(random)),
    )
    return ControllerResult(token, (token,))


def decide_token_renewal(
    image: MetadataImage, config: SaslConfig, requester: KafkaPrincipal, secret: bytes, period_ms: int, now_ms: int
) -> Steps[ControllerResult[int]]:
    """Prolong a token by ``period_ms``, at most by the broker's limit, which a number that is not above 0 stands for;
    return its new end.

    Raises:
        KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH,
            DELEGATION_TOKEN_AUTH_DISABLED.
    """
    token = yield from _found(image, config, secret)
    _require_valid(token, now_ms)
    _require_renewer(token, requester)
    limit_ms = config.delegation_token_expiry_time_ms
    return _ending(token, _later(now_ms, min(limit_ms, period_ms) if period_ms > 0 else limit_ms))


def decide_token_end(
    image: MetadataImage, config: SaslConfig, requester: KafkaPrincipal, secret: bytes, period_ms: int, now_ms: int
) -> Steps[ControllerResult[int]]:
    """End a token after ``period_ms``, at once if that is below 0; return its new end.

    Raises:
        KafkaError: as ``decide_token_renewal``.
    """
    token = yield from _found(image, config, secret)
    _require_renewer(token, requester)
    if period_ms < 0:
        return ControllerResult(now_ms, (RemoveDelegationTokenRecord(token_id=token.token_id),))
    _require_valid(token, now_ms)
    return _ending(token, _later(now_ms, period_ms))


def decide_expired_tokens(image: MetadataImage, now_ms: int) -> Steps[ControllerResult[int]]:
    """Remove the tokens that are over; return how many."""
    budget = YieldBudget()
    removed = []
    for token in token_records(image).values():
        if budget.is_spent:
            yield budget.renewed
        if is_expired(token, now_ms):
            removed.append(RemoveDelegationTokenRecord(token_id=token.token_id))
    return ControllerResult(len(removed), tuple(removed))


def _require_enabled(config: SaslConfig) -> str:
    if not config.delegation_token_secret_key:
        raise DISABLED
    return config.delegation_token_secret_key


def _found(image: MetadataImage, config: SaslConfig, secret: bytes) -> Steps[DelegationTokenRecord]:
    """The token with that secret. Each is tried: renewals are days apart, and secrets are not kept."""
    secret_key = _require_enabled(config)
    budget = YieldBudget()
    for token_id, token in token_records(image).items():
        if budget.is_spent:
            yield budget.renewed
        if hmac.compare_digest(token_hmac(secret_key, token_id), secret):
            return token
    raise KafkaError("there is no token with this secret", code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND)


def _require_few(image: MetadataImage, requester: str) -> Steps[None]:
    count, budget = 0, YieldBudget()
    for token in token_records(image).values():
        if budget.is_spent:
            yield budget.renewed
        count += token.requester == requester
    if count >= MAX_TOKENS:
        text = f"{requester} has created {count} tokens that are not over yet, of which there may be {MAX_TOKENS}"
        raise KafkaError(text, code=ErrorCode.POLICY_VIOLATION)


def _require_valid(token: DelegationTokenRecord, now_ms: int) -> None:
    if is_expired(token, now_ms):
        raise KafkaError(f"token {token.token_id} is over", code=ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _require_renewer(token: DelegationTokenRecord, requester: KafkaPrincipal) -> None:
    if str(requester) not in (token.owner, *token.renewers):
        text = f"{requester} is neither owner nor renewer of token {token.token_id}"
        raise KafkaError(text, code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _ending(token: DelegationTokenRecord, end_ms: int) -> ControllerResult[int]:
    changed = copy(token)
    changed.expiration_timestamp = min(token.max_timestamp, end_ms)
    return ControllerResult(changed.expiration_timestamp, (changed,))


def _later(now_ms: int, duration_ms: int) -> int:
    return min(INT64_MAX, now_ms + duration_ms)
