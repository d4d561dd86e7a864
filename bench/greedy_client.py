"""A client that sends ten times its quota: what a producer beside it notices.

The greedy client waits for no answer, heeds no ``throttle_time_ms``, and sends all that has become late as soon as the
broker reads it again. It has used up what its quota lets it begin with before anything is measured.
"""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from multiprocessing.synchronize import Event

from bench.hostile_clients import COLUMNS, GOOD_TOPIC, QUESTIONS, Competition, GoodClient, running
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE
from bench.subject import Peer, broker
from bench.wire import MIB, ask, bulk_batch, connect, create_topic, produce_frame, produced, require, small_batch
from kafka_wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from kafka_wire.messages.describe_client_quotas import EntityData

ALTER_CLIENT_QUOTAS_VERSION = 1

GREEDY = "greedy"
"""Its client id, and its topic."""

QUOTA = float(MIB)
"""Bytes of Produce requests a second."""

TIMES_ITS_QUOTA = 10

BATCH_BYTES = 100_000

FIRST_SECONDS = 5.0
"""What a quota allows at once is ten seconds' worth: a second of what the greedy client sends."""

ATTEMPT_SECONDS = 0.05
"""How long it tries to send to a broker that does not read before it looks at whether it goes on."""


def greedy_client(options: Options) -> Outcome:
    """p99 of a producer beside a client above its quota over that without it."""
    outcome = Outcome("greedy-client")
    table = outcome.table("A producer's records, one after the other", *COLUMNS)
    frame = produce_frame(GOOD_TOPIC, 0, small_batch(), acks=1)

    def question(sock: socket.socket) -> None:
        sock.sendall(frame)
        produced(sock)

    with broker(options.directory, PAGE_CACHE) as process, broker(options.directory, PAGE_CACHE) as other:
        for each in (process, other):
            create_topic(each.port, GOOD_TOPIC, 1)
            create_topic(each.port, GREEDY, 1)
            set_quota(each)
            GoodClient(each.port, question).ask(options.volume(QUESTIONS))
            with running(sending_too_much, each.port):
                time.sleep(FIRST_SECONDS)
        began, before = time.perf_counter(), log_bytes(process)
        judged = Competition(process.port, process.port, other.port, question).judge(
            f"a client that sends {TIMES_ITS_QUOTA} times its quota", sending_too_much, options, table
        )
        written = (log_bytes(process) - before) / (time.perf_counter() - began)
    outcome.measures["greedy-client"] = judged.over_alone
    outcome.remarks.append(
        f"The greedy client wrote {written / QUOTA:.2f} times its quota, the time between its turns included."
    )
    return outcome


def set_quota(process: Peer) -> None:
    entry = AlterClientQuotasRequest.EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=GREEDY)],
        ops=[OpData(key="producer_byte_rate", value=QUOTA, remove=False)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    with connect(process.port) as sock:
        response = ask(sock, request, ALTER_CLIENT_QUOTAS_VERSION)
    require(response.entries[0].error_code, "setting a quota")


def sending_too_much(port: int, ends: Event) -> None:
    """A client that sends by the clock, whatever the broker makes of it."""
    frame = memoryview(produce_frame(GREEDY, 0, bulk_batch(BATCH_BYTES).data, 1, GREEDY))
    left, due = frame[:0], time.perf_counter()
    with connect(port, ATTEMPT_SECONDS) as sock:
        while not ends.is_set():
            if not left:
                ends.wait(max(0.0, due - time.perf_counter()))
                left, due = frame, due + len(frame) / (QUOTA * TIMES_ITS_QUOTA)
            with suppress(TimeoutError):
                left = left[sock.send(left) :]


def log_bytes(process: Peer) -> int:
    """What the greedy client has written."""
    return sum(path.stat().st_size for path in process.data_directory.glob(f"{GREEDY}-0/*.log"))
