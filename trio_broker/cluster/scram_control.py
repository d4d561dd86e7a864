"""Decides about users' passwords for SCRAM, and finds them in the image.

A password is never here: clients send what is salted, of which only the keys to check it with are kept.

Source: Kafka's ScramControlManager and ScramImage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.sasl.scram import (
    MAX_ITERATIONS,
    MECHANISMS_BY_NUMBER,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)
from kafka_wire.stored.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget


@attrs.frozen
class ScramDeletion:
    """A user has no password of a mechanism any more."""

    user: str
    mechanism: int


@attrs.frozen
class ScramUpsertion:
    """A user has another password, or a first one, for a mechanism."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = attrs.field(repr=False)
    salted_password: bytes = attrs.field(repr=False)


ScramChange = ScramDeletion | ScramUpsertion


def credential_records(image: MetadataImage) -> Mapping[tuple[str, int], UserScramCredentialRecord]:
    """All passwords, by user and number of the mechanism."""
    return image.records_of(UserScramCredentialRecord)


def find_credential(image: MetadataImage, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
    """What is kept of a user's password; None if there is none for this mechanism."""
    found = credential_records(image).get((user, mechanism.number))
    return None if found is None else ScramCredential(found.salt, found.stored_key, found.server_key, found.iterations)


def decide_scram_changes(
    image: MetadataImage, changes: Sequence[ScramChange]
) -> Steps[ControllerResult[Mapping[str, KafkaError | None]]]:
    """Decide about each user, who may be named once; what is not refused is written together."""
    budget = YieldBudget()
    outcomes: dict[str, KafkaError | None] = {}
    records: dict[str, Any] = {}
    for change in changes:
        if budget.is_spent:
            yield budget.renewed
        if change.user in outcomes:
            if records.pop(change.user, None) is not None:
                text = "A user credential cannot be altered twice in the same request"
                outcomes[change.user] = KafkaError(text, code=ErrorCode.DUPLICATE_RESOURCE)
            continue
        if (refusal := _refusal(image, change)) is None:
            records[change.user] = _record(change)
        outcomes[change.user] = refusal
    return ControllerResult(outcomes, tuple(records.values()))


def _refusal(image: MetadataImage, change: ScramChange) -> KafkaError | None:
    if not change.user:
        return KafkaError("Username must not be empty", code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
    if change.mechanism not in MECHANISMS_BY_NUMBER:
        return KafkaError("Unknown SCRAM mechanism", code=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if isinstance(change, ScramDeletion):
        if (change.user, change.mechanism) not in credential_records(image):
            text = "Attempt to delete a user credential that does not exist"
            return KafkaError(text, code=ErrorCode.RESOURCE_NOT_FOUND)
    elif not MIN_ITERATIONS <= change.iterations <= MAX_ITERATIONS:
        amount = "few" if change.iterations < MIN_ITERATIONS else "many"
        return KafkaError(f"Too {amount} iterations", code=ErrorCode.UNACCEPTABLE_CREDENTIAL)
    return None


def _record(change: ScramChange) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, ScramDeletion):
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
    mechanism = MECHANISMS_BY_NUMBER[change.mechanism]
    credential = mechanism.credential(change.salted_password, change.salt, change.iterations)
    return UserScramCredentialRecord(
        name=change.user,
        mechanism=change.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
