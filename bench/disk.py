"""What waiting for the disk costs, and what threads do about it: fsync with group commit, io threads, cold fetches.

A disk that answers in a fraction of a millisecond is never what one waits for, so everything here runs twice: on the
disk as it is, and with every sync and cold read made as long as a common cloud volume's (``bench.slow_disk``). Both
stand in the table; the ceiling that raw threads reach on raw files stands beside them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from bench.bulk import fill
from bench.figures import Better, Latencies, Repeats, ratio
from bench.floors import cold_mib_per_second, fdatasync_seconds, syncs_per_second
from bench.load import Consumer, LoopFigures, in_turn, side_by_side
from bench.machine import drop_from_page_cache, spent_by
from bench.outcome import Options, Outcome
from bench.phases import PhaseRow, add_phase_table, phase_row
from bench.slow_disk import delayed_by
from bench.small import PAGE_CACHE, TOPIC, frames_for
from bench.subject import broker, change_config
from bench.turns import Turns, take_in_turns
from bench.wire import MIB, bulk_batch, create_topic, fetch_frame, small_batch, success_response
from trio_broker.testing.process import BrokerProcess

PRODUCERS = 64

FSYNC = {"log.durability": "fsync"}

SLOW_DISK_MS = 2.0
"""What a cloud volume takes for a sync or a read (1 to 4 ms)."""

DISKS_MS = (0.0, SLOW_DISK_MS)
SYNC_DISKS_MS = (0.0, SLOW_DISK_MS, 5.0)

SYNC_REQUESTS = 4_000
THREAD_REQUESTS = 1_500
"""Per repeat; a second or two."""

IO_THREADS = (1, 2, 4, 8)
NETWORK_THREADS = (1, 2, 4)
"""Doubling, since Kafka's rule allows no larger steps."""

SYNC_PARTITIONS = 16

COLD_PARTITIONS = 8
COLD_MIB = 48
"""Per partition and phase."""

RAW_SECONDS = 1.0


def disk_name(delay_ms: float, what: str = "sync") -> str:
    return f"each {what} {delay_ms:g} ms longer" if delay_ms else "as it is"


def disk_key(delay_ms: float) -> str:
    """The disk's name in the names of measures."""
    return f"{delay_ms:g}ms" if delay_ms else "as-it-is"


def up_and_down(counts: Sequence[int], repeat: int) -> Sequence[int]:
    """The numbers of threads of one repeat: up, then down, so that none of them always comes last."""
    return counts if repeat % 2 == 0 else counts[::-1]


@attrs.define
class Acks:
    """Repeats of one load of acks=all."""

    figures: list[LoopFigures] = attrs.field(factory=list)
    cpu_us: list[float] = attrs.field(factory=list)
    machine_busy: list[float] = attrs.field(factory=list)

    def take(self, pid: int, port: int, frames: list[bytearray], requests: int) -> None:
        """Run the load once."""
        with spent_by(pid) as spent:
            self.figures.append(in_turn(port, frames, requests, len(success_response(TOPIC))))
        self.cpu_us.append(spent.cpu / requests * 1e6)
        self.machine_busy.append(spent.machine_busy)

    @property
    def rate(self) -> Repeats:
        return Repeats([run.requests_per_second for run in self.figures], Better.MORE)

    @property
    def latencies(self) -> Latencies:
        return Latencies.of_ns([latency for run in self.figures for latency in run.latencies_ns])


# ---- group commit


def fsync(options: Options) -> Outcome:
    """How many acknowledgements of acks=all a sync is shared by."""
    outcome = Outcome("fsync")
    table = outcome.table(
        f"fsync, acks=all, {PRODUCERS} producers, one record a request",
        *("disk", "partitions", "one fdatasync ms", "acks/s best", "median", "spread", "acks/s × fdatasync"),
        *("CPU µs/ack", "p50 ms", "p99 ms"),
    )
    rows: list[PhaseRow] = []
    for delay_ms in SYNC_DISKS_MS:
        for partitions in (1, SYNC_PARTITIONS):
            acks, sync_seconds, phases = group_commit(options, delay_ms, partitions)
            rows.append(phases)
            shared = acks.rate.best * sync_seconds.best
            latencies = acks.latencies
            table.add(
                *(disk_name(delay_ms), partitions, sync_seconds.best * 1e3, acks.rate.best, acks.rate.median),
                *(f"{acks.rate.spread:.0%}", shared, min(acks.cpu_us), latencies.p50_ms, latencies.p99_ms),
            )
            if partitions == 1:
                outcome.measures[f"fsync-{disk_key(delay_ms)}"] = shared
    add_phase_table(outcome, rows)
    return outcome


