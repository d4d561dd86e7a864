"""DescribeUserScramCredentials (api key 50): which users can log in by SCRAM, and how (KIP-554).

Version notes:

* 0: flexible from the start.

Source: Kafka's DescribeUserScramCredentialsRequest.json and DescribeUserScramCredentialsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request["DescribeUserScramCredentialsResponse"]):
    """The users asked about; null or none stands for all there are."""

    users: list[UserName] | None


@struct
class UserName:
    name: String


@message(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
    results: list[DescribeUserScramCredentialsResult]


@struct
class DescribeUserScramCredentialsResult:
    user: String
    error_code: Int16 = field(default=0)
    error_message: String | None
    credential_infos: list[CredentialInfo]


@struct
class CredentialInfo:
    """``mechanism`` is 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""

    mechanism: Int8
    iterations: Int32
