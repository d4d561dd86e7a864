"""SaslHandshake (api key 17): choose the mechanism by which a client authenticates (KIP-43).

Version notes:

* 0: the tokens follow without Kafka's headers, each behind its size.
* 1: they travel in SaslAuthenticate (KIP-152). It is never flexible: old clients would ask for it before they know what
  the broker serves.

Source: Kafka's SaslHandshakeRequest.json and SaslHandshakeResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, String
from kafka_wire.schema import Request, field, message


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request["SaslHandshakeResponse"]):
    mechanism: String


@message(key=17, versions="0-1", flexible="none")
class SaslHandshakeResponse:
    """``mechanisms`` are those of the listener, whether the one asked for is among them or not."""

    error_code: Int16 = field(default=0)
    mechanisms: list[String]
