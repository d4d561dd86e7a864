"""SaslAuthenticate (api key 36): one token of a SASL mechanism, and the answer of the other side (KIP-152).

Version notes:

* 1: says how long the session lasts, within which the client has to authenticate again (KIP-368).
* 2: flexible versions.

Source: Kafka's SaslAuthenticateRequest.json and SaslAuthenticateResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16, Int64, String
from kafka_wire.schema import Request, field, message


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"]):
    auth_bytes: Bytes = field(secret=True)


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """``session_lifetime_ms`` is 0 for a session without an end, and before the last token."""

    error_code: Int16 = field(default=0)
    error_message: String | None
    auth_bytes: Bytes = field(secret=True)
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
