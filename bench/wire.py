"""Requests as bytes, built once, and the few exchanges a benchmark needs around its load.

Under load a client sends the same frame again and again; what changes, the fetch offset, is patched in place. So the
client costs next to nothing beside the broker, with which it shares the cores.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.framing import SIZE_PREFIX, frame
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.schema import Request

T = TypeVar("T")

PRODUCE_VERSION = 11
"""Flexible, and by topic name."""

FETCH_VERSION = 12
METADATA_VERSION = 12
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 5

CLIENT_ID = "bench"
TIMEOUT_MS = 30_000

LEADER_SECONDS = 30.0
"""In which a new topic's partitions must take records; Kafka needs a tenth of a second."""

RETRY_SECONDS = 0.02

MIB = 1024 * 1024

BULK_VALUE_BYTES = 1000
"""A record of a bulk load; a 1 MiB batch holds about a thousand."""

OFFSET = struct.Struct(">q")


class BenchError(Exception):
    """The broker did not do what the benchmark asked for, so its numbers would mean nothing."""


def request_frame(request: Request[Any], version: int, client_id: str = CLIENT_ID) -> bytearray:
    """Return the whole frame of a request."""
    header = request_header(RequestHeader(request.API_KEY, version, 1, client_id))
    return bytearray(b"".join(frame([header, *encode(request, version)])))  # type: ignore[arg-type]


def body_frame(kind: type[Request[Any]], version: int, body: bytes) -> bytes:
    """Return the whole frame of a request that is encoded already."""
    header = request_header(RequestHeader(kind.API_KEY, version, 1, CLIENT_ID))
    return b"".join(frame([header, body]))  # type: ignore[arg-type]


def connect(port: int, timeout: float = 60.0) -> socket.socket:
    """A blocking connection to the local broker, with a timeout so that a broker that hangs ends the benchmark."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def receive_frame(sock: socket.socket) -> memoryview:
    """Read one whole response without its size prefix. Raises BenchError when the connection ends."""
    size = SIZE_PREFIX.unpack(receive_exactly(sock, SIZE_PREFIX.size))[0]
    return receive_exactly(sock, size)


def receive_exactly(sock: socket.socket, count: int) -> memoryview:
    """Read ``count`` bytes. Raises BenchError when the connection ends before."""
    view = memoryview(bytearray(count))
    got = 0
    while got < count:
        received = sock.recv_into(view[got:])
        if not received:
            raise BenchError("the broker closed the connection")
        got += received
    return view


def ask(sock: socket.socket, request: Request[T], version: int) -> T:
    """Send a request and return the decoded response."""
    sock.sendall(request_frame(request, version))
    return answer(sock, type(request), version)


def answer(sock: socket.socket, kind: type[Request[T]], version: int) -> T:
    """Read the response to a request of ``kind`` that was sent before."""
    return decoded(receive_frame(sock), kind, version)


def decoded(response: memoryview, kind: type[Request[T]], version: int) -> T:
    """The message in a response without its size prefix."""
    _, position = read_response_header(kind.API_KEY, version, response)
    message: T = decode(kind.RESPONSE, version, response, position)[0]
    return message


def require(error_code: int, what: str) -> None:
    """Raise BenchError unless the code says that all went well."""
    if error_code:
        raise BenchError(f"{what}: {ErrorCode(error_code).name}")


def create_topic(port: int, name: str, partitions: int, *, replication_factor: int = 1, **configs: str) -> None:
    """Create a topic; keys of ``configs`` have underscores for Kafka's dots. Raises BenchError when refused."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    with connect(port) as sock:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = ask(sock, request, CREATE_TOPICS_VERSION)
    require(response.topics[0].error_code, f"creating {name}")


def delete_topic(port: int, name: str) -> None:
    """Delete a topic. Raises BenchError when refused."""
    with connect(port) as sock:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        response = ask(sock, request, DELETE_TOPICS_VERSION)
    require(response.responses[0].error_code, f"deleting {name}")


def metadata(sock: socket.socket, *topics: str) -> MetadataResponse:
    """Ask for the brokers and the topics named, none of which is created by it."""
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    return ask(sock, MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA_VERSION)


# ---- batches and produce


def small_batch(value_bytes: int = 100) -> bytes:
    """A batch of one record without a key."""
    return build_batch([NewRecord(timestamp=1_700_000_000_000, value=b"v" * value_bytes)])


@attrs.frozen
class BulkBatch:
    """A large uncompressed batch and how many records are in it."""

    data: bytes
    record_count: int


