"""What limits the broker now: one verdict out of its own readings, the evidence for it, and the one setting that helps.

The readings are means over the last seconds of the history. The rules are tried in their order, and the first that
holds is the verdict: what stops everything else comes first. The event loop is one, and while it is busy, or has no
CPU, no number of threads helps; so the rules about threads come after it. When nothing of the broker is short, the
clients are: they wait for nothing but their own next request. Everything here is a pure function.

Source: docs/metrics.md, which says in a table what each verdict means.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import attrs

from trio_broker.changes.change import ReadingUnit
from trio_broker.common.amounts import counted
from trio_broker.metrics.history import FollowerLag, HistorySample
from trio_broker.network.statistics import ClientBacklog

READINGS_SECONDS = 10
"""Samples that a verdict is made of: few enough to follow a change, enough that one odd second does not decide."""

IDLE_REQUESTS_PER_SECOND = 1.0
"""Below, nobody asks for anything: a connected consumer alone sends two a second."""

BUSY_LOOP_RATIO = 0.85
"""The loop's share of time from which on requests wait for it: a queue at a server that is busy for 85 % of the time is
about six long."""

LITTLE_CPU_RATIO = 0.6
"""The loop's CPU time over the time it was busy: one that has a CPU uses nearly all of it, but for short reads of the
disk and waits for the interpreter lock."""

CPU_PRESSURE_RATIO = 0.5
"""The share of time in which some task of the machine waited for a CPU, from which on CPUs are short. Below, the loop
may have waited for a disk."""

SYNCS_BUSY_RATIO = 0.5
"""The share of time in which all sync threads are busy from which on another one would be used half the time."""

SYNCS_WAITING = 1.0
"""Partitions that wait for a sync thread on average; below, another thread would often find nothing to do."""

DISK_WAIT_RATIO = 0.5
"""The share of their time that requests spend waiting for syncs from which on the disk decides how long they take."""

REPLICATION_WAIT_RATIO = 0.5
"""The share of their time that requests spend waiting for followers from which on these decide how long they take."""

SLOWEST_FOLLOWER_RATIO = 0.6
"""The share of the partitions that wait for one follower from which on it is named: of two that are equally quick, each
is the last half of the time."""

COLD_SEND_BUSY_RATIO = 0.7
"""The share of time in which a Processor's one thread waits for the disk: the next cold send waits behind it."""

SLOTS_BUSY_RATIO = 0.8
"""The mean over the handler slots, from which on a request finds all of them taken more often than not."""

QUEUE_DEPTH = 1.0
"""Requests that had to wait for a slot at the worst moment of a second."""

COMPACTION_BUSY_RATIO = 0.5
"""The share of time that compaction works, from which on it takes more of a busy interpreter than is left for it."""

LAG_MEANING = "records were missing at the follower that was furthest behind"

NAMED_CHARACTERS = 60
"""Of a client id in a sentence; it may have 32 KiB."""

EIGHT_THREADS = 8
"""Kafka's default of num.io.threads: a suggestion goes there at once, and beyond it doubles at most, since what limits
then may be another thing."""


class Limit(enum.Enum):
    """What keeps the broker from doing more."""

    OTHER_PROCESSES = "other processes"
    EVENT_LOOP = "event loop"
    DISK_SYNCS = "disk syncs"
    COLD_SENDS = "cold sends"
    REQUEST_QUEUE = "request queue"
    COMPACTION = "compaction"
    REPLICATION = "replication"
    CLIENT_BACKLOG = "client backlog"
    CLIENTS = "the clients"
    NOTHING = "nothing"


@attrs.frozen
class Evidence:
    """One reading behind a verdict: its name in the history's samples, its mean, and what it is in words."""

    name: str
    value: float
    unit: ReadingUnit
    meaning: str


@attrs.frozen
class SuggestedSetting:
    """A setting that would help, and the value to try."""

    key: str
    value: str


