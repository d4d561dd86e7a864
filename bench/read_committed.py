"""Reading only committed records beside reading all, where a tenth of the transactions were aborted.

The answer to the former has the aborted transactions of what it brings; the records are the same, and the consumer
passes over those that were aborted. Each log is read by a plan that was made by reading it once: which offset each
Fetch asks for, and how large its answer is.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from functools import partial

import attrs

from bench.bulk import Moved, measured
from bench.kafka import BulkTurns, add_row
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE
from bench.subject import broker
from bench.transaction_load import RECORDS, SECOND, transact, transaction_batch, transactional_producer
from bench.turns import take_in_turns
from bench.wire import (
    FETCH_VERSION,
    MIB,
    BenchError,
    FetchFrame,
    answer,
    connect,
    create_topic,
    fetch_frame,
    receive_response_into,
    require,
)
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.fetch import FetchRequest, FetchResponse
from kafka_wire.records.batch import read_batches
from trio_broker.testing.process import BrokerProcess

TOPIC = "committed"

WRITERS = 16
"""Producers of the log, all into one partition, so that their transactions overlap."""

READ_MIB = 32

READ_VALUE_BYTES = 1000
"""With ten of them a transaction takes 10 KiB: a fetch of 1 MiB meets ten that were aborted."""

ABORTS_EVERY = 10

FETCH_BYTES = (MIB, 16 * 1024)
"""A consumer's default, and one transaction at a time."""


ROUND_FETCHES = 64
"""At most, of one round; a turn has many rounds."""


@attrs.frozen
class PlannedFetch:
    """A Fetch from ``offset`` on, and the bytes of its response."""

    offset: int
    response_bytes: int


def read_committed(options: Options) -> Outcome:
    """Rate and CPU of reading committed records over those of reading all, where a tenth of transactions aborted."""
    outcome = Outcome("read-committed")
    with broker(options.directory, PAGE_CACHE) as process:
        create_topic(process.port, TOPIC, 1)
        end_offset = fill(process, options.volume(READ_MIB * MIB // (RECORDS * READ_VALUE_BYTES)))
        sides = {size: pair(process, end_offset, size) for size in FETCH_BYTES}
        take_in_turns(sides.values(), options)
    table = outcome.table(
        f"Fetch of a cached log, one of {ABORTS_EVERY} transactions of {RECORDS} records of {READ_VALUE_BYTES} bytes "
        f"aborted, medians of {options.repeats} turns",
        *("bytes a fetch", "CPU µs/MiB committed", "all", "committed ÷ all"),
        *("MiB/s committed", "all", "committed ÷ all"),
    )
    for size, (everything, committed) in sides.items():
        cpu, rate = add_row(table, (size,), committed.moves, everything.moves)
        outcome.measures[f"read-committed-{size // 1024}-cpu"] = cpu
        outcome.measures[f"read-committed-{size // 1024}-rate"] = rate
    return outcome


def fill(process: BrokerProcess, count: int) -> int:
    """Write ``count`` transactions of many producers into one partition; return its end when all have ended."""
    batch = transaction_batch(READ_VALUE_BYTES)
    with ExitStack() as stack:
        producers = [
            stack.enter_context(transactional_producer(process.port, f"writer-{index}", TOPIC, 0, SECOND, batch))
            for index in range(WRITERS)
        ]
        for producer in producers:
            producer.aborts_every = ABORTS_EVERY
        transact(producers, max(count, len(producers)))
    with connect(process.port) as sock:
        while True:
            found = fetched(sock, fetch_frame(TOPIC, 0, 1), 0).responses[0].partitions[0]
            if found.last_stable_offset == found.high_watermark:
                return found.high_watermark
            time.sleep(0.01)


def fetched(sock: socket.socket, frame: FetchFrame, offset: int) -> FetchResponse:
    sock.sendall(frame.at(offset))
    response = answer(sock, FetchRequest, FETCH_VERSION)
    require(response.error_code or response.responses[0].partitions[0].error_code, "fetching")
    return response


def pair(process: BrokerProcess, end_offset: int, size: int) -> tuple[BulkTurns, BulkTurns]:
    """Reading everything, and committed records alone."""
    everything, committed = (reading(process, end_offset, size, isolation) for isolation in IsolationLevel)
    return everything, committed


def reading(process: BrokerProcess, end_offset: int, size: int, isolation: IsolationLevel) -> BulkTurns:
    """Reading the log again and again, in fetches of ``size`` bytes."""
    frame = fetch_frame(TOPIC, 0, size, isolation_level=isolation)
    plan = planned(process.port, frame, end_offset)
    mib = sum(each.response_bytes for each in plan) / MIB

    def read() -> Moved:
        return measured(process.pid, mib, partial(follow, process.port, frame, plan))

    return BulkTurns(read)


def planned(port: int, frame: FetchFrame, end_offset: int) -> list[PlannedFetch]:
    """The first fetches that read the log from its beginning, by reading it once."""
    plan: list[PlannedFetch] = []
    offset = 0
    buffer = memoryview(bytearray(2 * MIB))
    with connect(port) as sock:
        while offset < end_offset and len(plan) < ROUND_FETCHES:
            records = fetched(sock, frame, offset).responses[0].partitions[0].records
            if not records:
                raise BenchError(f"a fetch at {offset} brought no records")
            sock.sendall(frame.at(offset))
            plan.append(PlannedFetch(offset, receive_response_into(sock, buffer)))
            *_, last = read_batches(records)
            offset = last.header.next_offset
    return plan


def follow(port: int, frame: FetchFrame, plan: list[PlannedFetch]) -> None:
    """Fetch as planned.

    Raises:
        BenchError: a response has another size.
    """
    buffer = memoryview(bytearray(MIB))
    with connect(port) as sock:
        for each in plan:
            sock.sendall(frame.at(each.offset))
            if (size := receive_response_into(sock, buffer)) != each.response_bytes:
                raise BenchError(f"a fetch at {each.offset} brought {size} bytes, not {each.response_bytes}")
