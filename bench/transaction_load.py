"""Transactional producers as cheap as the rest of the load: frames built once, a producer's id and epoch patched in.

A transaction is one batch and its end, in either protocol. Of the first (``FIRST``) the producer names its partition
with AddPartitionsToTxn before, and keeps its epoch; of the second (``SECOND``) Produce adds the partition, and the end
brings the epoch for the next transaction (KIP-890). Each producer has a connection, a transactional id and a partition
of its own, and one request in flight.

A producer that comes before the markers of its last transaction are written is asked to try again, and does so after
as long as Kafka's own producer waits (``RETRY_SECONDS``).
"""

from __future__ import annotations

import heapq
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from bench.load import SMALL_RESPONSE_BYTES, LoopFigures
from bench.wire import (
    TIMEOUT_MS,
    BenchError,
    ask,
    connect,
    patch_position,
    receive_response_into,
    request_frame,
)
from kafka_wire.codec import encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.framing import frame
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kafka_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_wire.records.batch import build_batch
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord

RECORDS = 10
"""In a transaction."""

TRANSACTION_TIMEOUT_MS = 600_000
"""No turn is as long."""

RETRY_SECONDS = 0.02
"""Between two tries while the transaction before is ending; of Kafka's producer ``ADD_PARTITIONS_RETRY_BACKOFF_MS``."""

COORDINATOR_SECONDS = 30.0
"""In which a new coordinator must answer."""

FIND_COORDINATOR_VERSION = 4
TRANSACTION_KEY = 1
INIT_PRODUCER_ID_VERSION = 4

PRODUCER = struct.Struct(">qh")
"""A producer's id and epoch, which stand side by side in every request."""

PRODUCER_AT = 43
SEQUENCE_AT = 53
CRC_AT = 17
CRC_FROM = 21
"""Where a batch has its producer and its sequence, and where its checksum, which counts from the last one on."""

UINT32 = struct.Struct(">I")
INT32 = struct.Struct(">i")
INT16 = struct.Struct(">h")


@attrs.frozen
class Protocol:
    """Which versions a producer speaks; 0 of AddPartitionsToTxn where Produce does its work."""

    name: str
    add_partitions: int
    produce: int
    end: int


FIRST = Protocol("first", add_partitions=3, produce=11, end=4)

SECOND = Protocol("second", add_partitions=0, produce=12, end=5)


def transaction_batch(value_bytes: int) -> bytes:
    """The batch of one transaction, of nobody yet."""
    records = [NewRecord(timestamp=1_700_000_000_000, value=b"v" * value_bytes)] * RECORDS
    return build_batch(records, producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)


@attrs.define
class Step:
    """One request of a transaction, where it has its producer, and where the response has its error code."""

    data: bytearray
    producer_at: int
    code_at: int


def code_position(build: Callable[[int], object], version: int) -> int:
    """Where in a response's frame the error code stands that ``build`` is given."""
    return patch_position(lambda code: b"".join(frame([bytes(5), *encode(build(code), version)])))  # type: ignore[arg-type]


def add_partitions_step(protocol: Protocol, transactional_id: str, topic: str, partition: int) -> Step:
    def request(producer_id: int) -> bytearray:
        return request_frame(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
            ),
            protocol.add_partitions,
        )

    def response(code: int) -> AddPartitionsToTxnResponse:
        result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
        topics = [AddPartitionsToTxnTopicResult(name=topic, results_by_partition=[result])]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    return Step(request(0), patch_position(request), code_position(response, protocol.add_partitions))


def produce_step(protocol: Protocol, transactional_id: str, topic: str, partition: int, batch: bytes) -> Step:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )

    def response(code: int) -> ProduceResponse:
        result = PartitionProduceResponse(index=0, error_code=code, base_offset=0, log_start_offset=0)
        return ProduceResponse(responses=[TopicProduceResponse(name=topic, partition_responses=[result])])

    found = request_frame(request, protocol.produce)
    return Step(found, found.index(batch) + PRODUCER_AT, code_position(response, protocol.produce))


def end_step(protocol: Protocol, transactional_id: str, *, commits: bool) -> Step:
    def request(producer_id: int) -> bytearray:
        asked = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=0, committed=commits
        )
        return request_frame(asked, protocol.end)

    code_at = code_position(lambda code: EndTxnResponse(error_code=code), protocol.end)
    return Step(request(0), patch_position(request), code_at)