def group_commit(options: Options, delay_ms: float, partitions: int) -> tuple[Acks, Repeats, PhaseRow]:
    """The load on one disk, the time of one fdatasync there, taken between the repeats, and the time by phase."""
    acks, sync_seconds = Acks(), []
    with broker(options.directory, FSYNC, delay_ms=delay_ms) as process, delayed_by(delay_ms):
        create_topic(process.port, TOPIC, partitions)
        frames = frames_for(PRODUCERS, acks=-1, partitions=partitions)
        in_turn(process.port, frames, PRODUCERS * 4, None)
        for _ in range(options.repeats):
            sync_seconds.append(fdatasync_seconds(process.data_directory, small_batch(), 100))
            acks.take(process.pid, process.port, frames, max(PRODUCERS, options.volume(SYNC_REQUESTS)))
        phases = phase_row(f"{disk_name(delay_ms)}, {partitions} partitions", process, "Produce")
    return acks, Repeats(sync_seconds), phases


def fsync_cost(options: Options) -> Outcome:
    """CPU per acknowledgement with fsync over the same requests to a broker that leaves writing to the page cache."""
    outcome = Outcome("fsync-cost")
    loads = [(1, 1), (PRODUCERS, 1), (PRODUCERS, SYNC_PARTITIONS)]
    with broker(options.directory, PAGE_CACHE) as cached, broker(options.directory, FSYNC) as synced:
        for process in (cached, synced):
            create_topic(process.port, TOPIC, SYNC_PARTITIONS)
        frames = [frames_for(producers, acks=-1, partitions=partitions) for producers, partitions in loads]
        size = len(success_response(TOPIC))
        pairs = [
            (Turns(cached.pid, cached.port, each, size), Turns(synced.pid, synced.port, each, size)) for each in frames
        ]
        take_in_turns(pairs, options)
    table = outcome.table(
        "acks=all, one record a request: CPU µs per acknowledgement, the disk as it is",
        *("producers", "partitions", "fsync", "page cache", "fsync ÷ page cache", "acks/s, fsync", "page cache"),
    )
    for (producers, partitions), (bare, ours) in zip(loads, pairs, strict=True):
        cost = ratio(ours.runs.cpu, bare.runs.cpu)
        rates = (ours.runs.rate.median, bare.runs.rate.median)
        table.add(producers, partitions, ours.runs.cpu.median, bare.runs.cpu.median, cost, *rates)
        outcome.measures[f"fsync-cost-{producers}-{partitions}"] = cost
    return outcome


# ---- io threads


def io_threads(options: Options) -> Outcome:
    """The rate of acks that each need a sync of their own, as ``num.io.threads`` is doubled live."""
    outcome = Outcome("io-threads")
    table = outcome.table(
        f"num.io.threads, changed live: {SYNC_PARTITIONS} producers over {SYNC_PARTITIONS} partitions, acks=all, fsync",
        *("disk", "io threads", "acks/s best", "spread", "÷ 1 thread", "raw syncs/s", "raw ÷ 1 thread", "CPU µs/ack"),
        "machine busy",
    )
    for delay_ms in DISKS_MS:
        found, raw = io_thread_rates(options, delay_ms)
        base, raw_base = found[1].rate.best, raw[1].best
        for threads in IO_THREADS:
            rate = found[threads].rate
            table.add(
                *(disk_name(delay_ms), threads, rate.best, f"{rate.spread:.0%}", rate.best / base),
                *(raw[threads].best, raw[threads].best / raw_base, min(found[threads].cpu_us)),
                f"{statistics.median(found[threads].machine_busy):.0%}",
            )
        outcome.measures[f"io-threads-{disk_key(delay_ms)}"] = found[4].rate.best / base
    return outcome


