"""What the admin app takes from clients: open pages and a tail, a search through a million records, the metering.

The same broker without that load is what each is compared with, in turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlencode

import attrs

from bench.figures import Better, Latencies, Repeats, percentile, ratio
from bench.load import LoopFigures, in_turn
from bench.machine import spent_by
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, TOPIC, Runs, frames_for
from bench.subject import broker
from bench.wire import BenchError, connect, create_topic, produce_frame, produced, success_response
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestWaits
from trio_broker.testing.process import BrokerProcess

CONNECTIONS = 16

TURN_REQUESTS = 25_000
"""A turn of some six seconds: each open page reads itself twice in it."""

SEARCHED_TOPIC = "searched"
SEARCHED_RECORDS = 1_000_000
SEARCHED_PARTITIONS = 4
RECORDS_PER_BATCH = 500

SEARCH_TURN_REQUESTS = 5_000

FILTER = 'value.contains("needle")'
"""Lets no record pass, so that all are looked at."""

METERED_REQUESTS = 500_000

PRODUCE_API_KEY = 0


# ---- open pages


def cost(options: Options) -> Outcome:
    """Produce throughput with five open pages and a tail over that without them."""
    outcome = Outcome("admin-cost")
    requests = max(CONNECTIONS, options.volume(TURN_REQUESTS))
    response_bytes = len(success_response(TOPIC))
    quiet, watched = Runs(), Runs()
    with broker(options.directory, PAGE_CACHE) as process:
        create_topic(process.port, TOPIC, CONNECTIONS)
        frames = frames_for(CONNECTIONS)
        for _ in range(options.repeats):
            quiet.take(process.pid, process.port, frames, requests, response_bytes)
            with pages_open(process):
                watched.take(process.pid, process.port, frames, requests, response_bytes)
    table = outcome.table(
        f"One-record Produce, {CONNECTIONS} connections, with five open pages and a tail of the topic",
        *("", "requests/s best", "median", "spread", "÷ without", "broker CPU µs/request", "÷ without", "p99 ms"),
    )
    for name, runs in (("nothing open", quiet), ("five pages and a tail", watched)):
        rate, cpu = runs.rate, runs.cpu
        table.add(
            *(name, rate.best, rate.median, f"{rate.spread:.0%}", ratio(rate, quiet.rate)),
            *(cpu.median, ratio(cpu, quiet.cpu), runs.latencies().p99_ms),
        )
    outcome.measures["admin-cost"] = ratio(watched.rate, quiet.rate)
    outcome.measures["admin-cost-cpu"] = ratio(watched.cpu, quiet.cpu)
    return outcome


@contextmanager
def pages_open(process: BrokerProcess) -> Iterator[None]:
    """Keep the pages open that ``bench.open_pages`` opens."""
    command = [sys.executable, "-m", "bench.open_pages", process.admin_url, TOPIC]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as pages:
        assert pages.stdout is not None
        try:
            if pages.stdout.readline() != "open\n":
                raise BenchError("the pages could not be opened")
            yield
        finally:
            pages.kill()


# ---- searches


@attrs.define
class Searches:
    """Searches through a topic, one after the other, in a thread; what they have looked at."""

    url: str
    records: int = 0
    seconds: float = 0.0
    failure: BaseException | None = None
    _ends: threading.Event = attrs.field(factory=threading.Event)

    def run(self) -> None:
        """Search until ``_ends`` is set, from the oldest record on and again from there at the end."""
        try:
            cursor = None
            while not self._ends.is_set():
                cursor = self.search(cursor)
        except BaseException as error:
            self.failure = error

    def search(self, cursor: str | None) -> str | None:
        """One search; where the next one goes on."""
        query = {"from": "oldest", "where": FILTER, "decode": "text"} | ({"cursor": cursor} if cursor else {})
        address = f"{self.url}/api/v1/topics/{SEARCHED_TOPIC}/records?{urlencode(query)}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            found = json.load(answer)
        self.records += found["searched_records"]
        self.seconds += found["seconds"]
        return None if found["ended_by"] == "end" else str(found["next_cursor"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Search while the block lasts."""
        self._ends.clear()
        thread = threading.Thread(target=self.run, name="searches")
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()
        if self.failure is not None:
            raise self.failure


