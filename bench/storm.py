"""What is left of a broker's memory when hostile clients have gone: bombs, large frames, clients that never read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from bench.bulk import PAGE_CACHE
from bench.machine import resident_bytes
from bench.outcome import Options, Outcome
from bench.subject import broker
from bench.wire import (
    METADATA_VERSION,
    MIB,
    connect,
    create_topic,
    metadata,
    produce_frame,
    receive_frame,
    request_frame,
)
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.records.batch import assemble_batch, build_batch, read_batch_header
from kafka_wire.records.compression import Codec, compress
from kafka_wire.records.record import NewRecord

TOPIC = "storm"
PARTITIONS = 8
SENDERS = 16
"""Of bombs or large frames at a time: eight times as many as are inflated at a time."""

BOMB_BYTES = 60 * MIB
"""Inflated; a little below what the broker inflates at all."""

LARGE_RECORD_BYTES = 25 * MIB
MAX_MESSAGE_BYTES = 30 * MIB
MANY_RECORDS = 900_000
FLOODS = 500
REQUESTS_PER_FLOOD = 200
FLOOD_SECONDS = 3.0
SETTLE_SECONDS = 2.0


def storm(options: Options) -> Outcome:
    """RSS after each storm, and after all of them over that before."""
    outcome = Outcome("storm")
    table = outcome.table("Memory of a broker after storms of hostile clients", "after", "RSS MiB", "÷ before")
    with broker(options.directory, PAGE_CACHE) as process:
        create_topic(process.port, TOPIC, PARTITIONS, max_message_bytes=str(MAX_MESSAGE_BYTES))
        with connect(process.port) as sock:
            metadata(sock)
        time.sleep(SETTLE_SECONDS)
        before = after = resident_bytes(process.pid)
        table.add("start", before / MIB, 1)
        for name, batch in hostile_batches():
            send_at_once(process.port, batch)
            time.sleep(SETTLE_SECONDS)
            after = resident_bytes(process.pid)
            table.add(f"{SENDERS} × {name}", after / MIB, after / before)
        flood(process.port)
        time.sleep(SETTLE_SECONDS)
        after = resident_bytes(process.pid)
        table.add(f"{FLOODS} clients that never read", after / MIB, after / before)
    outcome.measures["storm"] = after / before
    return outcome


def hostile_batches() -> Iterator[tuple[str, bytes]]:
    """Batches by name, each built when its turn comes."""
    for codec in (Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD):
        yield f"a bomb of {codec.name.lower()}", bomb(codec)
    yield f"a record of {LARGE_RECORD_BYTES // MIB} MiB", build_batch([NewRecord(0, None, bytes(LARGE_RECORD_BYTES))])
    yield f"{MANY_RECORDS:,} records in gzip", build_batch([NewRecord(0)] * MANY_RECORDS, codec=Codec.GZIP)


def bomb(codec: Codec) -> bytes:
    small = build_batch([NewRecord(0, None, b"")], codec=codec)
    return assemble_batch(read_batch_header(small), compress(codec, bytes(BOMB_BYTES)))


def send_at_once(port: int, batch: bytes) -> None:
    """Send ``batch`` on many connections at a time, and wait for all answers."""
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(port)) for _ in range(SENDERS)]
        threads = [
            threading.Thread(target=sock.sendall, args=(produce_frame(TOPIC, number % PARTITIONS, batch, acks=1),))
            for number, sock in enumerate(socks)
        ]
        for thread in threads:
            thread.start()
        for sock, thread in zip(socks, threads, strict=True):
            receive_frame(sock)
            thread.join()


def flood(port: int) -> None:
    """Have many clients ask for Metadata and read no answer, for a while."""
    frame = request_frame(MetadataRequest(topics=None, allow_auto_topic_creation=False), METADATA_VERSION)
    with ExitStack() as stack:
        for _ in range(FLOODS):
            sock = stack.enter_context(connect(port))
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.send(bytes(frame) * REQUESTS_PER_FLOOD)
        time.sleep(FLOOD_SECONDS)