@attrs.frozen
class Bottleneck:
    """The verdict: ``limit``, in a sentence ``summary``, its ``evidence``, and ``setting``, the one that helps.

    ``reason`` says why that one; without a setting, why none helps. ``client_id`` is the client that the verdict is
    about, and ``broker_id`` the follower; None where it is not about one.
    """

    limit: Limit
    summary: str
    evidence: tuple[Evidence, ...]
    setting: SuggestedSetting | None
    reason: str
    client_id: str | None = None
    broker_id: int | None = None


@attrs.frozen(kw_only=True)
class BottleneckReadings:
    """Means over some seconds, named as in ``HistorySample``; ``io_busy_ratio`` is one minus the idle ratio, and
    ``backlog`` and ``unread_wait_ms`` are the latest. ``awaited_followers`` are added up over the seconds."""

    requests_per_second: float = 0.0
    connections: float = 0.0
    event_loop_busy_ratio: float = 0.0
    event_loop_cpu_ratio: float = 0.0
    process_cpu_ratio: float = 0.0
    cpu_pressure_ratio: float | None = None
    network_threads: int = 3
    io_threads: int = 8
    io_busy_ratio: float = 0.0
    queue_depth: float = 0.0
    disk_wait_ratio: float = 0.0
    replication_wait_ratio: float = 0.0
    awaited_followers: Mapping[int, FollowerLag] = attrs.field(factory=dict)
    sync_busy_ratio: float = 0.0
    sync_threads_busy_ratio: float = 0.0
    syncs_per_second: float = 0.0
    syncs_waiting: float = 0.0
    sync_p50_ms: float = 0.0
    sync_p99_ms: float = 0.0
    cold_send_busy_ratio: float = 0.0
    cold_sends_per_second: float = 0.0
    compaction_busy_ratio: float = 0.0
    compaction_bytes_per_second: float = 0.0
    unread_bytes: float = 0.0
    unread_wait_ms: float | None = 0.0
    backlog: ClientBacklog | None = None


def readings_of(samples: Sequence[HistorySample]) -> BottleneckReadings:
    """The means of those of the last ``READINGS_SECONDS`` samples that had as many threads as the latest; all zero
    without any."""
    if not samples:
        return BottleneckReadings()
    # What was read before a change of the threads says nothing of what limits after it.
    threads = threads_of(samples[-1])
    recent = [sample for sample in samples[-READINGS_SECONDS:] if threads_of(sample) == threads]

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    # A second without syncs says nothing of how long they take.
    syncing = [sample for sample in recent if sample.syncs_per_second]
    pressures = [sample.cpu_pressure_ratio for sample in recent if sample.cpu_pressure_ratio is not None]
    return BottleneckReadings(
        requests_per_second=mean([sample.requests_per_second for sample in recent]),
        connections=mean([sample.connections for sample in recent]),
        event_loop_busy_ratio=mean([sample.event_loop_busy_ratio for sample in recent]),
        event_loop_cpu_ratio=mean([sample.event_loop_cpu_ratio for sample in recent]),
        process_cpu_ratio=mean([sample.process_cpu_ratio for sample in recent]),
        cpu_pressure_ratio=mean(pressures) if pressures else None,
        network_threads=len(recent[-1].network_idle_ratios),
        io_threads=recent[-1].sync_threads,
        io_busy_ratio=1 - mean([sample.io_idle_ratio for sample in recent]),
        queue_depth=mean([sample.queue_depth for sample in recent]),
        disk_wait_ratio=mean([sample.disk_wait_ratio for sample in recent]),
        replication_wait_ratio=mean([sample.replication_wait_ratio for sample in recent]),
        awaited_followers=awaited_together(recent),
        sync_busy_ratio=mean([sample.sync_busy_ratio for sample in recent]),
        sync_threads_busy_ratio=mean([sample.sync_threads_busy_ratio for sample in recent]),
        syncs_per_second=mean([sample.syncs_per_second for sample in recent]),
        syncs_waiting=mean([sample.syncs_waiting for sample in recent]),
        sync_p50_ms=mean([sample.sync_p50_ms for sample in syncing]),
        sync_p99_ms=mean([sample.sync_p99_ms for sample in syncing]),
        cold_send_busy_ratio=mean([sample.cold_send_busy_ratio for sample in recent]),
        cold_sends_per_second=mean([sample.cold_sends_per_second for sample in recent]),
        compaction_busy_ratio=mean([sample.compaction_busy_ratio for sample in recent]),
        compaction_bytes_per_second=mean([sample.compaction_bytes_per_second for sample in recent]),
        unread_bytes=mean([sample.unread_bytes for sample in recent]),
        unread_wait_ms=recent[-1].unread_wait_ms,
        backlog=recent[-1].backlog,
    )


