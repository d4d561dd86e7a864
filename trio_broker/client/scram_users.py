"""The users of a cluster who log in by SCRAM, and their passwords, which do not travel.

Source: Kafka's DescribeUserScramCredentials and AlterUserScramCredentials APIs; KIP-554.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from kafka_wire.sasl.scram import MECHANISMS_BY_NUMBER, MIN_ITERATIONS, NONCE_BYTES, ScramMechanism, salt_of
from trio_broker.client.errors import check, only
from trio_broker.client.kafka_client import KafkaClient


def describe_users(client: KafkaClient, name: str | None = None) -> dict[str, list[ScramMechanism]]:
    """Return the mechanisms for which each user has a password: of one user, who may be missing, or of all.

    Raises:
        Refused: they may not be seen.
    """
    request = DescribeUserScramCredentialsRequest(users=None if name is None else [UserName(name=name)])

    def ask() -> dict[str, list[ScramMechanism]]:
        response = client.ask(client.controller(), request)
        check("users", response.error_code, response.error_message)
        found = {}
        for each in response.results:
            if each.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            check(f"user {each.user!r}", each.error_code, each.error_message)
            numbers = sorted(info.mechanism for info in each.credential_infos)
            found[each.user] = [MECHANISMS_BY_NUMBER[number] for number in numbers if number in MECHANISMS_BY_NUMBER]
        return found

    return client.attempt(ask)


def set_password(client: KafkaClient, name: str, password: str, mechanism: ScramMechanism) -> None:
    """Let a user log in with ``password``, and with no other one by that mechanism. A new salt is taken.

    Raises:
        Refused: the name or the password is not allowed.
    """
    salt = salt_of(secrets.token_bytes(NONCE_BYTES))
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.number,
        iterations=MIN_ITERATIONS,
        salt=salt,
        salted_password=mechanism.salted_password(password, salt, MIN_ITERATIONS),
    )
    _alter(client, name, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))


def delete_passwords(client: KafkaClient, name: str, mechanisms: Iterable[ScramMechanism]) -> None:
    """Take a user's passwords away; one that is gone is no error.

    Raises:
        Refused: they may not be taken.
    """
    # A request names a user once.
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=name, mechanism=mechanism.number)
        request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
        _alter(client, name, request, taken=(ErrorCode.RESOURCE_NOT_FOUND,))


def _alter(
    client: KafkaClient, name: str, request: AlterUserScramCredentialsRequest, taken: Collection[int] = ()
) -> None:
    def ask() -> None:
        result = only(client.ask(client.controller(), request).results, f"user {name!r}")
        if result.error_code not in taken:
            check(f"user {name!r}", result.error_code, result.error_message)

    client.attempt(ask)
