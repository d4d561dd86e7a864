"""Envelope: answer a request that another broker has forwarded, as the controller.

The request in it is answered like one of a client of this broker, with the client's address and id, by the same
handlers and limits. What is wrong with the envelope is its own error; what is wrong with the request is in the response
in it. NOT_CONTROLLER is the envelope's, wherever it comes from, so that the other broker asks the next controller.

An envelope may hold an HTTP request to the admin app instead, which is about this broker and no other.

Let in only on the listener of brokers: it speaks for a client that is not there.

Source: Kafka's EnvelopeUtils and RequestChannel.buildResponseSend; KIP-590;
docs/decisions/0089-envelopes-between-brokers.md.
"""

from __future__ import annotations

import ipaddress

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.headers import read_request_header
from kafka_wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from trio_broker.cluster.broker_clients import BROKER_CLIENT_ID
from trio_broker.cluster.envelopes import NO_CLIENT, admin_question
from trio_broker.cluster.kafka_principal_serde import deserialized_principal
from trio_broker.common.request_phase import RequestPhase
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.forwarding import ForwardedRequest
from trio_broker.handlers.support.registry import handles, is_served, served_apis
from trio_broker.handlers.support.rights import CLUSTER_ACTION, for_cluster
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_channel import ConnectionInfo
from trio_broker.security.kafka_principal import KafkaPrincipal


def error_response(request: EnvelopeRequest, error: KafkaError) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=error.code)


@handles(EnvelopeRequest, error_response=error_response, requires=[for_cluster(CLUSTER_ACTION)], between_brokers=True)
async def envelope(request: EnvelopeRequest, context: Context) -> EnvelopeResponse:
    """Answer the request in it, if it is one of the controller's, or one to the admin app."""
    if (question := admin_question(request)) is not None:
        return await answer_admin(question, context)
    forwarded = forwarded_request(request, context)
    context.release_handler(RequestPhase.PURGATORY)
    try:
        answer = await context.services.answer_request(forwarded)
    except CloseConnection as error:
        raise KafkaError(str(error), code=ErrorCode.UNSUPPORTED_VERSION) from None
    if forwarded.is_misdirected:
        raise KafkaError("this broker is not the controller", code=ErrorCode.NOT_CONTROLLER)
    return EnvelopeResponse(response_data=answer)


async def answer_admin(question: bytes, context: Context) -> EnvelopeResponse:
    """Answer an HTTP request that another broker has passed on.

    Raises:
        KafkaError: INVALID_REQUEST: there is no admin app here.
    """
    answer = context.services.answer_admin
    if answer is None:
        raise KafkaError("this broker has no admin app: admin.listener is empty", code=ErrorCode.INVALID_REQUEST)
    context.release_handler(RequestPhase.PURGATORY)
    return EnvelopeResponse(response_data=await answer(question))


def forwarded_request(request: EnvelopeRequest, context: Context) -> ForwardedRequest:
    """The request in an envelope.

    Raises:
        KafkaError: INVALID_REQUEST: it is none that is forwarded, or the client's address is none.
            UNSUPPORTED_VERSION: it cannot be read. PRINCIPAL_DESERIALIZATION_FAILURE: nor can its principal.
    """
    data = memoryview(request.request_data)
    try:
        header, position = read_request_header(data)
        client_host = str(ipaddress.ip_address(request.client_host_address))
    except WireError as error:
        raise KafkaError(str(error), code=ErrorCode.UNSUPPORTED_VERSION) from None
    except ValueError as error:
        raise KafkaError(str(error), code=ErrorCode.INVALID_REQUEST) from None
    api = served_apis().get(header.api_key)
    if api is None or not api.by_controller or api.between_brokers:
        raise KafkaError(f"API {header.api_key} is not forwarded", code=ErrorCode.INVALID_REQUEST)
    if not is_served(header.api_key, header.api_version):
        text = f"{api.api_key.name} v{header.api_version} is not served"
        raise KafkaError(text, code=ErrorCode.UNSUPPORTED_VERSION)
    principal = principal_of(request, context)
    return ForwardedRequest(header, data[position:], connection_of(client_host, context), principal=principal)


def principal_of(request: EnvelopeRequest, context: Context) -> KafkaPrincipal:
    """Who has sent the request in an envelope. Without a principal the broker asks for itself: what it does on its own,
    or has let a client do.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE.
    """
    if request.request_principal is None:
        return context.principal
    try:
        return deserialized_principal(request.request_principal)
    except WireError as error:
        raise KafkaError(str(error), code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from None


def connection_of(client_host: str, context: Context) -> ConnectionInfo:
    """The connection of a client to the broker that has sent an envelope; without a client that of the broker itself.

    The broker is named by what it calls itself, and by its address.
    """
    connection = context.connection
    known = BROKER_CLIENT_ID.fullmatch(context.client_id or "")
    name = "" if known is None else f"broker {known[1]}"
    if client_host == NO_CLIENT:
        return attrs.evolve(connection, forwarded_by=name)
    by = f"{name} at {connection.peer_host}" if name else connection.peer_host
    return attrs.evolve(connection, peer_host=client_host, peer_port=0, forwarded_by=by)