def awaited_together(samples: Sequence[HistorySample]) -> dict[int, FollowerLag]:
    """The followers that were waited for in any of ``samples``: partitions added up, and the largest lag."""
    together: dict[int, FollowerLag] = {}
    for sample in samples:
        for broker_id, lag in sample.awaited_followers.items():
            together[broker_id] = lag.plus(together.get(broker_id, FollowerLag()))
    return together


def threads_of(sample: HistorySample) -> tuple[int, int]:
    """How many threads there were, for the disk and for the network."""
    return sample.sync_threads, len(sample.network_idle_ratios)


def bottleneck(readings: BottleneckReadings) -> Bottleneck:
    """What limits a broker with these readings, whatever it was before."""
    found = first_that_holds(RULES, readings)
    assert found is not None, "the last rule holds always"
    return found[1]


def first_that_holds(
    rules: Sequence[Rule], readings: BottleneckReadings, share: float = 1.0
) -> tuple[Rule, Bottleneck] | None:
    """The first of ``rules`` whose thresholds the readings reach to ``share``, with its verdict; None if none does."""
    for rule in rules:
        if (verdict := verdict_by(rule, readings, share)) is not None:
            return rule, verdict
    return None


def verdict_by(rule: Rule, readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """The verdict of one rule, and what counts beside whatever limits: a client that waits, CPUs that are short."""
    verdict = rule(readings, share)
    if verdict is None:
        return None
    beside = unread(readings) if readings.backlog is not None else []
    if is_short_of_cpus(readings) and verdict.limit in SLOW_WITHOUT_CPUS:
        beside += cpu_pressure(readings)
        verdict = attrs.evolve(verdict, reason=f"{verdict.reason} {SHORT_OF_CPUS}")
    names = {each.name for each in verdict.evidence}
    return attrs.evolve(verdict, evidence=(*verdict.evidence, *[each for each in beside if each.name not in names]))


def is_short_of_cpus(readings: BottleneckReadings) -> bool:
    """Whether tasks of this machine wait for CPUs, the broker's own or others, as far as the kernel counts that."""
    return readings.cpu_pressure_ratio is not None and readings.cpu_pressure_ratio >= CPU_PRESSURE_RATIO


SHORT_OF_CPUS = "The CPUs of this machine are short meanwhile, which alone makes threads, syncs and clients slow."

SLOW_WITHOUT_CPUS = frozenset(
    {
        Limit.DISK_SYNCS,
        Limit.COLD_SENDS,
        Limit.REQUEST_QUEUE,
        Limit.REPLICATION,
        Limit.CLIENT_BACKLOG,
        Limit.CLIENTS,
    }
)
"""What looks limited as well where a thread or a client waits for a CPU; the other verdicts are about the CPUs."""


# ---- the rules, in the order in which they are tried


def nothing(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    if readings.requests_per_second >= IDLE_REQUESTS_PER_SECOND / share or readings.backlog is not None:
        return None
    return Bottleneck(
        Limit.NOTHING,
        "Nothing limits the broker: no client asks for anything.",
        (requests(readings), loop(readings)),
        None,
        "There is no load that a setting could help.",
    )


def other_processes(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """The event loop had work to do and no CPU to do it on."""
    if readings.event_loop_busy_ratio < share * BUSY_LOOP_RATIO or not lacks_cpu(readings, share):
        return None
    return Bottleneck(
        Limit.OTHER_PROCESSES,
        "Other processes have the CPUs: the event loop waits for one.",
        (*loop_and_cpus(readings), requests(readings)),
        None,
        "No setting of the broker helps. What does: fewer processes beside it on this machine, a larger share of its "
        "CPUs for the broker (CPUWeight, nice), or CPUs of its own.",
    )


def lacks_cpu(readings: BottleneckReadings, share: float = 1.0) -> bool:
    """Whether other processes keep the event loop from a CPU: it is busy by the wall clock far more than by its CPU
    time, the broker's own threads do not take what is missing, and tasks of the machine wait for CPUs, as far as the
    kernel counts that."""
    busy, pressure = readings.event_loop_busy_ratio / share, readings.cpu_pressure_ratio
    is_full = pressure is None or pressure >= share * CPU_PRESSURE_RATIO
    return is_full and readings.event_loop_cpu_ratio < LITTLE_CPU_RATIO * busy and readings.process_cpu_ratio < busy


def compaction(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    if (
        readings.event_loop_busy_ratio < share * BUSY_LOOP_RATIO
        or readings.compaction_busy_ratio < share * COMPACTION_BUSY_RATIO
        or readings.compaction_bytes_per_second <= 0
    ):
        return None
    half = max(1024, round(readings.compaction_bytes_per_second / 2))
    return Bottleneck(
        Limit.COMPACTION,
        "Compaction takes interpreter time that requests wait for.",
        (
            loop(readings),
            evidence(readings, "compaction_busy_ratio", "of the time compaction worked, in slices between requests"),
            evidence(readings, "compaction_bytes_per_second", "were read and written by compaction"),
        ),
        SuggestedSetting("log.cleaner.io.max.bytes.per.second", f"{half}"),
        "Half of its present pace leaves that time to requests; compaction then takes twice as long.",
    )


def event_loop(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    if readings.event_loop_busy_ratio < share * BUSY_LOOP_RATIO:
        return None
    return Bottleneck(
        Limit.EVENT_LOOP,
        "The event loop is busy: all Python of the broker runs on it.",
        (*loop_and_cpus(readings), requests(readings), all_syncing(readings)),
        None,
        "No number of threads divides the one event loop. Fewer and larger requests help: linger.ms, batch.size and "
        "compression in producers, fetch.min.bytes in consumers; or a second broker.",
    )


def disk_syncs(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """Syncs wait for a thread."""
    if readings.sync_busy_ratio < share * SYNCS_BUSY_RATIO or readings.syncs_waiting < share * SYNCS_WAITING:
        return None
    wanted = math.ceil(readings.io_threads * readings.sync_threads_busy_ratio + readings.syncs_waiting)
    suggested = max(readings.io_threads + 1, min(wanted, max(EIGHT_THREADS, 2 * readings.io_threads)))
    return Bottleneck(
        Limit.DISK_SYNCS,
        "Syncs to the disk wait for a thread.",
        (
            all_syncing(readings),
            evidence(readings, "syncs_waiting", "partitions waited for a sync thread"),
            disk_wait(readings),
            *sync_times(readings),
            loop(readings),
        ),
        SuggestedSetting("num.io.threads", f"{suggested}"),
        "Each thread syncs one partition at a time; more of them sync more partitions side by side.",
    )


def cold_sends(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    if readings.cold_send_busy_ratio < share * COLD_SEND_BUSY_RATIO:
        return None
    found = (
        evidence(
            readings, "cold_send_busy_ratio", "of the time the thread of the busiest network thread waited for the disk"
        ),
        evidence(readings, "cold_sends_per_second", "sends were not in the page cache"),
        loop(readings),
    )
    summary = "Consumers read old data, and sending it waits for the disk."
    threads = readings.network_threads
    if threads >= readings.connections:
        reason = "Every connection has a network thread of its own already. More memory for the page cache would help."
        return Bottleneck(Limit.COLD_SENDS, summary, found, None, reason)
    return Bottleneck(
        Limit.COLD_SENDS,
        summary,
        found,
        SuggestedSetting("num.network.threads", f"{min(2 * threads, math.ceil(readings.connections))}"),
        "Each network thread has one thread that sends what is not in memory; more of them read the disk side by side.",
    )


def request_queue(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    if readings.io_busy_ratio < share * SLOTS_BUSY_RATIO or readings.queue_depth < share * QUEUE_DEPTH:
        return None
    return Bottleneck(
        Limit.REQUEST_QUEUE,
        "Requests wait for a handler slot, though the event loop is not busy.",
        (
            evidence(readings, "io_busy_ratio", "of the time a handler slot was taken"),
            evidence(readings, "queue_depth", "requests waited at a second's worst moment"),
            loop(readings),
        ),
        SuggestedSetting("num.io.threads", f"{2 * readings.io_threads}"),
        "Handlers hold their slots while batches are inflated or compressed anew, and none while they wait for the "
        "disk; more slots let other requests pass. A longer queue would only let requests wait longer.",
    )


def replication(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """Producers with acks=all wait for followers."""
    if readings.replication_wait_ratio < share * REPLICATION_WAIT_RATIO:
        return None
    found = (
        evidence(readings, "replication_wait_ratio", "of their time requests waited for followers to have the records"),
        disk_wait(readings),
        requests(readings),
        loop(readings),
    )
    awaited = readings.awaited_followers
    slowest = max(awaited, key=lambda each: awaited[each].partitions, default=None)
    if slowest is None or awaited[slowest].partitions < SLOWEST_FOLLOWER_RATIO * sum(
        each.partitions for each in awaited.values()
    ):
        return Bottleneck(
            Limit.REPLICATION,
            "Producers with acks=all wait for the followers, of which none is much slower than the others.",
            found,
            None,
            "A follower asks for more when it has written, and in fsync mode synced, what it has. More records in each "
            "request (linger.ms, batch.size) cost fewer rounds; num.replica.fetchers fetches side by side.",
        )
    lag = counted(awaited[slowest].lag_records, "record")
    return Bottleneck(
        Limit.REPLICATION,
        f"Producers with acks=all wait for broker {slowest}, the slowest of the followers.",
        (*found[:1], Evidence("lag_records", awaited[slowest].lag_records, ReadingUnit.COUNT, LAG_MEANING), *found[1:]),
        None,
        f"Broker {slowest} is up to {lag} behind. What limits it is on its own page of tuning: its disk, its event "
        "loop or its network. While it is in sync it is waited for; without it, min.insync.replicas others have to be.",
        broker_id=slowest,
    )


def client_backlog(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """A client does not wait for its answers, and requests pile up in its sockets."""
    if (backlog := readings.backlog) is None:
        return None
    name = named(backlog)
    is_synced = readings.disk_wait_ratio >= DISK_WAIT_RATIO
    helps = "more records in each request (linger.ms, batch.size)" if backlog.is_producer else "fewer requests"
    return Bottleneck(
        Limit.CLIENT_BACKLOG,
        f"{name} sends faster than its requests are {'synced' if is_synced else 'served'}.",
        (*unread(readings), disk_wait(readings), requests(readings), loop(readings)),
        None,
        "A connection has one request under way, or a few Produces that wait for the disk, and the next ones wait "
        f"unread in its socket. What the client can do: {helps}, or more partitions and connections, which are served "
        "side by side.",
        client_id=backlog.client_id,
    )


def disk(readings: BottleneckReadings, share: float) -> Bottleneck | None:
    """Requests wait for syncs, and syncs for nothing but the disk; or for lookups of what is not in memory."""
    if readings.disk_wait_ratio < share * DISK_WAIT_RATIO:
        return None
    return Bottleneck(
        Limit.DISK_SYNCS,
        "Requests wait for the disk.",
        (disk_wait(readings), *sync_times(readings), all_syncing(readings), loop(readings)),
        None,
        "No sync waits for a thread, so more of them would not help. What does: a faster disk, more partitions or more "
        "records for each request; for lookups of old records, more memory for the page cache.",
    )


def clients(readings: BottleneckReadings, share: float) -> Bottleneck:
    return Bottleneck(
        Limit.CLIENTS,
        "The clients limit: the broker could do more than they ask for.",
        (loop(readings), *cpu_pressure(readings), all_syncing(readings), disk_wait(readings), requests(readings)),
        None,
        "Nothing of the broker is short. More connections, or more requests in flight on each, would use it.",
    )


Rule: TypeAlias = Callable[[BottleneckReadings, float], Bottleneck | None]
"""Gives its verdict if the readings reach that share of its thresholds, which is 1 but for a verdict that stands."""

RULES: tuple[Rule, ...] = (
    nothing,
    other_processes,
    compaction,
    event_loop,
    disk_syncs,
    cold_sends,
    request_queue,
    replication,
    client_backlog,
    disk,
    clients,
)
"""The last one holds always."""


# ---- their evidence


UNITS = {
    "_bytes_per_second": ReadingUnit.BYTES_PER_SECOND,
    "_bytes": ReadingUnit.BYTES,
    "_per_second": ReadingUnit.PER_SECOND,
    "_ratio": ReadingUnit.RATIO,
    "_ms": ReadingUnit.MILLISECONDS,
}
"""Of a reading, by the end of its name; others are counts."""


def evidence(readings: BottleneckReadings, name: str, meaning: str) -> Evidence:
    """The reading ``name`` and what it is in words."""
    unit = next((unit for ending, unit in UNITS.items() if name.endswith(ending)), ReadingUnit.COUNT)
    return Evidence(name, getattr(readings, name), unit, meaning)


def loop(readings: BottleneckReadings) -> Evidence:
    return evidence(readings, "event_loop_busy_ratio", "of the time the event loop was busy")


def loop_and_cpus(readings: BottleneckReadings) -> list[Evidence]:
    """How busy the loop was by the wall clock, what of it on a CPU, and whether the machine has CPUs to give."""
    return [
        loop(readings),
        evidence(readings, "event_loop_cpu_ratio", "of the time the event loop ran on a CPU"),
        evidence(readings, "process_cpu_ratio", "of one CPU were used by all threads of the broker"),
        *cpu_pressure(readings),
    ]


def cpu_pressure(readings: BottleneckReadings) -> list[Evidence]:
    """That of the machine; empty where the kernel does not count it."""
    if readings.cpu_pressure_ratio is None:
        return []
    return [evidence(readings, "cpu_pressure_ratio", "of the time some task of this machine waited for a CPU")]


def requests(readings: BottleneckReadings) -> Evidence:
    return evidence(readings, "requests_per_second", "requests were answered")


def all_syncing(readings: BottleneckReadings) -> Evidence:
    return evidence(readings, "sync_busy_ratio", "of the time all sync threads were busy")


def disk_wait(readings: BottleneckReadings) -> Evidence:
    return evidence(readings, "disk_wait_ratio", "of their time requests waited for the disk")


def unread(readings: BottleneckReadings) -> list[Evidence]:
    """What clients have sent and nobody has read, and how long the next request will wait for that."""
    found = [evidence(readings, "unread_bytes", "were sent by clients and not read yet")]
    if readings.backlog is not None and readings.unread_wait_ms is not None:
        whose = named(readings.backlog)
        found.append(evidence(readings, "unread_wait_ms", f"the next request of {whose} waits to be read, at least"))
    return found


def named(backlog: ClientBacklog) -> str:
    """The client in a sentence."""
    return backlog.client_id[:NAMED_CHARACTERS] or "a client without a client id"


def sync_times(readings: BottleneckReadings) -> tuple[Evidence, Evidence]:
    return (
        evidence(readings, "sync_p50_ms", "the median sync took"),
        evidence(readings, "sync_p99_ms", "99 of 100 syncs took at most"),
    )
