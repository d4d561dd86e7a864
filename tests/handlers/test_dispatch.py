"""From the bytes of a request to those of its response, and what becomes of errors on the way."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.headers import read_response_header
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.schema import VersionRange, default_instance
from tests.cases import each
from tests.handlers.handler_client import joined
from tests.handlers.wire_client import CORRELATION_ID, WireClient
from tests.partition.real_logs import batch
from trio_broker.common.request_phase import RequestPhase
from trio_broker.handlers.support.dispatch import error_response
from trio_broker.handlers.support.registry import served_apis
from trio_broker.network.errors import CloseConnection

METADATA_VERSIONS = range(14)


def brokers_alone() -> MetadataRequest:
    return MetadataRequest(topics=[])


def produce(acks: int, topic: str = "orders") -> ProduceRequest:
    records = PartitionProduceData(index=0, records=batch(b"value"))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[records])]
    )


def replace_handler(wire: WireClient, api_key: ApiKey, handler: Callable[..., Awaitable[Any]]) -> None:
    """Let ``handler`` answer ``api_key`` for this client alone."""
    api = attrs.evolve(served_apis()[api_key], handler=handler)
    wire.dispatcher.apis = {**served_apis(), api_key: api}


def failing_with(wire: WireClient, error: BaseException) -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise error

    replace_handler(wire, ApiKey.METADATA, fail)


EVERY_SERVED_VERSION = [
    pytest.param(api, version, id=f"{api.api_key.name}-v{version}")
    for api in served_apis().values()
    for version in range(api.versions.low, api.versions.high + 1)
]


# --- the way through ---


@each("version", METADATA_VERSIONS)
async def test_the_answer_bears_the_requests_correlation_id_in_the_header_of_its_version(wire, version):
    answer = await wire.send(ApiKey.METADATA, version, joined(encode(brokers_alone(), version)))
    assert read_response_header(ApiKey.METADATA, version, answer)[0] == CORRELATION_ID


@each("version", METADATA_VERSIONS)
async def test_bytes_left_over_after_a_request_are_tolerated(wire, version):
    response = await wire.ask(brokers_alone(), version, trailing=bytes(3))
    assert len(response.brokers) == 1


async def test_bytes_left_over_after_the_first_request_of_a_connection_are_tolerated(wire):
    response = await wire.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4, trailing=b"!"
    )
    assert response.error_code == ErrorCode.NONE


async def test_the_errors_of_answers_are_counted_by_api(wire):
    await wire.create_topic("orders")
    await wire.ask(produce(acks=1), 9)
    await wire.ask(produce(acks=1, topic="nowhere"), 9)
    failing_with(wire, LookupError("our bug"))
    await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)
    errors = {api_key: metrics.since_start().errors for api_key, metrics in wire.dispatcher.metrics.by_api.items()}
    assert errors == {
        ApiKey.PRODUCE: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 1},
        ApiKey.METADATA: {ErrorCode.UNKNOWN_SERVER_ERROR: 1},
    }


async def test_the_errors_of_answers_are_kept_by_client(wire):
    await wire.create_topic("orders")
    await wire.ask(produce(acks=1), 9)
    assert wire.dispatcher.metrics.recent_errors.latest_first() == []
    await wire.ask(produce(acks=1, topic="nowhere"), 9)
    (error,) = wire.dispatcher.metrics.recent_errors.latest_first()
    assert (error.api, error.error, error.client_id) == ("Produce", "UNKNOWN_TOPIC_OR_PARTITION", "test")


async def test_silence_is_passed_on(wire):
    await wire.create_topic("orders")
    assert await wire.ask(produce(acks=0), 9) is None


async def test_a_handler_sees_the_version_and_the_client(wire):
    seen = []

    async def look(request, context):
        seen.append((context.version, context.client_id, context.connection, context.header.api_key))
        raise KafkaError("enough")

    replace_handler(wire, ApiKey.METADATA, look)
    await wire.ask(brokers_alone(), 7)
    assert seen == [(7, "test", wire.connection, ApiKey.METADATA)]


async def test_parking_gives_the_slot_of_the_request_back(wire):
    given_back = []

    async def release_handler(request, context):
        context.request.release_slot = lambda: given_back.append(True)
        context.release_handler(RequestPhase.PURGATORY)
        raise KafkaError("enough")

    replace_handler(wire, ApiKey.METADATA, release_handler)
    await wire.ask(brokers_alone(), 7)
    assert len(given_back) == 1


# --- the table of errors ---


@each("body", [b"", b"\xff\xff", b"\x7f\xff\xff\xff"])
@each("version", [0, 4, 8])
async def test_bytes_that_are_not_kafkas_end_the_connection_and_the_line_names_the_api(wire, version, body):
    with pytest.raises(CloseConnection, match=f"malformed METADATA v{version}: "):
        await wire.send(ApiKey.METADATA, version, body)


async def test_a_version_that_the_api_does_not_have_ends_the_connection(wire):
    with pytest.raises(CloseConnection):
        await wire.send(ApiKey.METADATA, 99, b"\x00" * 16)


async def test_produce_below_version_3_ends_the_connection(wire):
    with pytest.raises(CloseConnection):
        await wire.send(ApiKey.PRODUCE, 2, b"\x00" * 16)


@each("version", [0, 5, 9, 13])
@each(
    "error,code",
    [
        (KafkaError("no", code=ErrorCode.POLICY_VIOLATION), ErrorCode.POLICY_VIOLATION),
        (OSError(5, "Input/output error"), ErrorCode.KAFKA_STORAGE_ERROR),
        (OSError(errno.ETIMEDOUT, "etcd does not answer"), ErrorCode.REQUEST_TIMED_OUT),
        (LookupError("our bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (AssertionError("our bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (WireError("of a stored record, not of this request"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_an_error_becomes_its_code_wherever_the_response_has_room(wire, version, error, code, caplog):
    failing_with(wire, error)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")])
    response = await wire.ask(request, version)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", code), ("b", code)]


async def test_a_refusal_is_no_line_in_the_log(wire, caplog):
    failing_with(wire, KafkaError("no", code=ErrorCode.POLICY_VIOLATION))
    await wire.ask(brokers_alone(), 9)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_disk_that_fails_is_one_line_with_the_reason(wire, caplog):
    failing_with(wire, OSError(5, "Input/output error"))
    await wire.ask(brokers_alone(), 9)
    [record] = caplog.records
    assert "METADATA" in record.getMessage()
    assert "Input/output error" in record.getMessage()
    assert record.exc_info is None


async def test_a_bug_is_logged_with_request_connection_and_traceback(wire, caplog):
    failing_with(wire, LookupError("our bug"))
    await wire.ask(brokers_alone(), 9)
    [record] = caplog.records
    assert record.getMessage() == f"METADATA v9 from {wire.connection} failed"
    assert record.exc_info[1].args == ("our bug",)


async def test_a_bug_tells_the_client_nothing_of_our_insides(wire, caplog):
    async def fail(request, context):
        raise LookupError("the secret insides")

    replace_handler(wire, ApiKey.DELETE_TOPICS, fail)
    response = await wire.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert "secret" not in (response.responses[0].error_message or "")
    assert response.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_handler_may_end_the_connection(wire):
    failing_with(wire, CloseConnection("enough"))
    with pytest.raises(CloseConnection, match="enough"):
        await wire.ask(brokers_alone(), 9)


async def test_a_failed_produce_without_acks_ends_the_connection(wire):
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await wire.ask(produce(acks=0, topic="missing"), 9)


async def test_a_cancellation_passes_through(wire):
    async def wait(request, context):
        await trio.sleep_forever()

    replace_handler(wire, ApiKey.METADATA, wait)
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.ask(brokers_alone(), 9)
    assert scope.cancelled_caught


async def test_the_next_request_is_served_after_any_error(wire, caplog):
    failing_with(wire, LookupError("our bug"))
    await wire.ask(brokers_alone(), 9)
    wire.dispatcher.apis = served_apis()
    assert len((await wire.ask(brokers_alone(), 9)).brokers) == 1


@each("api", served_apis().values())
@each("body", [b"", b"\xff", b"\x80" * 32, b"\x7f" * 32])
async def test_garbage_never_does_worse_than_end_the_connection(wire, api, body):
    for version in versions_of(api.versions):
        try:
            await wire.send(api.api_key, version, body)
        except CloseConnection:
            continue


def versions_of(versions: VersionRange) -> range:
    return range(versions.low, versions.high + 1)


async def test_a_response_that_cannot_be_encoded_is_a_bug_like_any_other(wire, caplog):
    async def answer(request, context):
        nothing: Any = None
        return DeleteTopicsResponse(responses=nothing)

    replace_handler(wire, ApiKey.DELETE_TOPICS, answer)
    response = await wire.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), 5)
    assert response.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("api", "version"), EVERY_SERVED_VERSION)
def test_every_version_has_room_for_the_refusal_of_a_whole_request(api, version):
    """The codec refuses a field that a version lacks, unless it is at its default."""
    error = KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR)
    request = default_instance(api.request)
    if api.api_key == ApiKey.PRODUCE:
        request.acks = 1  # 0 asks for silence
    encoded = joined(encode(error_response(api, request, error, version), version))
    _, end = decode(api.request.RESPONSE, version, encoded)
    assert end == len(encoded)
