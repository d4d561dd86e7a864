"""DescribeDelegationToken (api key 41): the delegation tokens of some owners, or of all (KIP-48).

Version notes (0 was removed in Kafka 4.0):

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: who asked for the token, who may be another than its owner (KIP-373).

Source: Kafka's DescribeDelegationTokenRequest.json and DescribeDelegationTokenResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest(Request["DescribeDelegationTokenResponse"]):
    """The owners asked about; null stands for all tokens."""

    owners: list[DescribeDelegationTokenOwner] | None


@struct
class DescribeDelegationTokenOwner:
    principal_type: String
    principal_name: String


@message(key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16 = field(default=0)
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)


@struct
class DescribedDelegationToken:
    """Times are milliseconds since 1970."""

    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    renewers: list[DescribedDelegationTokenRenewer]


@struct
class DescribedDelegationTokenRenewer:
    principal_type: String
    principal_name: String
