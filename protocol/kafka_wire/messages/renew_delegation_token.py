"""RenewDelegationToken (api key 39): prolong the life of a delegation token (KIP-48).

Version notes (0 was removed in Kafka 4.0):

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.

Source: Kafka's RenewDelegationTokenRequest.json and RenewDelegationTokenResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int32, Int64
from kafka_wire.schema import Request, field, message


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"]):
    hmac: Bytes = field(secret=True)
    renew_period_ms: Int64


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """When the token ends now, in milliseconds since 1970."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)
