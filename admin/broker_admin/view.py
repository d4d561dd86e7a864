"""BrokerView: everything that the admin app reads from a broker and changes in it, and the values that
only this app knows.

The broker passes an object that has these methods; a test passes a fake one (``testing.py``). Most questions are
answered at once, from memory, on the broker's own event loop. Those that wait say why: ``change_config`` writes to disk
before a change is true, ``groups`` walks over thousands of groups and yields meanwhile, ``group_offsets`` may read when
a record was appended, ``topic_manifest`` reads which transactions were aborted.

Values are frozen attrs classes, declared by the part of the broker that knows them or, where no part does, here. Their
attribute names are the names in the JSON of the HTTP API, so renaming one is a change of that API. Times are
milliseconds since 1970 UTC (``_at_ms``), ratios run from 0 to 1, absent is None.

Source: docs/decisions/0031-the-broker-s-values-are-the-api-s.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.config.entries import ConfigEntry
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupOffsets, GroupSnapshot, Rebalance
from trio_broker.metrics.history import HistorySample
from trio_broker.metrics.topics import TopicInfo


@attrs.frozen
class AdvertisedListener:
    """One address clients may dial."""

    name: str
    security_protocol: str
    host: str
    port: int


@attrs.frozen
class NodeDescription:
    """Who the broker is. ``durability`` is the mode's name: ``fsync`` or ``page-cache``."""

    node_id: int
    cluster_id: str
    version: str
    durability: str
    listeners: tuple[AdvertisedListener, ...]
    started_at_ms: int
    uptime_seconds: float


@attrs.frozen
class Readiness:
    """Whether clients are served; when not, ``reason`` says why."""

    ready: bool
    reason: str = ""


@attrs.frozen
class JournalEntry:
    """One line of the journal: a key's effective value before and after.

    ``sequence`` grows by one with each change and names it for good. ``changed_by`` says who and from where, in words:
    ``kafka client rdkafka from 10.0.0.7``.
    """

    sequence: int
    changed_at_ms: int
    changed_by: str
    key: str
    old: str | None
    new: str | None


@attrs.frozen
class ConfigRefusal:
    """Why one key of a change was not accepted."""

    key: str
    reason: str


@attrs.frozen
class ConfigChangeResult:
    """What came of a change: all of it (``changes``) or nothing of it (``refusals``)."""

    changes: tuple[JournalEntry, ...] = ()
    refusals: tuple[ConfigRefusal, ...] = ()


@attrs.frozen
class WorkerStatistics:
    """One network thread or handler slot; ``idle_ratio`` over the last sample's second."""

    name: str
    idle_ratio: float


@attrs.frozen
class PoolStatistics:
    """A pool of workers. ``size`` is what is configured; while a pool shrinks it may still have more workers."""

    size: int
    idle_ratio: float
    workers: tuple[WorkerStatistics, ...]


@attrs.frozen
class QueueStatistics:
    """The request channel between network threads and handlers."""

    depth: int
    capacity: int


@attrs.frozen
class ThreadStatistics:
    """Both pools, what lies between them, and the loop they all share.

    ``parked_requests`` wait for something other than a slot (long polls, acks=all) and occupy none.
    """

    network: PoolStatistics
    io: PoolStatistics
    queue: QueueStatistics
    parked_requests: int
    event_loop_busy_ratio: float


MANIFEST_VERSION = 1
"""Of ``TopicManifest``; another number means that readers of this one would misread it."""


@attrs.frozen
class SegmentInfo:
    """One segment of a log: its offsets, the end exclusive, and the size of its valid part.

    The last one of a log is active: its file grows behind ``size_bytes``, which is the end of a batch.
    """

    base_offset: int
    next_offset: int
    size_bytes: int


@attrs.frozen
class PositionInfo:
    """The batch whose last offset is ``offset`` begins at byte ``position`` of the active segment's file."""

    offset: int
    position: int


