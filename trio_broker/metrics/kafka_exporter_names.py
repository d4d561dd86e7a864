"""The broker's numbers by the names of kafka_exporter, for the dashboards and alerts that are made for it.

Names, labels and meanings are those of danielqsj/kafka_exporter, which asks a cluster by Kafka's protocol: its current
offset is the high watermark, and the lag of a group that has not committed a partition assigned to it is -1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client.core import Metric

from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupPartitionLag
from trio_broker.metrics.snapshot import MetricsSnapshot, PartitionReading
from trio_broker.metrics.streamed_metric import LabelledValue, streamed_metric, values_of_partitions

UNKNOWN = -1
"""The offset and the lag of a group that has committed nothing in a partition."""

OF_PARTITIONS: Mapping[str, tuple[str, Callable[[PartitionReading], int]]] = {
    "current_offset": ("Offset of the next record that consumers may read", lambda each: each.high_watermark),
    "oldest_offset": ("Offset of the first record", lambda each: each.log_start_offset),
    "leader": ("Id of the broker that leads the partition", lambda each: each.leader),
    "leader_is_preferred": ("1 if the first replica leads", lambda each: each.leader == each.preferred_leader),
    "replicas": ("Replicas of the partition", lambda each: each.replica_count),
    "in_sync_replica": ("Replicas that are in sync", lambda each: each.in_sync_replica_count),
    "under_replicated_partition": (
        "1 if a replica is not in sync",
        lambda each: each.in_sync_replica_count < each.replica_count,
    ),
}
"""By the last part of their name: what it is, and its value."""


def kafka_exporter_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """All of them."""
    brokers = [({"id": str(each.broker_id), "address": each.address}, 1) for each in snapshot.cluster.brokers]
    yield streamed_metric("kafka_brokers", "Brokers of the cluster", lambda: [({}, len(brokers))])
    yield streamed_metric("kafka_broker_info", "Id and address of each broker", lambda: brokers)
    yield from topic_metrics([each for each in snapshot.partitions if each.is_led])
    yield streamed_metric(
        "kafka_consumergroup_members",
        "Members of a group",
        lambda: (
            ({"consumergroup": each.group.group_id}, each.group.member_count) for each in snapshot.groups_with_lag
        ),
    )
    yield from lag_metrics(snapshot.lags)


def topic_metrics(partitions: Sequence[PartitionReading]) -> Iterator[Metric]:
    """Topics and their partitions, as far as they are led here: of a cluster each is in one scrape."""
    topics = Counter(each.topic for each in partitions)
    yield streamed_metric(
        "kafka_topic_partitions",
        "Partitions of a topic",
        lambda: (({"topic": topic}, count) for topic, count in topics.items()),
    )
    for name, (documentation, value) in OF_PARTITIONS.items():
        yield streamed_metric(
            f"kafka_topic_partition_{name}", documentation, partial(values_of_partitions, partitions, value)
        )


def committed_offset(lag: ConsumerLag) -> int:
    return UNKNOWN if lag.committed_offset is None else lag.committed_offset


def lag_records(lag: ConsumerLag) -> int:
    return UNKNOWN if lag.lag_records is None else lag.lag_records


def lag_metrics(lags: Sequence[GroupPartitionLag]) -> Iterator[Metric]:
    """What groups have committed, and how far they are behind: by partition, and by topic."""
    for name, documentation, read in (
        ("current_offset", "Committed offset of a group", committed_offset),
        ("lag", "Records that a group has yet to consume", lag_records),
    ):
        yield streamed_metric(f"kafka_consumergroup_{name}", documentation, partial(values_of_lags, lags, read))
        sums: Counter[tuple[str, str]] = Counter()
        for each in lags:
            sums[each.group_id, each.lag.topic] += max(read(each.lag), 0)
        yield streamed_metric(
            f"kafka_consumergroup_{name}_sum", f"{documentation}, summed over a topic", partial(values_of_sums, sums)
        )


def values_of_lags(lags: Sequence[GroupPartitionLag], read: Callable[[ConsumerLag], int]) -> Iterator[LabelledValue]:
    for each in lags:
        labels = {"consumergroup": each.group_id, "topic": each.lag.topic, "partition": str(each.lag.partition)}
        yield labels, read(each.lag)


def values_of_sums(sums: Mapping[tuple[str, str], int]) -> Iterator[LabelledValue]:
    return (({"consumergroup": group_id, "topic": topic}, total) for (group_id, topic), total in sums.items())
