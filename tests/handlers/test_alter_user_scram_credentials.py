"""AlterUserScramCredentials, and what DescribeUserScramCredentials says then."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.changes.change import ChangedResource
from trio_broker.cluster.scram_control import find_credential

TWICE = "A user credential cannot be altered twice in the same request"


def upsertion(name, *, mechanism=1, iterations=4096):
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted"
    )


def deletion(name, mechanism=1):
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(wire, *changes):
    """The error of each user."""
    deletions = [each for each in changes if isinstance(each, ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, ScramCredentialUpsertion)]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    results = (await wire.ask(request, 0)).results
    return {each.user: (ErrorCode(each.error_code), each.error_message) for each in results}


async def described(wire):
    results = (await wire.ask(DescribeUserScramCredentialsRequest(users=None), 0)).results
    return {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in results}


async def test_a_user_has_a_password_until_it_is_taken_away(wire):
    assert await alter(wire, upsertion("alice"), upsertion("bob", mechanism=2, iterations=16384)) == {
        "alice": (ErrorCode.NONE, None),
        "bob": (ErrorCode.NONE, None),
    }
    assert await described(wire) == {"alice": [(1, 4096)], "bob": [(2, 16384)]}
    found = find_credential(wire.services.metadata_cache.image, "alice", ScramMechanism.SHA_256)
    assert found == ScramMechanism.SHA_256.credential(b"salted", b"salt", 4096)
    assert find_credential(wire.services.metadata_cache.image, "alice", ScramMechanism.SHA_512) is None
    assert await alter(wire, deletion("bob", 2)) == {"bob": (ErrorCode.NONE, None)}
    assert await described(wire) == {"alice": [(1, 4096)]}


async def test_passwords_are_kept_as_changes_without_a_secret(wire):
    await alter(wire, upsertion("alice"))
    await alter(wire, upsertion("alice", iterations=8192))
    await alter(wire, deletion("alice"))
    made = [each for each in wire.services.changes.changes if each.resource_type is ChangedResource.USER]
    assert [(each.resource, value.name, value.old, value.new) for each in made for value in each.values] == [
        ("alice", "SCRAM-SHA-256", None, "iterations=4096"),
        ("alice", "SCRAM-SHA-256", "iterations=4096", "iterations=8192"),
        ("alice", "SCRAM-SHA-256", "iterations=8192", None),
    ]


async def test_each_user_is_refused_alone(wire):
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    outcomes = await alter(
        wire,
        deletion("missing"),
        upsertion("good"),
        upsertion(""),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        upsertion("unknown", mechanism=3),
        upsertion("twice"),
        upsertion("twice", mechanism=2),
        upsertion("twice"),
    )
    assert outcomes == {
        "missing": (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        "good": (ErrorCode.NONE, None),
        "": (unacceptable, "Username must not be empty"),
        "few": (unacceptable, "Too few iterations"),
        "many": (unacceptable, "Too many iterations"),
        "unknown": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "twice": (ErrorCode.DUPLICATE_RESOURCE, TWICE),
    }
    assert await described(wire) == {"good": [(1, 4096)]}