@attrs.frozen
class AbortedTransactionInfo:
    """The records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int


@attrs.frozen
class LogManifest:
    """What a reader of a log's files must know besides the files, all of it from one point in time.

    The files are in ``directory_name`` under ``log_directory``, an absolute path on the broker's machine. ``segments``
    are in the order of their offsets, without gaps. ``active_positions`` are some entries of the active segment's
    offset index, which has no file yet. ``aborted_transactions`` are those with records between ``log_start_offset``
    and ``last_stable_offset``, in the order of their markers.
    """

    log_directory: str
    directory_name: str
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    segments: tuple[SegmentInfo, ...]
    active_positions: tuple[PositionInfo, ...]
    aborted_transactions: tuple[AbortedTransactionInfo, ...]


@attrs.frozen
class PartitionManifest:
    """One partition: its ``log``, or the ``error`` that keeps it from being read; the other one is None."""

    partition: int
    error: str | None
    log: LogManifest | None


@attrs.frozen
class TopicManifest:
    """The files of a topic's partitions, for programs that read logs beside the broker."""

    version: int
    cluster_id: str
    node_id: int
    topic: str
    topic_id: str
    partitions: tuple[PartitionManifest, ...]


@attrs.frozen
class GroupsRebalanced:
    """Which groups have finished a rebalance since the last such event, at most one event a second.

    ``further_groups`` counts those beyond the ids that fit.
    """

    at_ms: int
    group_ids: tuple[str, ...]
    further_groups: int = 0


BrokerEvent = HistorySample | JournalEntry | GroupsRebalanced
"""What a listener receives: each new sample, each change of a setting by any client, and rebalances."""


class BrokerView(Protocol):
    """A broker, as the admin app sees it."""

    def node(self) -> NodeDescription:
        """Who the broker is and how long it has been up."""
        ...

    def readiness(self) -> Readiness:
        """Whether it serves clients now."""
        ...

    def config_entries(self) -> Sequence[ConfigEntry]:
        """Every broker key, in the order they are to be shown."""
        ...

    async def change_config(self, changes: Mapping[str, str | None], *, changed_by: str) -> ConfigChangeResult:
        """Set keys for this broker, or reset those whose value is None to the layer below; all of them or none.

        Returns once the change is durable and in effect. A key that keeps its effective value needs no journal line.
        """
        ...

    def journal(self) -> Sequence[JournalEntry]:
        """The recent changes, oldest first, bounded."""
        ...

    def threads(self) -> ThreadStatistics:
        """The pools, the queue and the loop, as of the last sample."""
        ...

    def topics(self) -> Sequence[TopicInfo]:
        """All topics, by name."""
        ...

    async def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicManifest | None:
        """The files of these partitions, or of all, by number; None if there is no such topic.

        Each partition is of one point in time; those that do not exist are left out.
        """
        ...

    def history(self) -> Sequence[HistorySample]:
        """The samples kept, oldest first, one a second."""
        ...

    async def groups(self) -> GroupLagReport:
        """All groups by id, with their lag from memory: it reads no disk, and may be some seconds old."""
        ...

    def group(self, group_id: str) -> GroupSnapshot | None:
        """One group with its members, as it is now; None if there is none."""
        ...

    async def group_offsets(self, group_id: str) -> GroupOffsets | None:
        """Its committed offsets and lag, by topic and partition; None if there is no such group."""
        ...

    def group_timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        """Its recent rebalances, oldest first, bounded; the last may be under way. None if there is no such group."""
        ...

    def subscribe(self, listener: Callable[[BrokerEvent], None]) -> Callable[[], None]:
        """Call ``listener`` on the event loop with every event from now on; returns what ends that.

        The listener returns at once and does not raise.
        """
        ...

    async def prometheus_renderer(self) -> Callable[[], bytes]:
        """Take the numbers now, of many partitions if need be; what is returned makes Prometheus's text of them.

        It may be called in any thread.
        """
        ...