@attrs.define(eq=False)
class TransactionalProducer:
    """One producer. ``aborts_every`` of its transactions one is aborted, none where it is 0."""

    sock: socket.socket
    protocol: Protocol
    batch_bytes: int
    add: Step | None
    produce: Step
    commit: Step
    abort: Step
    producer_id: int
    producer_epoch: int
    aborts_every: int = 0
    sequence: int = 0
    transactions: int = 0
    retries: int = 0
    began_ns: int = 0
    _step: Step = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._step = self.produce

    def begin(self) -> None:
        """Send the first request of a transaction."""
        self.transactions += 1
        self.began_ns = time.perf_counter_ns()
        self._sign_batch()
        self._send(self.add or self.produce)

    def again(self) -> None:
        """Send the latest request once more."""
        self.retries += 1
        self.sock.send(self._step.data)

    def go_on(self, response: memoryview) -> bool:
        """Read the response to the latest request and send the next one; False when the transaction has ended.

        Raises:
            Refused: the response has an error.
        """
        step = self._step
        if code := INT16.unpack_from(response, step.code_at)[0]:
            raise Refused(ErrorCode(code))
        if step is self.add:
            self._send(self.produce)
        elif step is self.produce:
            self.sequence += RECORDS
            is_abort = self.aborts_every and self.transactions % self.aborts_every == 0
            self._send(self.abort if is_abort else self.commit)
        else:
            if self.protocol is SECOND:
                self.producer_id, self.producer_epoch = PRODUCER.unpack_from(response, step.code_at + INT16.size)
                self.sequence = 0
            return False
        return True

    def _send(self, step: Step) -> None:
        self._step = step
        PRODUCER.pack_into(step.data, step.producer_at, self.producer_id, self.producer_epoch)
        self.sock.send(step.data)

    def _sign_batch(self) -> None:
        """Put the producer and the sequence into the batch, and its checksum."""
        data, batch_at = self.produce.data, self.produce.producer_at - PRODUCER_AT
        PRODUCER.pack_into(data, batch_at + PRODUCER_AT, self.producer_id, self.producer_epoch)
        INT32.pack_into(data, batch_at + SEQUENCE_AT, self.sequence)
        checked = memoryview(data)[batch_at + CRC_FROM : batch_at + self.batch_bytes]
        UINT32.pack_into(data, batch_at + CRC_AT, crc32c(checked))


class Refused(BenchError):
    """A response with an error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"a transaction was refused: {code.name}")
        self.code = code


@contextmanager
def transactional_producer(
    port: int, transactional_id: str, topic: str, partition: int, protocol: Protocol, batch: bytes
) -> Iterator[TransactionalProducer]:
    """A producer that has taken ``transactional_id``."""
    with connect(port) as sock:
        producer_id, epoch = take_transactional_id(sock, transactional_id)
        yield TransactionalProducer(
            sock,
            protocol,
            len(batch),
            add_partitions_step(protocol, transactional_id, topic, partition) if protocol.add_partitions else None,
            produce_step(protocol, transactional_id, topic, partition, batch),
            end_step(protocol, transactional_id, commits=True),
            end_step(protocol, transactional_id, commits=False),
            producer_id,
            epoch,
        )


def take_transactional_id(sock: socket.socket, transactional_id: str) -> tuple[int, int]:
    """The producer id and epoch, once the coordinator is there."""
    find = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=TRANSACTION_KEY)
    begin = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
    end = time.monotonic() + COORDINATOR_SECONDS
    while True:
        ask(sock, find, FIND_COORDINATOR_VERSION)
        response = ask(sock, begin, INIT_PRODUCER_ID_VERSION)
        if not response.error_code:
            return response.producer_id, response.producer_epoch
        if time.monotonic() > end:
            raise Refused(ErrorCode(response.error_code))
        time.sleep(RETRY_SECONDS)


def transact(producers: Sequence[TransactionalProducer], transactions: int) -> LoopFigures:
    """Let the producers commit one transaction after another, ``transactions`` in all; the latency is of a whole one.

    Raises:
        BenchError: a connection ended, or a transaction was refused.
    """
    buffer = memoryview(bytearray(SMALL_RESPONSE_BYTES))
    latencies_ns: list[int] = []
    waiting: list[tuple[float, int, TransactionalProducer]] = []
    with selectors.DefaultSelector() as selector:
        left = transactions - len(producers)
        start = time.perf_counter()
        for producer in producers:
            selector.register(producer.sock, selectors.EVENT_READ, producer)
            producer.begin()
        while len(latencies_ns) < transactions:
            for key, _ in selector.select(max(waiting[0][0] - time.perf_counter(), 0.0) if waiting else None):
                producer = key.data
                size = receive_response_into(producer.sock, buffer)
                try:
                    is_under_way = producer.go_on(buffer[:size])
                except Refused as error:
                    if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                        raise
                    due = time.perf_counter() + RETRY_SECONDS
                    heapq.heappush(waiting, (due, producer.sock.fileno(), producer))
                    continue
                if is_under_way:
                    continue
                latencies_ns.append(time.perf_counter_ns() - producer.began_ns)
                if left > 0:
                    left -= 1
                    producer.begin()
            while waiting and waiting[0][0] <= time.perf_counter():
                heapq.heappop(waiting)[2].again()
        return LoopFigures(transactions, time.perf_counter() - start, latencies_ns)
