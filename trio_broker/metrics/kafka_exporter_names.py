"""The broker's numbers by the names of kafka_exporter, for the dashboards and alerts that are made for it.

Names, labels and meanings are those of danielqsj/kafka_exporter, which asks a cluster by Kafka's protocol: its current
offset is the high watermark, and the lag of a group that has not committed a partition assigned to it is -1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from trio_broker.coordinator.reporting.snapshot import GroupPartitionLag
from trio_broker.metrics.snapshot import MetricsSnapshot, PartitionReading

UNKNOWN = -1
"""The offset and the lag of a group that has committed nothing in a partition."""

OF_PARTITIONS: Mapping[str, tuple[str, Callable[[PartitionReading], float]]] = {
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
    yield GaugeMetricFamily("kafka_brokers", "Brokers of the cluster", value=1)
    info = GaugeMetricFamily("kafka_broker_info", "Id and address of each broker", labels=["id", "address"])
    info.add_metric([str(snapshot.node_id), snapshot.address], 1)
    yield info
    yield from topic_metrics(snapshot.partitions)
    members = GaugeMetricFamily("kafka_consumergroup_members", "Members of a group", labels=["consumergroup"])
    for each in snapshot.groups_with_lag:
        members.add_metric([each.group.group_id], each.group.member_count)
    yield members
    yield from lag_metrics(snapshot.lags)


def topic_metrics(partitions: Sequence[PartitionReading]) -> Iterator[Metric]:
    """Topics and their partitions."""
    count = GaugeMetricFamily("kafka_topic_partitions", "Partitions of a topic", labels=["topic"])
    for topic, number in Counter(each.topic for each in partitions).items():
        count.add_metric([topic], number)
    yield count
    for name, (documentation, value) in OF_PARTITIONS.items():
        family = GaugeMetricFamily(f"kafka_topic_partition_{name}", documentation, labels=["topic", "partition"])
        for each in partitions:
            family.add_metric([each.topic, str(each.partition)], value(each))
        yield family


def lag_metrics(lags: Sequence[GroupPartitionLag]) -> Iterator[Metric]:
    """What groups have committed, and how far they are behind: by partition, and by topic."""
    labels = ["consumergroup", "topic", "partition"]
    offsets = GaugeMetricFamily("kafka_consumergroup_current_offset", "Committed offset of a group", labels=labels)
    behind = GaugeMetricFamily("kafka_consumergroup_lag", "Records that a group has yet to consume", labels=labels)
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each in lags:
        lag = each.lag
        values = [each.group_id, lag.topic, str(lag.partition)]
        offset = UNKNOWN if lag.committed_offset is None else lag.committed_offset
        records = UNKNOWN if lag.lag_records is None else lag.lag_records
        offsets.add_metric(values, offset)
        behind.add_metric(values, records)
        total = sums[each.group_id, lag.topic]
        total[0] += max(offset, 0)
        total[1] += max(records, 0)
    yield from (offsets, behind)
    offset_sums = GaugeMetricFamily(
        "kafka_consumergroup_current_offset_sum", "Sum over the partitions of a topic", labels=labels[:2]
    )
    lag_sums = GaugeMetricFamily("kafka_consumergroup_lag_sum", "Sum over the partitions of a topic", labels=labels[:2])
    for key, (offset_sum, lag_sum) in sums.items():
        offset_sums.add_metric(key, offset_sum)
        lag_sums.add_metric(key, lag_sum)
    yield from (offset_sums, lag_sums)
