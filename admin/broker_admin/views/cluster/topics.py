"""The topics of a broker: lists, details, and changes.

A rate is of the last minute, or of the time since the broker's start while that is shorter. *In* is what is written to
a partition, *out* what fetches are answered with. Counts of records are differences of offsets: compaction and
transaction markers make them larger than the number of records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.config.entries import ConfigEntry
from trio_broker.coordinator.reporting.snapshot import GroupRates


@attrs.frozen(kw_only=True)
class TopicSummary:
    """One topic, as a list shows it.

    ``unavailable_partition_count`` are those that nobody leads, whose disk failed, or whose leader does not answer, so
    that sizes and rates are without them; ``under_replicated_partition_count`` have fewer replicas in sync than they
    have. ``group_count`` groups have committed offsets here;
    ``most_behind_group`` is the one with the largest lag in seconds, ``lag_seconds``. ``last_append_at_ms`` is None
    where nothing was ever written, or not known when.
    """

    name: str
    topic_id: str
    internal: bool
    partition_count: int
    unavailable_partition_count: int
    under_replicated_partition_count: int = 0
    record_count: int
    size_bytes: int
    records_in_per_second: float
    bytes_in_per_second: float
    records_out_per_second: float
    bytes_out_per_second: float
    cleanup_policy: str
    retention_ms: int
    retention_bytes: int
    group_count: int
    most_behind_group: str | None
    lag_seconds: float | None
    last_append_at_ms: int | None


@attrs.frozen(kw_only=True)
class LedTopic:
    """What one broker carries of a topic: the sums over those of its partitions that it leads and can read."""

    name: str
    partition_count: int
    record_count: int
    size_bytes: int
    records_in_per_second: float
    bytes_in_per_second: float
    records_out_per_second: float
    bytes_out_per_second: float
    last_append_at_ms: int | None


@attrs.frozen
class LedTopics:
    """The topics of which a broker leads partitions."""

    topics: tuple[LedTopic, ...]


@attrs.frozen(kw_only=True)
class TopicDetail:
    """One topic. ``configs`` are the settings of its own; ``/config`` has all that count for it."""

    summary: TopicSummary
    replication_factor: int
    min_in_sync_replicas: int
    configs: Mapping[str, str]


@attrs.frozen(kw_only=True)
class TopicRatePoint:
    """A topic's rates over the interval that ended at ``at_ms``."""

    at_ms: int
    records_in_per_second: float
    bytes_in_per_second: float
    records_out_per_second: float
    bytes_out_per_second: float


@attrs.frozen(kw_only=True)
class TopicRates:
    """A topic's rates of the last hour, oldest first, ``interval_ms`` apart; none for topics that carry least."""

    interval_ms: int
    points: tuple[TopicRatePoint, ...]


@attrs.frozen(kw_only=True)
class ReplicaDetail:
    """One replica, as the leader of its partition sees it.

    ``log_end_offset`` is None as long as it has not asked the leader; the leader's own is the end of the partition.
    ``lag_records`` is how far it is behind that, ``caught_up_seconds_ago`` when it last had all, None where it is not
    known. ``reason`` says why it is not in sync, empty for one that is.
    """

    broker_id: int
    in_sync: bool
    log_end_offset: int | None = None
    lag_records: int | None = None
    caught_up_seconds_ago: float | None = None
    reason: str = ""