def io_thread_rates(options: Options, delay_ms: float) -> tuple[dict[int, Acks], dict[int, Repeats]]:
    """By number of threads: the broker's acks, and the syncs a second of raw threads on raw files."""
    found = {threads: Acks() for threads in IO_THREADS}
    raw: dict[int, list[float]] = {threads: [] for threads in IO_THREADS}
    settings = {**FSYNC, "num.io.threads": str(IO_THREADS[0])}
    with broker(options.directory, settings, delay_ms=delay_ms) as process, delayed_by(delay_ms):
        create_topic(process.port, TOPIC, SYNC_PARTITIONS)
        frames = frames_for(SYNC_PARTITIONS, acks=-1)
        in_turn(process.port, frames, SYNC_PARTITIONS * 4, None)
        for repeat in range(options.repeats):
            for threads in up_and_down(IO_THREADS, repeat):
                change_config(process, "num.io.threads", str(threads))
                requests = max(SYNC_PARTITIONS, options.volume(THREAD_REQUESTS))
                found[threads].take(process.pid, process.port, frames, requests)
                raw[threads].append(
                    syncs_per_second(
                        process.data_directory,
                        small_batch(),
                        files=SYNC_PARTITIONS,
                        threads=threads,
                        seconds=RAW_SECONDS * min(1.0, options.scale) / 2,
                    )
                )
    return found, {threads: Repeats(values, Better.MORE) for threads, values in raw.items()}


# ---- network threads


@attrs.define
class ColdRates:
    """MiB a second by number of threads, a value per repeat: cold and then cached, and of raw threads.

    ``machine_busy`` is of the cold phase.
    """

    cold: dict[int, list[float]] = attrs.field(factory=lambda: {threads: [] for threads in NETWORK_THREADS})
    cached: dict[int, list[float]] = attrs.field(factory=lambda: {threads: [] for threads in NETWORK_THREADS})
    raw: dict[int, list[float]] = attrs.field(factory=lambda: {threads: [] for threads in NETWORK_THREADS})
    machine_busy: dict[int, list[float]] = attrs.field(factory=lambda: {threads: [] for threads in NETWORK_THREADS})


def network_threads(options: Options) -> Outcome:
    """The rate of fetches that must come from the disk, as ``num.network.threads`` is doubled live."""
    outcome = Outcome("network-threads")
    table = outcome.table(
        f"num.network.threads, changed live: {COLD_PARTITIONS} consumers, 1 MiB a fetch, pages dropped before",
        *("disk", "network threads", "cold MiB/s best", "spread", "÷ 1 thread", "raw threads, MiB/s", "÷ 1 thread"),
        *("machine busy", "then cached, MiB/s"),
    )
    for delay_ms in DISKS_MS:
        rates = cold_rates(options, delay_ms)
        base, raw_base = max(rates.cold[1]), max(rates.raw[1])
        for threads in NETWORK_THREADS:
            cold, raw = Repeats(rates.cold[threads], Better.MORE), max(rates.raw[threads])
            table.add(
                *(disk_name(delay_ms, "read"), threads, cold.best, f"{cold.spread:.0%}", cold.best / base),
                *(raw, raw / raw_base, f"{statistics.median(rates.machine_busy[threads]):.0%}"),
                max(rates.cached[threads]),
            )
        outcome.measures[f"network-threads-{disk_key(delay_ms)}"] = max(rates.cold[4]) / base
    return outcome


@attrs.frozen
class Reading:
    """What all consumers together read in one phase."""

    mib_per_second: float
    machine_busy: float


def read_all(process: BrokerProcess, jobs: Sequence[Callable[[], int]]) -> Reading:
    """Run all consumers at once."""
    with spent_by(process.pid) as spent:
        total = sum(side_by_side(jobs))
    return Reading(total / MIB / spent.wall, spent.machine_busy)


def cold_rates(options: Options, delay_ms: float) -> ColdRates:
    """Read the logs of all partitions at once, cold and then again, with every number of threads."""
    rates, batch, count = ColdRates(), bulk_batch(), options.volume(COLD_MIB)
    settings = {"log.durability": "page-cache", "num.network.threads": str(NETWORK_THREADS[0])}
    topics = [f"cold-{index}" for index in range(COLD_PARTITIONS)]
    with broker(options.directory, settings, delay_ms=delay_ms) as process, delayed_by(delay_ms):
        paths = [fill(process, topic, 0, batch, count) for topic in topics]
        jobs = [partial(Consumer(process.port, fetch_frame(topic, 0, MIB), batch).read, count) for topic in topics]
        for repeat in range(options.repeats):
            for threads in up_and_down(NETWORK_THREADS, repeat):
                change_config(process, "num.network.threads", str(threads))
                for path in paths:
                    drop_from_page_cache(path)
                cold = read_all(process, jobs)
                rates.cold[threads].append(cold.mib_per_second)
                rates.machine_busy[threads].append(cold.machine_busy)
                rates.cached[threads].append(read_all(process, jobs).mib_per_second)
                rates.raw[threads].append(cold_mib_per_second(paths, threads))
    return rates
