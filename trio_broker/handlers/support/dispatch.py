"""From the bytes of a request to the bytes of its response.

The one place where exceptions become what the client receives:

=====================  ==========================================================================================
raised                 result
=====================  ==========================================================================================
``WireError``          the bytes are not Kafka's: the connection closes, with one log line
``KafkaError``         an expected refusal: its error code, wherever the response has room for one
``TimeoutError``       what keeps the metadata does not answer: ``REQUEST_TIMED_OUT``, retriable
other ``OSError``      the disk failed: ``KAFKA_STORAGE_ERROR``, retriable
any other              a bug: logged with the request, ``UNKNOWN_SERVER_ERROR``; the broker continues
``trio.Cancelled``     shutting down: passes through, always
=====================  ==========================================================================================

No request holds the event loop for long, whatever its size (decision 0039). One with many elements is read, handled,
written and freed in turns, in a task and without a slot, ``LARGE_REQUESTS_AT_ONCE`` of them at a time; so is a response
with many elements. Both are recognized by their elements: a megabyte of records has few.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any

import attrs
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, decode_in_turns, encode, encode_in_turns
from kafka_wire.error_codes import ErrorCode
from kafka_wire.error_counts import ERROR_WALKS, ERROR_WALKS_IN_TURNS, LARGE, Counts
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.headers import RequestHeader, response_header
from kafka_wire.release import release_in_turns
from kafka_wire.schema import fields_of
from trio_broker.changes.audit_context import CALLER
from trio_broker.common.request_phase import RequestPhase
from trio_broker.concurrency.steps import Steps, Wait, run_steps
from trio_broker.concurrency.yield_budget import in_turns
from trio_broker.handlers.support.advertised_versions import unsupported_version_answer
from trio_broker.handlers.support.authorization import authorized_handler
from trio_broker.handlers.support.client_quotas import throttle_seconds, with_throttle_time
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.forwarding import completed, forwarding_handler
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.errors import CloseConnection
from trio_broker.network.handler_pool import DelayedAnswer, PendingAnswer
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.request_memory_pool import RequestMemoryPool
from trio_broker.network.request_metrics import RequestChannelMetrics
from trio_broker.partition.delayed_operations import DelayedProduce

log = logging.getLogger(__name__)

LARGE_REQUEST_BYTES = 4096
"""Bodies below are read at once: they have no room for more elements than a millisecond's work."""

LARGE_REQUESTS_AT_ONCE = 1
"""Requests of many elements that are read or handled at a time. More would end no sooner, each round of the event loop
would take as many turns longer, and the objects of all of them would be in memory. One that waits, as a long poll does,
makes room for the next."""