@attrs.frozen(kw_only=True)
class PartitionDetail:
    """One partition. With an ``error`` it cannot be read, and what its log would tell is None.

    The first of ``replicas`` is the preferred leader. ``leader`` is -1 where nobody leads. Of those that have left the
    replicas in sync, ``eligible_leaders`` have every committed record (KIP-966). ``adding_replicas`` and
    ``removing_replicas`` are those of a reassignment under way.

    ``oldest_record_at_ms`` is the largest timestamp of the first batch. The shares are of the whole topic, from 0 to 1,
    and None where that has nothing.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    eligible_leaders: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    min_in_sync_replicas: int = 1
    replica_details: tuple[ReplicaDetail, ...] = ()
    error: str | None = None
    log_start_offset: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    size_bytes: int | None = None
    segment_count: int | None = None
    oldest_record_at_ms: int | None = None
    last_append_at_ms: int | None = None
    records_in_per_second: float | None = None
    bytes_in_per_second: float | None = None
    records_out_per_second: float | None = None
    bytes_out_per_second: float | None = None
    size_share: float | None = None
    bytes_in_share: float | None = None


@attrs.frozen
class LedPartitions:
    """Those partitions of a topic that a broker leads, by number."""

    partitions: tuple[PartitionDetail, ...]


@attrs.frozen(kw_only=True)
class TopicConsumer:
    """One group that has committed offsets of a topic, and its lag there.

    Its lag is known but in ``partitions_without_lag``: nothing is committed there, or the partition does not exist.
    ``rates`` are those of the group over all of its topics, None where they are not known.
    """

    group_id: str
    type: str
    state: str
    member_count: int
    partition_count: int
    partitions_without_lag: int
    lag_records: int | None
    lag_seconds: float | None
    rates: GroupRates | None


class TopicRefused(Exception):
    """What is asked of a topic is refused, and nothing was changed.

    ``error`` is the name of Kafka's error code. ``field`` names the part of the request that is at fault where it is
    known, and ``key`` which of its names, such as a key of ``configs``.
    """

    def __init__(self, error: str, reason: str, *, field: str | None = None, key: str | int | None = None) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.field = field
        self.key = key


@attrs.frozen(kw_only=True)
class TopicCreation:
    """A topic as it was created, or with ``dry_run`` would be; ``configs`` are the settings of its own.

    ``kept`` says how long its records stay, by all of its settings, in words.
    """

    dry_run: bool
    name: str
    topic_id: str | None
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    kept: str = ""


@attrs.frozen(kw_only=True)
class TopicDeletion:
    """A topic as it was when it was deleted, or with ``dry_run`` would be.

    ``groups`` are those that had committed offsets of it. Files are removed after ``file_delete_delay_ms``: 0 where the
    disk is full.
    """

    dry_run: bool
    name: str
    partitions: int
    record_count: int
    size_bytes: int
    groups: tuple[str, ...]
    file_delete_delay_ms: int


@attrs.frozen(kw_only=True)
class AddedPartitions:
    """How many partitions a topic had and has, or with ``dry_run`` would have.

    ``keys_that_stay_ratio`` is the share of keys that are still sent to the partition they went to, with the hashing
    of Kafka's clients. The others go elsewhere from now on, so that their order holds no more across the change, and
    records that are there already stay where they are.
    """

    dry_run: bool
    partitions_before: int
    partitions: int
    keys_that_stay_ratio: float


@attrs.frozen(kw_only=True)
class PurgedPartition:
    """Where the log of one partition began and begins, and how many records were before.

    ``error`` says why it could not be purged, or not for good: the new start is not written down.
    """

    partition: int
    log_start_offset_before: int
    log_start_offset: int
    record_count: int
    error: str | None = None


@attrs.frozen(kw_only=True)
class PurgedTopic:
    """What was purged of a topic, or with ``dry_run`` would be.

    The files of whole segments are removed after ``file_delete_delay_ms``: 0 where the disk is full.
    """

    dry_run: bool
    record_count: int
    file_delete_delay_ms: int
    partitions: tuple[PurgedPartition, ...]


@attrs.frozen(kw_only=True)
class PurgeTarget:
    """Up to where records are deleted: one of the end, an offset, or the first record of a time or later.

    A partition without a record of that time or later is purged up to its end.
    """

    to_end: bool = False
    to_offset: int | None = None
    to_timestamp_ms: int | None = None


@attrs.frozen(kw_only=True)
class TopicConfigChange:
    """A key whose own value on a topic changes; None stands for no value of its own."""

    key: str
    old: str | None
    new: str | None


@attrs.frozen(kw_only=True)
class ChangedTopicConfigs:
    """What a change of a topic's settings did, or with ``dry_run`` would; ``configs`` are the keys that it named."""

    dry_run: bool
    changes: tuple[TopicConfigChange, ...]
    configs: Mapping[str, ConfigEntry]


class TopicsView(Protocol):
    """The topics of a broker, as the admin app sees them. Whatever is asked of one that does not exist is None."""

    def names(self) -> Sequence[str]:
        """The names of all topics, in no order; cheap however many they are."""
        ...

    async def summaries(self) -> Sequence[TopicSummary]:
        """All topics, by name, from a report that may be some seconds old."""
        ...

    async def get(self, name: str) -> TopicDetail | None:
        """One topic as it is now."""
        ...

    async def rates(self, name: str) -> TopicRates | None:
        """Its rates of the last hour."""
        ...

    def leader(self, name: str, partition: int) -> int | None:
        """The broker that leads a partition; None if nobody does, or there is none."""
        ...

    async def led(self) -> Sequence[LedTopic]:
        """What this broker leads, by topic, from a report that may be some seconds old."""
        ...

    async def led_partitions(self, name: str, *, oldest_records: bool) -> Sequence[PartitionDetail] | None:
        """Those partitions of a topic that this broker leads."""
        ...

    def led_rates(self, name: str) -> TopicRates | None:
        """What this broker has carried of a topic in the last hour."""
        ...

    async def partitions(self, name: str, *, oldest_records: bool = False) -> Sequence[PartitionDetail] | None:
        """Its partitions, in order. With ``oldest_records`` the head of each log is read for the time of its first one;
        all else is in memory."""
        ...

    async def consumers(self, name: str) -> Sequence[TopicConsumer] | None:
        """The groups with committed offsets of it, by id, from a report that may be some seconds old."""
        ...

    def configs(self, name: str) -> Sequence[ConfigEntry] | None:
        """Every topic key as it stands for this topic."""
        ...

    def config_defaults(self) -> Sequence[ConfigEntry]:
        """Every topic key as it stands for a topic without settings of its own."""
        ...


class TopicChangesView(Protocol):
    """Changes of topics. ``changed_by`` says who asks for one and from where, in words, for the record."""

    async def create(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str],
        *, dry_run: bool, changed_by: str,
    ) -> TopicCreation:  # fmt: skip
        """Create a topic; None stands for the broker's default.

        Raises:
            TopicRefused: as it says.
        """
        ...

    async def delete(self, name: str, *, dry_run: bool, changed_by: str) -> TopicDeletion:
        """Delete a topic with all of its records.

        Raises:
            TopicRefused: as it says.
        """
        ...

    async def add_partitions(self, name: str, count: int, *, dry_run: bool, changed_by: str) -> AddedPartitions:
        """Raise the number of partitions to ``count``.

        Raises:
            TopicRefused: as it says.
        """
        ...

    async def purge(
        self, name: str, target: PurgeTarget, partitions: Collection[int], *, dry_run: bool, changed_by: str
    ) -> PurgedTopic:
        """Delete the records before ``target`` in ``partitions``, or in all if there are none.

        All partitions are checked before the first is changed.

        Raises:
            TopicRefused: as it says. What a disk refuses afterwards is in the result of its partition.
        """
        ...

    async def change_configs(
        self, name: str, changes: Mapping[str, str | None], *, dry_run: bool, changed_by: str
    ) -> ChangedTopicConfigs:
        """Set keys of a topic, or reset those whose value is None to what the broker says; all of them or none.

        Raises:
            TopicRefused: as it says.
        """
        ...
