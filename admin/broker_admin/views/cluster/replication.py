"""The brokers of a cluster and their replicas: who leads what, what is not in sync and why, and what has happened."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from trio_broker.cluster.cluster_event import ClusterEvent


class BrokerState(enum.Enum):
    """What the controller has of a broker."""

    SERVING = "serving"
    FENCED = "fenced"
    """Out of contact, or not caught up with the metadata: it leads nothing."""
    STOPPING = "stopping"
    """In a controlled shutdown: it hands over what it leads."""


@attrs.frozen(kw_only=True)
class BrokerSummary:
    """One broker. ``replica_count`` partitions have a replica there, of which ``in_sync_count`` are in sync, and of
    ``leader_count`` it is the leader; of ``preferred_leader_count`` it is the first replica, which leads once the
    preferred leaders are elected. ``failed_directories`` counts the log directories of its replicas that do not work.
    One that ``is_leaving`` is decommissioned.

    ``problem`` says why it did not answer when it was asked the last time, empty if it did.
    """

    node_id: int
    address: str
    rack: str | None
    state: BrokerState
    is_controller: bool
    is_this_one: bool
    leader_count: int
    preferred_leader_count: int
    replica_count: int
    in_sync_count: int
    failed_directories: int
    is_leaving: bool = False
    problem: str = ""

    @property
    def is_away(self) -> bool:
        """Whether it serves nobody."""
        return self.state is not BrokerState.SERVING


@attrs.frozen(kw_only=True)
class OutOfSyncReplica:
    """A replica that is not in sync, and why; since when, if it has left since the start of the broker that tells."""

    broker_id: int
    reason: str
    since_ms: int | None


@attrs.frozen(kw_only=True)
class UnderReplicatedPartition:
    """A partition with fewer replicas in sync than it has. With ``is_under_min_isr`` acks=all is refused, with
    ``leader`` -1 all else, too."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    min_in_sync_replicas: int
    is_under_min_isr: bool
    out_of_sync: tuple[OutOfSyncReplica, ...]


@attrs.frozen(kw_only=True)
class ClusterReport:
    """The cluster as a whole. ``controller_id`` is None while nobody decides; ``metadata_problem`` says why topics,
    settings and replicas in sync cannot change, empty if they can.

    Of the under-replicated partitions, those that nobody leads come first, then those under min.insync.replicas; where
    they are many, ``under_replicated`` are the first of ``under_replicated_count``. ``imbalanced_count`` partitions are
    led by another broker than the preferred one, or by nobody; of ``electable_count`` of them that one is in sync.
    """

    cluster_id: str
    controller_id: int | None
    controller_epoch: int
    metadata_offset: int
    metadata_problem: str
    partition_count: int
    offline_count: int
    under_replicated_count: int
    under_min_isr_count: int
    imbalanced_count: int
    electable_count: int
    reassigning_count: int
    brokers: tuple[BrokerSummary, ...]
    under_replicated: tuple[UnderReplicatedPartition, ...]


@attrs.frozen(kw_only=True)
class FetcherReport:
    """One fetcher of a broker: what it fetches from one leader. ``lag_records`` is the largest of its partitions'."""

    broker_id: int
    leader_id: int
    fetcher_id: int
    partition_count: int
    bytes_per_second: float
    fetches_per_second: float
    lag_records: int


@attrs.frozen(kw_only=True)
class FetchersReport:
    """The fetchers of one broker. ``failed_partitions`` are fetched no more until there are new metadata."""

    failed_partitions: int
    fetchers: tuple[FetcherReport, ...]


@attrs.frozen(kw_only=True)
class ReassignedPartition:
    """Where one partition is, and is to be."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    target: tuple[int, ...]
    error: str | None = None


@attrs.frozen(kw_only=True)
class BegunReassignment:
    """What a reassignment has begun, or with ``dry_run`` would: ``moved_bytes`` are copied, as far as is known."""

    dry_run: bool
    moved_bytes: int
    partitions: tuple[ReassignedPartition, ...]


@attrs.frozen(kw_only=True)
class ElectedPartition:
    """A partition whose preferred leader was elected, or with an ``error`` why it was not."""

    topic: str
    partition: int
    leader: int
    preferred: int
    error: str | None = None


@attrs.frozen(kw_only=True)
class PreferredElection:
    """The partitions whose preferred leaders were elected, or with ``dry_run`` would be."""

    dry_run: bool
    partitions: tuple[ElectedPartition, ...]


@attrs.frozen(kw_only=True)
class Unregistration:
    """A broker that was taken out of the cluster, or with ``dry_run`` would be, and the replicas that it leaves."""

    dry_run: bool
    broker_id: int
    replica_count: int


class ReplicationRefused(Exception):
    """A change is refused, and nothing was changed; ``error`` is the name of Kafka's error code."""

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class ReplicationView(Protocol):
    """The brokers and replicas of a cluster, as the admin app sees and moves them."""

    async def report(self) -> ClusterReport:
        """The cluster as this broker's metadata have it."""
        ...

    def events(self) -> Sequence[ClusterEvent]:
        """What has happened since the start of this broker, the latest first; bounded."""
        ...

    async def fetchers(self) -> Sequence[FetcherReport]:
        """The fetchers of all brokers that answer."""
        ...

    def own_fetchers(self) -> FetchersReport:
        """The fetchers of this broker."""
        ...

    async def elect_preferred(self, partitions: Sequence[tuple[str, int]], *, dry_run: bool) -> PreferredElection:
        """Have the preferred leaders of ``partitions`` elected, or of all that are led by another one.

        Raises:
            ReplicationRefused: as it says; what is refused of one partition is in its place of the result.
        """
        ...

    async def reassign(
        self, topic: str, targets: Sequence[tuple[int, tuple[int, ...] | None]], *, dry_run: bool
    ) -> BegunReassignment:
        """Move partitions of a topic to the brokers named, or with None cancel what moves.

        Raises:
            ReplicationRefused: as for ``elect_preferred``.
        """
        ...

    async def unregister(self, broker_id: int, *, dry_run: bool) -> Unregistration:
        """Take a broker that is gone for good out of the cluster.

        Raises:
            ReplicationRefused: as it says; it is in contact, for one.
        """
        ...