class Dispatcher:
    """Answers requests with the services of one broker, and counts the errors of the answers in ``metrics``.

    ``memory_pool`` learns how many bytes of large requests wait for their turn.
    """

    def __init__(
        self, services: BrokerServices, metrics: RequestChannelMetrics, memory_pool: RequestMemoryPool
    ) -> None:
        self.services = services
        self.metrics = metrics
        self.memory_pool = memory_pool
        self.large_requests = trio.Semaphore(LARGE_REQUESTS_AT_ONCE)
        self.refusals = trio.CapacityLimiter(1)
        self.apis: Mapping[int, ServedApi] = {key: self.wired(api) for key, api in served_apis().items()}
        services.answer_request = self.answer_request

    def wired(self, api: ServedApi) -> ServedApi:
        """``api`` with what comes before its handler on this broker: nothing, for nearly all, without an authorizer."""
        channel = self.services.controller_channel
        if self.services.authorizer is not None:
            api = attrs.evolve(api, handler=authorized_handler(api, self.refusals))
        if api.between_brokers:
            return attrs.evolve(api, handler=partial(from_broker, api))
        if api.by_controller and channel is not None:
            return attrs.evolve(api, handler=forwarding_handler(api, channel))
        return api

    async def answer_request(self, request: QueuedRequest) -> bytes:
        """The bytes of the response to ``request``, which came over no connection of its own; raises as ``answer``."""
        answer = self.answer(request)
        assert not isinstance(answer, DelayedAnswer), f"{request.header} is a Produce"
        chunks = await settled(answer)
        assert chunks is not None, f"{request.header} wants no answer"
        return b"".join(chunks)  # type: ignore[arg-type]

    def answer(self, request: QueuedRequest) -> Answer | PendingAnswer | DelayedAnswer:
        """The response to ``request`` as chunks, its header first, or None for silence; where it must wait, how.

        Raises:
            CloseConnection: the request cannot be answered, and nothing after it on the connection could be trusted.
        """
        header = request.header
        # No check that there is one: the Processor has asked ``is_served`` before it queued the request.
        api = self.apis[header.api_key]
        # Before the body is decoded: in a version to come it may have any form (KIP-511).
        if header.api_version > api.versions.high and header.api_key == ApiKey.API_VERSIONS:
            return unsupported_version_answer(header)
        try:
            if len(request.body) <= LARGE_REQUEST_BYTES:
                message, _ = decode(api.request, header.api_version, request.body)
            else:
                reading = decode_in_turns(api.request, header.api_version, request.body)
                try:
                    next(reading)
                except StopIteration as end:
                    message, _ = end.value
                else:
                    # Read anew in its turn: until then it would keep what it has read, and lists for all the rest.
                    reading.close()
                    return self.answer_large(api, request)
        except WireError as error:
            raise malformed(api, header, error) from error
        context = Context(request, self.services)
        token = CALLER.set(context)
        try:
            response = api.handler(message, context)
            if isinstance(response, GeneratorType):
                try:
                    wait = next(response)
                except StopIteration as end:
                    response = end.value
                else:
                    return self.awaited(api, message, context, response, wait)
            elif isinstance(response, CoroutineType):
                return self.answer_later(api, message, context, lambda: response)
            return self.encoded(api, response, context)
        except Exception as error:
            return self.failed(api, message, context, error)
        finally:
            # Or the task, which goes on to other requests, would keep this one's bytes.
            CALLER.reset(token)

    async def answer_large(self, api: ServedApi, request: QueuedRequest) -> Answer:
        """The response to a request of many elements; while it waits for its turn its bytes are all that it keeps."""
        request.release_handler(RequestPhase.PURGATORY)
        context = Context(request, self.services, is_large=True)
        waiting_bytes = len(request.body)
        self.memory_pool.enter_backlog(waiting_bytes)
        try:
            await self.large_requests.acquire()
        finally:
            self.memory_pool.leave_backlog(waiting_bytes)
        # When the handler announces a wait, the next large request may begin.
        request.release_slot = release = once(self.large_requests.release)
        token = CALLER.set(context)
        try:
            try:
                message, _ = await in_turns(decode_in_turns(api.request, request.header.api_version, request.body))
            except WireError as error:
                raise malformed(api, request.header, error) from error
            # A turn before and one after: a group may decide about a large request for longer than a turn.
            await trio.lowlevel.checkpoint()
            try:
                response = await completed(api.handler(message, context))
                await trio.lowlevel.checkpoint()
                encoded = self.encoded(api, response, context)
            except Exception as error:
                refusal = self.refusal(api, context, error)
                # In a thread, because an API builds it at once, for all of its elements.
                response = await self.services.runtime.workers.run(
                    partial(error_response, api, message, refusal, context.version), limiter=self.refusals
                )
                # Its traceback has this frame: with the variable they would be a cycle that keeps the request.
                del refusal
                encoded = self.encoded(api, response, context)
            del response
            answer = await settled(encoded)
            messages = [message]
            del message
            await in_turns(release_in_turns(messages))
            return answer
        finally:
            CALLER.reset(token)
            release()

    def awaited(
        self, api: ServedApi, message: Any, context: Context, steps: Steps[Any], wait: Wait
    ) -> PendingAnswer | DelayedAnswer:
        """What answers when ``steps`` have waited for ``wait``, which they have yielded."""
        if isinstance(wait, DelayedProduce):
            return DelayedAnswer(wait.when_complete, partial(self.resumed, api, message, context, steps), steps.close)
        return self.answer_later(api, message, context, partial(run_steps, steps, wait))

    def resumed(
        self, api: ServedApi, message: Any, context: Context, steps: Steps[Any]
    ) -> Answer | PendingAnswer | DelayedAnswer:
        """The response after a wait, or what it waits for next."""
        token = CALLER.set(context)
        try:
            try:
                wait = next(steps)
            except StopIteration as end:
                return self.encoded(api, end.value, context)
            return self.awaited(api, message, context, steps, wait)
        except Exception as error:
            return self.failed(api, message, context, error)
        finally:
            CALLER.reset(token)

    async def answer_later(self, api: ServedApi, message: Any, context: Context, wait: Wait) -> Answer:
        """The response for which a handler waits."""
        token = CALLER.set(context)
        try:
            answer = self.encoded(api, await wait(), context)
        except Exception as error:
            answer = self.failed(api, message, context, error)
        finally:
            CALLER.reset(token)
        return await settled(answer)

    def failed(self, api: ServedApi, message: Any, context: Context, error: Exception) -> Answer | PendingAnswer:
        """The error response for what a handler raised; raises as ``refusal``."""
        refusal = self.refusal(api, context, error)
        return self.encoded(api, error_response(api, message, refusal, context.version), context)

    def refusal(self, api: ServedApi, context: Context, error: Exception) -> KafkaError:
        """What the client receives for what a handler raised.

        Raises:
            CloseConnection: it is ``error``.
        """
        match error:
            case CloseConnection():
                raise error.without_traceback() from None
            case KafkaError():
                return error
            case TimeoutError():
                reason = error.strerror or "no answer"
                text = f"{api.api_key.name} from {context.connection}: {reason}"
                self.services.throttled_log.error("no answer", text)
                return KafkaError(reason, code=ErrorCode.REQUEST_TIMED_OUT)
            case OSError():
                # Retriable for clients, which find out by Metadata whether another replica leads.
                text = f"{api.api_key.name} from {context.connection}: the disk failed: {error}"
                self.services.throttled_log.error("disk", text)
                return KafkaError(str(error), code=ErrorCode.KAFKA_STORAGE_ERROR)
            case _:
                log.error(
                    "%s v%d from %s failed", api.api_key.name, context.version, context.connection, exc_info=error
                )
                return KafkaError("the broker failed on this request", code=ErrorCode.UNKNOWN_SERVER_ERROR)

    def encoded(self, api: ServedApi, response: Any, context: Context) -> Answer | PendingAnswer:
        """Encode ``response`` behind its header, and count its errors; in turns if it has many elements."""
        if self.services.quotas.is_bounding and not (api.between_brokers or context.request.is_exempt):
            return self.encoded_within_quotas(api, response, context)
        return self.encoded_unbounded(api, response, context)

    def encoded_within_quotas(self, api: ServedApi, response: Any, context: Context) -> Answer | PendingAnswer:
        """As ``encoded``, with how long the client must wait."""
        if response.__class__ is not bytes:
            response = with_throttle_time(response, throttle_seconds(response, context))
            return self.encoded_unbounded(api, response, context)
        # The answer of the controller may have a time; the others are read only to get one.
        if not api.by_controller and not throttle_seconds(response, context):
            return self.encoded_unbounded(api, response, context)
        return self.throttled_later(api, response, context)

    async def throttled_later(self, api: ServedApi, body: bytes, context: Context) -> Answer:
        """As ``encoded_within_quotas``, for an answer that is in bytes."""
        version = context.version
        response, _ = await in_turns(decode_in_turns(api.request.RESPONSE, version, memoryview(body)))
        seconds = throttle_seconds(response, context) if api.by_controller else context.request.throttle_seconds
        return await settled(self.encoded_unbounded(api, with_throttle_time(response, seconds), context))

    def encoded_unbounded(self, api: ServedApi, response: Any, context: Context) -> Answer | PendingAnswer:
        """As ``encoded``, whatever the client has had."""
        if response is None:
            return None
        header = context.request.header
        if response.__class__ is bytes:
            return [response_header(header.api_key, header.api_version, header.correlation_id), response]
        if response.__class__ is list:
            return [response_header(header.api_key, header.api_version, header.correlation_id), *response]
        if (codes := ERROR_WALKS[type(response)](response)) is not None:
            if codes is LARGE:
                return self.encoded_in_turns(api, response, context)
            self.count_errors(api, context, codes)
        chunks = encode(response, header.api_version)
        chunks.insert(0, response_header(header.api_key, header.api_version, header.correlation_id))
        return chunks

    async def encoded_in_turns(self, api: ServedApi, response: Any, context: Context) -> Answer:
        """As ``encoded``, for a response of many elements, to which the caller shall hold no reference."""
        self.memory_pool.large_messages += 1
        header = context.request.header
        if (codes := await in_turns(ERROR_WALKS_IN_TURNS[type(response)](response))) is not None:
            self.count_errors(api, context, codes)
        chunks = await in_turns(encode_in_turns(response, header.api_version))
        chunks.insert(0, response_header(header.api_key, header.api_version, header.correlation_id))
        messages = [response]
        del response
        await in_turns(release_in_turns(messages))
        return chunks

    def count_errors(self, api: ServedApi, context: Context, errors: Counts) -> None:
        """Count the error codes of a response, for all clients and for this one."""
        self.metrics.update_error_metrics(api.api_key, errors)
        client = context.request.client
        client.count_errors(api.api_key, errors)
        now_ms = self.services.clock.now_ms()
        self.metrics.recent_errors.add(api.api_key, errors, context.client_id, client.software, now_ms)


