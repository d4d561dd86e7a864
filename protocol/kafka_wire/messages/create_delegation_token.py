"""CreateDelegationToken (api key 38): a token with which others may act in the caller's name (KIP-48).

Version notes (0 was removed in Kafka 4.0):

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: the token's owner may be another than the caller (KIP-373).

Source: Kafka's CreateDelegationTokenRequest.json and CreateDelegationTokenResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int32, Int64, String
from kafka_wire.schema import Request, field, message, struct


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"]):
    """Null owners stand for the caller; ``max_lifetime_ms`` of -1 for the broker's setting."""

    owner_principal_type: String | None = field("3+", default="")
    owner_principal_name: String | None = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


@struct
class CreatableRenewers:
    """Somebody who may prolong the token's life."""

    principal_type: String
    principal_name: String


@message(key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token; times are milliseconds since 1970."""

    error_code: Int16 = field(default=0)
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field("3+", default="")
    token_requester_principal_name: String = field("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes = field(secret=True)
    throttle_time_ms: Int32 = field(default=0)