def search(options: Options) -> Outcome:
    """p99 of one-record Produces while a million records are searched, over that of a quiet broker."""
    outcome = Outcome("admin-search")
    records = options.volume(SEARCHED_RECORDS)
    requests = max(CONNECTIONS, options.volume(SEARCH_TURN_REQUESTS))
    response_bytes = len(success_response(TOPIC))
    with broker(options.directory, PAGE_CACHE) as process:
        create_topic(process.port, TOPIC, CONNECTIONS)
        create_topic(process.port, SEARCHED_TOPIC, SEARCHED_PARTITIONS)
        fill(process.port, records)
        searches = Searches(process.admin_url.rstrip("/"))
        alone = Searches(process.admin_url.rstrip("/"))
        with spent_by(process.pid) as spent:
            cursor = alone.search(None)
            while cursor is not None:
                cursor = alone.search(cursor)
        frames = frames_for(CONNECTIONS)
        quiet: list[LoopFigures] = []
        searched: list[LoopFigures] = []
        in_turn(process.port, frames, requests, response_bytes)
        for _ in range(options.repeats):
            quiet.append(in_turn(process.port, frames, requests, response_bytes))
            with searches.running():
                searched.append(in_turn(process.port, frames, requests, response_bytes))
    p99 = {name: Repeats([p99_ms(run) for run in runs]) for name, runs in (("quiet", quiet), ("searched", searched))}
    table = outcome.table(
        f"One-record Produce, {CONNECTIONS} connections, while {records:,} records of 100 bytes are searched",
        *("", "p50 ms", "p99 ms median", "spread", "p99 ÷ quiet", "requests/s", "records searched/s"),
    )
    for name, runs, rate in (
        ("quiet", quiet, 0.0),
        ("searched", searched, searches.records / searches.seconds if searches.seconds else 0.0),
    ):
        latencies = Latencies.of_ns([value for run in runs for value in run.latencies_ns])
        throughput = Repeats([run.requests_per_second for run in runs], Better.MORE)
        table.add(
            *(name, latencies.p50_ms, p99[name].median, f"{p99[name].spread:.0%}", ratio(p99[name], p99["quiet"])),
            *(throughput.median, rate),
        )
    outcome.remarks.append(
        f"With nothing else to do the broker searched {alone.records / alone.seconds:,.0f} records/s, "
        f"{spent.cpu / alone.records * 1e6:.2f} µs of CPU each."
    )
    outcome.measures["admin-search"] = ratio(p99["searched"], p99["quiet"])
    outcome.measures["admin-search-rate"] = alone.records / alone.seconds / 1e3
    return outcome


def p99_ms(run: LoopFigures) -> float:
    return percentile(sorted(run.latencies_ns), 0.99) / 1e6


def fill(port: int, records: int) -> None:
    """Append records to the topic that is searched."""
    value = ("the quick brown fox jumps over the lazy dog, " * 3)[:100].encode()
    batch = build_batch([NewRecord(timestamp=1_700_000_000_000, value=value)] * min(RECORDS_PER_BATCH, records))
    with connect(port) as sock:
        for number in range(max(1, records // RECORDS_PER_BATCH)):
            sock.sendall(produce_frame(SEARCHED_TOPIC, number % SEARCHED_PARTITIONS, batch, 1))
            produced(sock)


# ---- metering


@attrs.define
class MeteredRequest:
    """The times of a request, as the processor knows them when it was answered."""

    queued_ns: int
    began_ns: int
    answered_ns: int
    waits: RequestWaits | None = None


def metering(options: Options) -> Outcome:
    """What it costs to count the times of a request in the histograms, over a loop that does nothing."""
    outcome = Outcome("admin-metering")
    count = options.volume(METERED_REQUESTS)
    bare, metered = [], []
    for _ in range(options.repeats):
        bare.append(loop_us(count, lambda request, sending_ns, sent_ns: None))
        metered.append(loop_us(count, partial(record_in, RequestChannelMetrics())))
    floor, ours = Repeats(bare), Repeats(metered)
    table = outcome.table(f"Metering of {count:,} requests", "", "CPU µs/request best", "median", "spread")
    for name, values in (("a call that does nothing", floor), ("noted and counted", ours)):
        table.add(name, values.best, values.median, f"{values.spread:.0%}")
    outcome.measures["admin-metering"] = ours.best - floor.best
    return outcome


def record_in(channel: RequestChannelMetrics, request: MeteredRequest, sending_ns: int, sent_ns: int) -> None:
    """As the processor does it, with the look-up of the API."""
    channel.by_api[PRODUCE_API_KEY].record(request, sending_ns, sent_ns)


def loop_us(count: int, record: Callable[[MeteredRequest, int, int], None]) -> float:
    """CPU microseconds of a call of ``record`` with the times of requests of different lengths."""
    requests = [MeteredRequest(0, 20_000 + 7_919 * index, 90_000 + 9_973 * index) for index in range(64)]
    began = time.thread_time_ns()
    for index in range(count):
        request = requests[index & 63]
        record(request, request.answered_ns + 15_000, request.answered_ns + 40_000)
    return (time.thread_time_ns() - began) / count / 1e3
