"""Requests that are the controller's, on a broker that may not be the controller.

A client sends CreateTopics to any broker. One that is not the controller sends the request on as it came, in an
Envelope, and passes the answer back as it came. The controller opens the envelope and answers what is in it like a
request of its own clients (``handlers/envelope.py``), but never sends it on.

On a broker alone there is none of this: its handlers are called directly.

Source: Kafka's ForwardingManager and EnvelopeUtils; KIP-590; docs/decisions/0089-envelopes-between-brokers.md.
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType, GeneratorType
from typing import Any

import attrs

from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.controller_channel import ControllerChannel, SendToController
from trio_broker.cluster.envelopes import RequestNotReadable, enveloped, opened
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import run_steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import Handler, ResponseOf, ServedApi
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_channel import QueuedRequest


@attrs.define(eq=False)
class ForwardedRequest(QueuedRequest):
    """A request that came in an Envelope; ``is_misdirected`` says that this broker was not the controller."""

    is_misdirected: bool = False


def forwarding_handler(api: ServedApi, channel: ControllerChannel) -> Handler:
    """Return a handler of ``api``, which is the controller's, for a broker of several."""

    def handle(message: Any, context: Context) -> Coroutine[Any, Any, ResponseOf[Any]]:
        if isinstance(context.request, ForwardedRequest):
            return _answer_forwarded(api, message, context, context.request, channel)
        return _answer(api, message, context, channel)

    return handle


async def _answer_forwarded(
    api: ServedApi, message: Any, context: Context, request: ForwardedRequest, channel: ControllerChannel
) -> ResponseOf[Any]:
    try:
        channel.require_here()
        return await completed(api.handler(message, context))
    except KafkaError as error:
        request.is_misdirected = error.code == ErrorCode.NOT_CONTROLLER
        raise


async def _answer(api: ServedApi, message: Any, context: Context, channel: ControllerChannel) -> ResponseOf[Any]:
    """The answer of the controller, but for that part of the request which is this broker's own."""
    own, rest = (None, message) if api.local_part is None else await api.local_part.split(message, context)
    response = None if own is None else await completed(api.handler(own, context))
    if rest is None:
        return response
    body = context.request.body if rest is message else b"".join(encode(rest, context.version))  # type: ignore[arg-type]

    async def forward(send: SendToController) -> Any:
        context.release_handler(RequestPhase.PURGATORY)
        answer = await send(enveloped(context.header, body, context.connection.peer_host, context.principal))
        try:
            return opened(context.header, answer)
        except RequestNotReadable as error:
            # The client connects again, and learns the versions that there are then, as in Kafka.
            raise CloseConnection(str(error)) from None

    answer = await channel.call(lambda: completed(api.handler(rest, context)), forward)
    if api.local_part is None or response is None:
        return answer
    if isinstance(answer, bytes):
        answer, _ = decode(api.request.RESPONSE, context.version, answer)
    return api.local_part.join(response, answer)


async def completed(response: Any) -> Any:
    """The response of a handler, whichever way it gives it."""
    if isinstance(response, GeneratorType):
        return await run_steps(response)
    return await response if isinstance(response, CoroutineType) else response
