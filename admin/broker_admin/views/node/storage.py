"""The disks of a broker: how full they are, what leaves them, and what the last start found."""

from __future__ import annotations

from typing import Protocol

import attrs

from trio_broker.storage.recovery_progress import RecoveryProgress


@attrs.frozen(kw_only=True)
class DirectoryReport:
    """One of ``log.dirs``, and the volume that it is on.

    ``log_bytes`` are those of ``partitions`` logs in it; the volume may hold more. ``growth`` is ``steady``, ``none``,
    ``unsteady`` (it fills and empties in turns) or ``unknown`` (too few samples), over ``sampled_seconds``; only a
    steady one has ``full_in_seconds``. ``log_growth_bytes_per_second`` is what of the growth is of logs, the rest of
    other files on the volume. With a ``failure`` the directory is out of use and nothing else is known.
    """

    path: str
    failure: str | None
    partitions: int
    log_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    growth: str
    sampled_seconds: float
    growth_bytes_per_second: float | None
    log_growth_bytes_per_second: float | None
    full_in_seconds: float | None


@attrs.frozen(kw_only=True)
class TopicSize:
    """One topic on the disks; its rates are of the last minute."""

    topic: str
    internal: bool
    partitions: int
    size_bytes: int
    records_in_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float


@attrs.frozen(kw_only=True)
class RetentionOutlook:
    """What retention takes at its next check, as things stand: ``segments`` of ``partitions``.

    ``next_check_at_ms`` is None where ``log.retention.check.interval.ms`` means never; then nothing is foreseen.
    ``then_due_at_ms`` is when the time of the next segment is over after that, None if none waits for a time.
    """

    next_check_at_ms: int | None
    segments: int
    size_bytes: int
    partitions: int
    then_due_at_ms: int | None
    then_partition: str | None


@attrs.frozen
class DirtyLog:
    """A compacted partition: the share and the bytes that compaction has not gone over."""

    partition: str
    dirty_ratio: float
    dirty_bytes: int


@attrs.frozen
class UncleanableLog:
    """A partition that compaction leaves alone until the next start, and why."""

    partition: str
    reason: str


@attrs.frozen(kw_only=True)
class CleanerSummary:
    """The log cleaner. Counters are since the broker's start; ``dirtiest`` are of its last look, most dirty first."""

    enabled: bool
    threads: int
    rounds: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    under_way: tuple[str, ...]
    dirtiest: tuple[DirtyLog, ...]
    uncleanable: tuple[UncleanableLog, ...]


@attrs.frozen
class DamageFound:
    """Damage in a sealed segment, at ``position`` in ``file`` and about ``offset`` in the log."""

    partition: str
    file: str
    position: int
    offset: int
    reason: str


@attrs.frozen(kw_only=True)
class ScrubberSummary:
    """The scrubber, which reads sealed segments again to find damage. Counters are since the broker's start.

    ``last_pass_ended_ms`` is None before the first pass of this start has ended.
    """

    enabled: bool = False
    bytes_per_second: float = 0.0
    passes: int = 0
    segments: int = 0
    bytes_read: int = 0
    under_way: str | None = None
    last_pass_ended_ms: int | None = None
    damaged: tuple[DamageFound, ...] = ()


@attrs.frozen
class SyncBucket:
    """How many syncs took up to ``up_to_ms``, and longer than the bucket before; the last one has None, no end."""

    up_to_ms: float | None
    count: int


@attrs.frozen(kw_only=True)
class SyncSummary:
    """Syncs of logs since the broker's start, and how long they took."""

    durability: str
    threads: int
    syncs: int
    failures: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    buckets: tuple[SyncBucket, ...]


@attrs.frozen
class LogProblem:
    """What the last start found wrong with one partition, or did about it."""

    partition: str
    detail: str


@attrs.frozen(kw_only=True)
class RecoverySummary:
    """What opening the logs found at the last start, which took ``seconds``.

    ``recovered_logs`` were not closed properly; ``cut_bytes`` of torn batches were cut off their ends. ``problems`` are
    the first of ``problem_count``.
    """

    was_clean: bool
    seconds: float
    logs: int
    recovered_logs: int
    recovered_segments: int
    cut_bytes: int
    strays: tuple[str, ...]
    unopened: tuple[LogProblem, ...]
    problems: tuple[LogProblem, ...]
    problem_count: int


@attrs.frozen(kw_only=True)
class StorageReport:
    """The disks of a broker, made at ``made_at_ms``; it is kept for some seconds."""

    made_at_ms: int
    directories: tuple[DirectoryReport, ...]
    topics: int
    log_bytes: int
    largest_topics: tuple[TopicSize, ...]
    retention: RetentionOutlook
    cleaner: CleanerSummary
    scrubber: ScrubberSummary = ScrubberSummary()
    syncs: SyncSummary
    recovery: RecoverySummary


class StorageView(Protocol):
    """The disks of a broker, as the admin app sees them."""

    async def report(self) -> StorageReport:
        """A report that may be some seconds old: it looks at every partition, and at the files of some."""
        ...

    def recovery(self) -> RecoveryProgress:
        """How the last start went over the logs."""
        ...
