"""What a scrape shows: the readings of all parts of the broker, taken at one moment on the event loop.

They are immutable, so the text is made of them in any thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupPartitionLag
from trio_broker.coordinator.reporting.statistics import GroupStatistics
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionStatistics
from trio_broker.network.request_metrics import RequestTimes
from trio_broker.network.statistics import SocketServerStatistics
from trio_broker.partition.log_cleaner import LogCleanerStatistics
from trio_broker.partition.log_scrubber import LogScrubberStatistics
from trio_broker.partition.replica_manager import ReplicaManagerStatistics
from trio_broker.runtime.cpu_clock import CpuTimes
from trio_broker.storage.recovery_progress import RecoveryProgress


@attrs.frozen(kw_only=True)
class PartitionReading:
    """One partition. ``is_led`` says that this broker leads it: of a cluster each is led in one snapshot.

    Appended and fetched are counted since the broker's start; ``preferred_leader`` is the first of its
    ``replica_count`` replicas, ``producer_ids`` the number of idempotent producers that it remembers.
    """

    topic: str
    partition: int
    leader: int
    is_led: bool
    preferred_leader: int
    replica_count: int
    in_sync_replica_count: int
    min_in_sync_replicas: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    producer_ids: int
    appended_records: int
    appended_bytes: int
    fetched_bytes: int


@attrs.frozen
class DirectorySpace:
    """A data directory and the volume it is on; the sizes are None where the directory is out of use."""

    path: str
    is_failed: bool
    total_bytes: int | None
    usable_bytes: int | None


@attrs.frozen
class BrokerAddress:
    """A broker of the cluster, and where the others reach it."""

    broker_id: int
    address: str


@attrs.frozen(kw_only=True)
class ClusterReading:
    """The cluster as a broker knows it. Of partitions: all there are, those that nobody leads, those that another one
    leads than the preferred leader; and of those led here, how many lack replicas in sync, have fewer of them than
    min.insync.replicas, or just as many.

    ``fetcher_max_lag``, ``fetcher_min_rate`` and ``fetcher_failed_partitions`` are of what is followed here.
    """

    brokers: Sequence[BrokerAddress] = ()
    active_brokers: int = 1
    fenced_brokers: int = 0
    is_controller: bool = True
    has_controller: bool = True
    metadata_is_reached: bool = True
    topics: int = 0
    partitions: int = 0
    offline_partitions: int = 0
    imbalanced_partitions: int = 0
    led_partitions: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    elections: int = 0
    unclean_elections: int = 0
    fetcher_max_lag: int = 0
    fetcher_min_rate: float = 0.0
    fetcher_failed_partitions: int = 0
    replicated_bytes: int = 0


@attrs.frozen(kw_only=True)
class AccessReading:
    """Who was refused or slowed down since the start: logins at the admin app, requests that were denied, and those
    whose clients had to wait for a quota, with the sum of their waits."""

    failed_admin_logins: int = 0
    denied_requests: int = 0
    throttled_requests: int = 0
    throttled_seconds: float = 0.0


@attrs.frozen(kw_only=True)
class MetricsSnapshot:
    """Everything that a scrape shows; ``requests`` and ``recent_requests``, those of the last minute, are by the name
    of their API.

    ``partitions``, ``groups_with_lag`` and ``lags`` are empty unless some metric needs them. ``names`` are those of
    ``metrics.names``.
    """

    version: str
    node_id: int
    cluster_id: str
    durability: str
    uptime_seconds: float
    log_size_bytes: int
    server: SocketServerStatistics
    requests: Mapping[str, RequestTimes]
    replicas: ReplicaManagerStatistics
    cleaner: LogCleanerStatistics
    cpu: CpuTimes
    groups: GroupStatistics
    cluster: ClusterReading = attrs.field(factory=ClusterReading)
    access: AccessReading = attrs.field(factory=AccessReading)
    transactions: TransactionStatistics = attrs.field(factory=TransactionStatistics)
    scrubber: LogScrubberStatistics = attrs.field(factory=LogScrubberStatistics)
    recovery: RecoveryProgress = attrs.field(factory=RecoveryProgress)
    names: tuple[str, ...] = ()
    per_partition: bool = False
    directories: Sequence[DirectorySpace] = ()
    unreadable_partitions: int = 0
    groups_falling_behind: int = 0
    restless_groups: int = 0
    recent_requests: Mapping[str, RequestTimes] = attrs.field(factory=dict)
    partitions: Sequence[PartitionReading] = ()
    groups_with_lag: Sequence[GroupLag] = ()
    lags: Sequence[GroupPartitionLag] = ()
