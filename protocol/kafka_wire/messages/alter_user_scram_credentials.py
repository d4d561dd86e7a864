"""AlterUserScramCredentials (api key 51): give users passwords for SCRAM, or take them away (KIP-554).

Version notes:

* 0: flexible from the start.

Source: Kafka's AlterUserScramCredentialsRequest.json and AlterUserScramCredentialsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request["AlterUserScramCredentialsResponse"]):
    """A user may be named once."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class ScramCredentialDeletion:
    """``mechanism`` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512, as in the other structures."""

    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    """The client salts the password, which does not travel itself."""

    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes = field(secret=True)


@message(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """One result for each user."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]


@struct
class AlterUserScramCredentialsResult:
    user: String
    error_code: Int16 = field(default=0)
    error_message: String | None
