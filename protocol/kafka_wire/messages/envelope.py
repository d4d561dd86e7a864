"""Envelope (api key 58): a client's request that a broker forwards to the controller, as a whole (KIP-590).

It has the bytes of the request, header and body, and the answer has those of the response. So the forwarding broker
need not understand either.

Source: Kafka's EnvelopeRequest.json and EnvelopeResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Bytes, Int16
from kafka_wire.schema import Request, field, message


@message(key=58, versions="0", flexible="0+")
class EnvelopeRequest(Request["EnvelopeResponse"]):
    """``request_principal`` is the client as the forwarding broker has authenticated it, null where nobody logs in;
    ``client_host_address`` is its address, of 4 bytes or of 16."""

    request_data: Bytes = field(secret=True)
    request_principal: Bytes | None
    client_host_address: Bytes


@message(key=58, versions="0", flexible="0+")
class EnvelopeResponse:
    """``response_data`` is null with an error, which is about the envelope and not about the request in it."""

    response_data: Bytes | None = field(default=None, secret=True)
    error_code: Int16 = field(default=0)
