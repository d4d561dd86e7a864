"""A client that can misbehave: sockets that send any bytes, beside a client whose records must stay right.

``RawConnection`` sends what it is given, framed or not, and tells an answer from a closed connection. ``HealthyClient``
is everybody else: it produces numbered records and reads each of them back, and whatever bad clients do to the broker
meanwhile, that must go on to work. Both are plain blocking code, so that nothing of the broker's own network is used to
test it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from pathlib import Path
from types import TracebackType
from typing import Any

import attrs

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, read_response_header, request_header
from kafka_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord

WAIT_SECONDS = 30.0
"""How long an answer may take on a loaded machine; a broker that is well needs milliseconds."""

CREATE_TOPICS_VERSION = 7
PRODUCE_VERSION = 9
FETCH_VERSION = 12
"""The last versions, or close to them, that go by the names of topics."""

FETCH_BYTES = 1 << 20
RECORD_TIMESTAMP_MS = 1_700_000_000_000

PEAK_RESET = "5"
"""What Linux takes in ``/proc/PID/clear_refs`` for "begin to measure the peak anew"."""


class WrongAnswer(AssertionError):
    """The healthy client was not served as it should be."""


def framed(body: bytes) -> bytes:
    """Return ``body`` with its size before it."""
    return struct.pack(">i", len(body)) + body


def request_bytes(request: Any, version: int, *, correlation_id: int = 1, client_id: str | None = "raw") -> bytes:
    """Return a request with its header, not framed."""
    header = RequestHeader(
        api_key=request.API_KEY, api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return request_header(header) + encode_bytes(request, version)


def produce_request(topic: str, batch: bytes | None, *, acks: int = 1, index: int = 0) -> ProduceRequest:
    """Return a request that sends one batch to one partition."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data])


def fetch_request(topic: str, offset: int, *, max_bytes: int = FETCH_BYTES) -> FetchRequest:
    """Return a request for the records of partition 0 from ``offset`` on, which does not wait."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
    )


def one_record(value: bytes, key: bytes | None = b"key", **options: Any) -> bytes:
    """Return a batch of one record; ``options`` are those of ``build_batch``."""
    return build_batch([NewRecord(RECORD_TIMESTAMP_MS, key, value, [])], **options)


@attrs.define
class RawConnection:
    """One connection to the broker. A context manager, so that no socket is left to the garbage collector."""

    sock: socket.socket

    @classmethod
    def open(cls, port: int, host: str = "127.0.0.1") -> RawConnection:
        return cls(socket.create_connection((host, port), timeout=WAIT_SECONDS))

    @property
    def local_port(self) -> int:
        """What the broker knows the connection by in its log."""
        port: int = self.sock.getsockname()[1]
        return port

    def send(self, data: bytes) -> None:
        """Send ``data`` as it is; a broker that has closed already is no error."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # What follows on the connection will say so.
            self.sock.sendall(data)

    def receive_frame(self) -> bytes | None:
        """Return the next response without its size, or None when the broker has closed.

        Raises:
            TimeoutError: neither came in ``WAIT_SECONDS``.
        """
        prefix = self._receive(4)
        return None if prefix is None else self._receive(struct.unpack(">i", prefix)[0])

    def _receive(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                part = self.sock.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def exchange(self, body: bytes) -> bytes | None:
        """Send ``body`` as a frame; return the response, or None when the broker closed instead."""
        self.send(framed(body))
        return self.receive_frame()

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to ``request``.

        Raises:
            WrongAnswer: the broker closed, or answered something else.
        """
        frame = self.exchange(request_bytes(request, version))
        if frame is None:
            raise WrongAnswer(f"closed instead of answering {type(request).__name__} v{version}")
        return response_of(request, version, frame)

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def response_of(request: Any, version: int, frame: bytes) -> Any:
    """Read the response to ``request`` out of ``frame``, which must hold nothing else.

    Raises:
        WrongAnswer: bytes are left over.
    """
    _, position = read_response_header(request.API_KEY, version, memoryview(frame))
    response, end = decode(type(request).RESPONSE, version, frame, position)
    if end != len(frame):
        raise WrongAnswer(f"{len(frame) - end} bytes behind the response to {type(request).__name__} v{version}")
    return response


def produce_error(port: int, topic: str, batch: bytes | None, *, version: int = PRODUCE_VERSION) -> ErrorCode:
    """Send ``batch`` on a connection of its own; return the error code of its partition."""
    with RawConnection.open(port) as connection:
        response = connection.ask(produce_request(topic, batch), version)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def create_topic(port: int, topic: str, **configs: str) -> None:
    """Create a topic of one partition, with ``_`` for the dots in the keys of ``configs``.

    Raises:
        WrongAnswer: that was refused.
    """
    creatable = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    with RawConnection.open(port) as connection:
        result = connection.ask(CreateTopicsRequest(topics=[creatable]), CREATE_TOPICS_VERSION).topics[0]
    if result.error_code:
        raise WrongAnswer(f"{topic} was not created: {ErrorCode(result.error_code).name}: {result.error_message}")


@attrs.define
class HealthyClient:
    """Produces to a topic of its own, and reads back, on a connection of its own that must never break."""

    port: int
    topic: str
    connection: RawConnection = attrs.field(init=False)
    rounds: int = 0

    def __attrs_post_init__(self) -> None:
        create_topic(self.port, self.topic)
        self.connection = RawConnection.open(self.port)

    def check(self) -> None:
        """Produce the next record, and fetch it.

        Raises:
            WrongAnswer: it was refused, got the wrong offset, or came back different.
            TimeoutError: the broker does not answer.
        """
        value = b"record %d" % self.rounds
        produced = self.connection.ask(produce_request(self.topic, one_record(value)), PRODUCE_VERSION)
        answer = produced.responses[0].partition_responses[0]
        if (answer.error_code, answer.base_offset) != (0, self.rounds):
            raise WrongAnswer(f"record {self.rounds} got {answer}")
        fetched = self.connection.ask(fetch_request(self.topic, self.rounds), FETCH_VERSION)
        partition = fetched.responses[0].partitions[0]
        values = [record.value for batch in read_batches(partition.records or b"") for record in batch.records()]
        if (partition.error_code, partition.high_watermark, values) != (0, self.rounds + 1, [value]):
            raise WrongAnswer(f"record {self.rounds} came back as {values} in {partition}")
        self.rounds += 1

    def close(self) -> None:
        self.connection.close()


def resident_bytes(pid: int) -> int:
    """Return how much memory the process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """Return the most that the process held since ``reset_peak``."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"the system does not tell the peak memory of process {pid}")


def reset_peak(pid: int) -> None:
    """Let the peak be what the process holds now. The kernel measures it, so no spike between two samples is missed."""
    Path(f"/proc/{pid}/clear_refs").write_text(PEAK_RESET)