def from_broker(api: ServedApi, message: Any, context: Context) -> Any:
    """What the handler of ``api`` returns, if the request came by the listener of brokers, to the broker that is meant.

    Raises:
        CloseConnection: it did not.
        NotController: it is the controller's, and this broker is not the controller.
    """
    listener, services = context.connection.listener_name, context.services
    if listener != services.node.inter_broker_listener:
        raise CloseConnection(f"{api.api_key.name} is between brokers, which do not use the listener {listener}")
    if api.by_controller and services.controller_channel is not None:
        services.controller_channel.require_here()
    return api.handler(message, context)


def malformed(api: ServedApi, header: RequestHeader, error: WireError) -> CloseConnection:
    """The reason to close a connection whose request cannot be read."""
    return CloseConnection(f"malformed {api.api_key.name} v{header.api_version}: {error}")


async def settled(answer: Answer | PendingAnswer) -> Answer:
    """The answer, once it is there."""
    return (await answer) if isinstance(answer, CoroutineType) else answer  # type: ignore[return-value]


def once(function: Callable[[], None]) -> Callable[[], None]:
    """``function``, of which all calls but the first do nothing."""
    pending = [function]
    return lambda: pending.pop()() if pending else None


def error_response(api: ServedApi, message: Any, error: KafkaError, version: int) -> Any:
    """The response that refuses a whole request.

    An API builds one error response for all its versions. Fields that ``version`` does not have are reset to their
    defaults, since the codec refuses to drop a value: for example the error code of the whole request in ElectLeaders
    0.
    """
    response = api.error_response(message, error)
    for field in fields_of(type(response)):
        if version not in field.versions:
            setattr(response, field.name, field.new_default())
    return response
