"""ExpireDelegationToken (api key 40): end the life of a delegation token, at once or soon (KIP-48).

Version notes (0 was removed in Kafka 4.0):

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.

Source: Kafka's ExpireDelegationTokenRequest.json and ExpireDelegationTokenResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int32, Int64
from kafka_wire.schema import Request, field, message


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"]):
    hmac: Bytes = field(secret=True)
    expiry_time_period_ms: Int64


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """When the token ends now, in milliseconds since 1970."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)
