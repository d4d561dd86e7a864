"""Requests in envelopes: what a broker sends to the controller in the name of a client, and what comes back.

Source: Kafka's ForwardingManager and EnvelopeUtils; KIP-590; docs/decisions/0089-envelopes-between-brokers.md.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Final

from kafka_wire.apis import api_name
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.kafka_principal_serde import serialized_principal
from trio_broker.security.kafka_principal import KafkaPrincipal

log = logging.getLogger(__name__)

NO_CLIENT = "0.0.0.0"
"""In place of a client's address: the broker asks for itself."""


ADMIN_MAGIC: Final = b"HTTP"
"""What an HTTP request in an envelope has before it: read as the key of an API it would be 18516, which is none."""


class RequestNotReadable(KafkaError):
    """The controller cannot read the request in the envelope, as when it is of an older release and has other
    versions."""

    code = ErrorCode.UNSUPPORTED_VERSION


def enveloped(
    header: RequestHeader, body: bytes | memoryview, client_host: str, principal: KafkaPrincipal | None = None
) -> EnvelopeRequest:
    """A request in an envelope; without a ``principal`` this broker asks for itself."""
    return EnvelopeRequest(
        request_data=b"".join((request_header(header), body)),
        request_principal=None if principal is None else serialized_principal(principal),
        client_host_address=ipaddress.ip_address(client_host).packed,
    )


def opened(header: RequestHeader, answer: EnvelopeResponse) -> bytes:
    """The body of the response in ``answer``, to the request of ``header``.

    Raises:
        NotController: the broker that was asked is not the controller.
        RequestNotReadable: the controller cannot read it.
        KafkaError: UNKNOWN_SERVER_ERROR: the controller refuses the envelope, which is no fault of the client's.
        WireError: the response is none.
    """
    code = answer.error_code
    if code == ErrorCode.NOT_CONTROLLER:
        raise NotController("the broker that was asked is not the controller")
    if code == ErrorCode.UNSUPPORTED_VERSION:
        raise RequestNotReadable(f"the controller cannot read {api_name(header.api_key)} v{header.api_version}")
    if code != ErrorCode.NONE or answer.response_data is None:
        log.error("the controller refuses an envelope with %s: error %d", api_name(header.api_key), code)
        raise KafkaError("the controller refuses what this broker forwards", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    _, position = read_response_header(header.api_key, header.api_version, answer.response_data)
    return answer.response_data[position:]


def enveloped_admin(question: bytes) -> EnvelopeRequest:
    """A request of a person to the admin app of another broker, in an envelope."""
    return EnvelopeRequest(
        request_data=ADMIN_MAGIC + question,
        request_principal=None,
        client_host_address=ipaddress.ip_address(NO_CLIENT).packed,
    )


def admin_question(request: EnvelopeRequest) -> bytes | None:
    """The request to the admin app in an envelope; None where it has another one."""
    data = bytes(request.request_data)
    return data[len(ADMIN_MAGIC) :] if data.startswith(ADMIN_MAGIC) else None
