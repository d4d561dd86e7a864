"""What the densest input holds of the event loop, by construct of the wire: processor time of the longest turn.

For every request in every version, header, subscription and assignment, and for batches of every codec, there is one
input for each construct whose count a client gives, with as many of its elements as the reader takes. Each is read as a
broker reads it, with the turns that this gives. So what is slow for its bytes, or gives no turns, stands first.

    python -m fuzz.decoders --profile

The numbers are of this machine. What may never grow is claimed by tests that count turns and calls:
``tests/protocol/test_codec_in_turns.py``, ``tests/handlers/test_dense_batches.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Any, Final

import attrs

from fuzz.dense_batches import dense_batches
from fuzz.dense_messages import DenseMessage, dense_messages, dense_tags
from kafka_wire.codec import decode, decode_in_turns
from kafka_wire.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.headers import RequestHeader, read_request_header, request_header
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.primitives import MAX_TAGS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.handlers.support.dispatch import LARGE_REQUEST_BYTES
from trio_broker.storage import validation

ELEMENTS: Final = 20_000
"""Of the construct that is repeated: most readers would take three times as many."""

BREADTH: Final = 5
"""Elements of the arrays around what is repeated, where that is a long string or has a limit of its own."""

BATCH_BYTES: Final = 1_000_000
"""Of one batch: about the largest by default."""

ROWS: Final = 30

PARTITION: Final = TopicPartition("dense", 0)

Reading = Generator[None, None, Any]


@attrs.frozen
class DenseInput:
    """Bytes, and how a broker reads them on its event loop: a generator that yields where it gives a turn."""

    name: str
    data: bytes
    read: Callable[[bytes], Reading]


@attrs.frozen
class Cost:
    """What one input took, in nanoseconds of processor time: its longest turn, and all."""

    name: str
    size_bytes: int
    turns: int
    longest_ns: int
    total_ns: int

    def __str__(self) -> str:
        return (
            f"{self.longest_ns / 1000:9.0f} us  {self.longest_ns / self.size_bytes:8.2f} ns  "
            f"{self.total_ns / self.size_bytes:8.2f} ns  {self.size_bytes:8}  {self.turns:6}  {self.name}"
        )


HEADING: Final = " longest turn  of it/byte  all of it/byte  bytes  turns  input"


def dense_inputs() -> Iterator[DenseInput]:
    """Yield an input for each construct of everything that clients send."""
    for request in all_requests().values():
        for version in range(request.VERSIONS.low, request.VERSIONS.high + 1):
            yield from dense_requests(request, version)
    tagged = request_header(RequestHeader(ProduceRequest.API_KEY, ProduceRequest.VERSIONS.high, 1, "dense"))
    yield DenseInput("header.tags", tagged[:-1] + dense_tags(MAX_TAGS), read_header)
    blobs: tuple[Any, ...] = (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
    for kind in blobs:
        yield from dense_requests(kind, kind.VERSIONS.high)
    for size_bytes in (validation.CHEAP_WALK_BYTES - 1000, BATCH_BYTES):
        for batch in dense_batches(size_bytes):
            yield DenseInput(f"batch of {batch.construct}", batch.data, read_batch)


def dense_requests(kind: Any, version: int) -> Iterator[DenseInput]:
    """Yield inputs for each construct of one request: of many elements, and as large as one that is read at once."""
    read = message_reader(kind, version)
    for dense in chain(
        dense_messages(kind, version, ELEMENTS),
        dense_messages(kind, version, MAX_TAGS, BREADTH),
        dense_messages(kind, version, 1, BREADTH, long=True),
        largest_read_at_once(kind, version),
    ):
        yield DenseInput(f"{kind.__name__} v{version} {dense.construct}", dense.data, read)


def largest_read_at_once(kind: Any, version: int) -> Iterator[DenseMessage]:
    """Yield a message for each array in ``kind`` which fills ``LARGE_REQUEST_BYTES``."""
    of_one, of_two = (list(dense_messages(kind, version, count)) for count in (1, 2))
    for index, (one, two) in enumerate(zip(of_one, of_two, strict=True)):
        element_bytes = len(two.data) - len(one.data)
        count = 1 + (LARGE_REQUEST_BYTES - len(one.data)) // element_bytes
        if count > MAX_TAGS:
            # The count itself grows by a byte or two.
            yield list(dense_messages(kind, version, count - 2))[index]


# --- As a broker reads them ---


def message_reader(kind: Any, version: int) -> Callable[[bytes], Reading]:
    """Return what the dispatcher does with the body of a request."""

    def read(data: bytes) -> Reading:
        if len(data) <= LARGE_REQUEST_BYTES:
            return decode(kind, version, data)
        return (yield from decode_in_turns(kind, version, data))

    return read


def read_header(data: bytes) -> Reading:
    yield from ()
    return read_request_header(data)


def read_batch(data: bytes) -> Reading:
    """What the event loop does with a batch of a Produce; the rest is a worker thread's."""
    yield from ()
    config = LogConfig()
    batch = validation.check_client_batch(memoryview(bytearray(data)), config, None)
    if not validation.takes_long(batch, config, batch.header.max_timestamp):
        validation.prepare(batch, config, batch.header.max_timestamp, PARTITION)


# --- Measuring ---


def cost_of(each: DenseInput) -> Cost:
    """Read ``each`` and time its turns."""
    turns = longest = total = 0
    reading = each.read(each.data)
    while True:
        began = time.thread_time_ns()
        try:
            next(reading)
            is_over = False
        except (StopIteration, KafkaError, WireError):  # Refused: what was done until then counts as well.
            is_over = True
        taken = time.thread_time_ns() - began
        longest, total, turns = max(longest, taken), total + taken, turns + 1
        if is_over:
            return Cost(each.name, len(each.data), turns, longest, total)


def print_profile(rows: int = ROWS) -> None:
    """Print the inputs that hold the loop longest, longest first; of each the better of two readings."""
    costs = []
    for each in dense_inputs():
        cost_of(each)  # Readers are compiled when they are first used.
        costs.append(min(cost_of(each), cost_of(each), key=lambda cost: cost.longest_ns))
    print(f"{len(costs)} inputs, the {rows} with the longest turns:\n{HEADING}")
    for cost in sorted(costs, key=lambda cost: -cost.longest_ns)[:rows]:
        print(cost)