def bulk_batch(size_bytes: int = MIB) -> BulkBatch:
    """The largest batch of equal records that is not larger than ``size_bytes``."""
    value = bytes(range(250)) * (BULK_VALUE_BYTES // 250)
    count = size_bytes // BULK_VALUE_BYTES
    while True:
        data = build_batch([NewRecord(timestamp=1_700_000_000_000, value=value)] * count)
        if len(data) <= size_bytes:
            return BulkBatch(data, count)
        count -= 1 + (len(data) - size_bytes) // (2 * BULK_VALUE_BYTES)


def produce_frame(topic: str, partition: int, records: bytes, acks: int, client_id: str = CLIENT_ID) -> bytearray:
    """The frame of a Produce of one batch."""
    data = PartitionProduceData(index=partition, records=memoryview(records))
    request = ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return request_frame(request, PRODUCE_VERSION, client_id)


def produced(sock: socket.socket) -> int:
    """Read a Produce response; return the base offset. Raises BenchError when the batch was refused."""
    response = answer(sock, ProduceRequest, PRODUCE_VERSION)
    result = response.responses[0].partition_responses[0]
    require(result.error_code, "producing")
    return result.base_offset


def create_filled_topic(port: int, name: str, partitions: int, records: bytes) -> None:
    """Create a topic and write the batch ``records`` once into each of its partitions.

    Kafka answers CreateTopics before its broker leads the partitions, so a refused batch is sent again for a while.

    Raises:
        BenchError: the topic was refused, or a batch still is after ``LEADER_SECONDS``.
    """
    # The timestamps of our records lie years back, and Kafka looks for expired segments half a minute after its start.
    create_topic(port, name, partitions, retention_ms="-1")
    end = time.monotonic() + LEADER_SECONDS
    with connect(port) as sock:
        for partition in range(partitions):
            frame = produce_frame(name, partition, records, acks=1)
            while True:
                sock.sendall(frame)
                try:
                    produced(sock)
                    break
                except BenchError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(RETRY_SECONDS)


def success_response(topic: str) -> bytes:
    """The frame that answers a successful small Produce: what the echo floor sends, and the size a client expects."""
    result = PartitionProduceResponse(index=0, error_code=0, base_offset=0, log_start_offset=0)
    response = ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[result])])
    return b"".join(frame([bytes(5), *encode(response, PRODUCE_VERSION)]))  # type: ignore[arg-type]


# ---- fetch


def patch_position(build: Callable[[int], bytes | bytearray]) -> int:
    """Find where in the bytes an int64 stands, by building them with two values that differ in every byte."""
    zeros, ones = build(0), build(-1)
    return next(index for index, (zero, one) in enumerate(zip(zeros, ones, strict=True)) if zero != one)


@attrs.define
class FetchFrame:
    """A Fetch of one partition whose offset can be changed in place."""

    data: bytearray
    offset_position: int

    def at(self, offset: int) -> bytearray:
        """The frame that asks for ``offset``; the same bytes object each time."""
        OFFSET.pack_into(self.data, self.offset_position, offset)
        return self.data


def fetch_frame(
    topic: str,
    partition: int,
    max_bytes: int,
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> FetchFrame:
    """A Fetch without a session, of up to ``max_bytes``."""

    def build(offset: int) -> bytearray:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        return request_frame(request, FETCH_VERSION)

    return FetchFrame(build(0), patch_position(build))


def receive_response_into(sock: socket.socket, buffer: memoryview) -> int:
    """Read one response, prefix included, in as few calls as the kernel allows; return its size.

    What does not fit into ``buffer`` overwrites it from the start: a benchmark wants the bytes moved, not kept, and
    memory that stays in the processor's cache keeps the client's own cost small.

    Raises:
        BenchError: the connection ended.
    """
    got = sock.recv_into(buffer)
    if got < SIZE_PREFIX.size:
        raise BenchError("the broker closed the connection")
    total: int = SIZE_PREFIX.size + SIZE_PREFIX.unpack_from(buffer)[0]
    while got < total:
        window = buffer[got:] if got < len(buffer) else buffer
        received = sock.recv_into(window, min(len(window), total - got), socket.MSG_WAITALL)
        if not received:
            raise BenchError("the broker closed the connection")
        got += received
    return total


def fetch_problem(buffer: memoryview, size: int) -> str:
    """Say what a Fetch response without records says; for the message of an error."""
    response = decoded(buffer[SIZE_PREFIX.size : size], FetchRequest, FETCH_VERSION)
    code = response.error_code or response.responses[0].partitions[0].error_code
    return f"fetch: {ErrorCode(code).name}, {size} bytes"
