"""The broker's numbers by the names that the JMX exporter gives to Kafka's own metrics.

Its rules for Kafka (``kafka-kraft-3_0_0.yml`` among its examples) make ``kafka_server_replicamanager_leadercount`` of
the MBean ``kafka.server:type=ReplicaManager,name=LeaderCount``, counters ending in ``_total`` of rates, and of each
histogram a gauge per ``quantile`` and a ``_count``. Times are in milliseconds and idle "percents" between 0 and 1, as
in Kafka. Two spellings of the idle shares are in use, ``…idlepercent`` and ``…idle_percent``: both are here.

Source: Kafka's BrokerTopicMetrics, RequestMetrics, ReplicaManager, SocketServer and KafkaController.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from prometheus_client.core import Metric, SummaryMetricFamily

from trio_broker.common.histogram import HistogramSnapshot
from trio_broker.common.request_phase import RequestPhase
from trio_broker.coordinator.classic.group_metadata import ClassicGroupState
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState
from trio_broker.coordinator.reporting.snapshot import GroupType
from trio_broker.metrics.latency import error_name
from trio_broker.metrics.snapshot import MetricsSnapshot, PartitionReading
from trio_broker.metrics.streamed_metric import LabelledValue, streamed_metric, values_of_partitions
from trio_broker.network.request_metrics import NO_REQUESTS, RequestTimes
from trio_broker.storage.recovery_progress import RecoveryProgress

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The quantiles of Kafka's histograms."""

STARTING, RECOVERY, RUNNING = 1, 2, 3
"""Of Kafka's BrokerState."""

BROKER_STATE = "kafka.server:type=KafkaServer,name=BrokerState"

FETCH_NAMES = ("Fetch", "FetchConsumer")
"""Kafka counts each Fetch of a consumer under both."""

GROUP_STATES: Mapping[GroupType, Sequence[str]] = {
    GroupType.CLASSIC: [state.value for state in ClassicGroupState],
    GroupType.CONSUMER: [state.value for state in ConsumerGroupState],
}
"""The states of the groups of each protocol."""


Read: TypeAlias = Callable[[MetricsSnapshot], float]

ReadPartition: TypeAlias = Callable[[PartitionReading], int]


def exporter_name(mbean: str) -> str:
    """What the exporter makes of ``kafka.log:type=Log,name=Size``; a rate is a counter to it."""
    domain, _, properties = mbean.partition(":")
    names = [each.partition("=")[2].lower().replace("-", "_") for each in properties.split(",")]
    name = "_".join([domain.replace(".", "_"), *names])
    return name.removesuffix("persec") + "_total" if name.endswith("persec") else name


def api_count(api: str) -> Read:
    """How many requests of one API were answered."""
    return lambda snapshot: snapshot.requests[api].count if api in snapshot.requests else 0


def api_errors(api: str) -> Read:
    """How many errors answers of one API have held."""
    return lambda snapshot: sum(snapshot.requests[api].errors.values()) if api in snapshot.requests else 0


def summed(read: ReadPartition) -> Read:
    """The sum over all partitions, or how many are so."""
    return lambda snapshot: sum(map(read, snapshot.partitions))


def is_under_replicated(partition: PartitionReading) -> bool:
    return partition.is_led and partition.in_sync_replica_count < partition.replica_count


def is_under_min_isr(partition: PartitionReading) -> bool:
    return partition.is_led and partition.in_sync_replica_count < partition.min_in_sync_replicas


def is_at_min_isr(partition: PartitionReading) -> bool:
    return partition.is_led and partition.in_sync_replica_count == partition.min_in_sync_replicas


def of_cluster(name: str) -> Read:
    """What the broker knows of the cluster, by the name of ``ClusterReading``."""
    return lambda snapshot: getattr(snapshot.cluster, name)


def group_count(type_: GroupType, state: str | None = None) -> Read:
    """How many groups there are of one protocol, in one state or in any."""
    return lambda snapshot: sum(
        count
        for kind, count in snapshot.groups.groups.items()
        if kind.type is type_ and (state is None or kind.state == state)
    )


def committed_offsets(snapshot: MetricsSnapshot) -> float:
    """How many offsets are kept for groups."""
    return snapshot.groups.committed_offsets


SERVER, NETWORK, LOG = "kafka.server:type=", "kafka.network:type=", "kafka.log:type="
TOPICS = f"{SERVER}BrokerTopicMetrics,name="
REPLICAS = f"{SERVER}ReplicaManager,name="
FETCHERS = f"{SERVER}ReplicaFetcherManager,name="
CONTROLLER = "kafka.controller:type=KafkaController,name="
PARTITION = "kafka.cluster:type=Partition,name="
OLD_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="
GROUPS = f"{SERVER}group-coordinator-metrics"

IDLE: Mapping[str, Read] = {
    f"{NETWORK}SocketServer,name=NetworkProcessorAvgIdlePercent": lambda snapshot: snapshot.server.network_idle_ratio,
    f"{SERVER}KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent": (
        lambda snapshot: snapshot.server.handler_idle_ratio
    ),
}
"""Shares of time."""

VALUES: Mapping[str, Read] = {
    f"{TOPICS}TotalProduceRequestsPerSec": api_count("produce"),
    f"{TOPICS}TotalFetchRequestsPerSec": api_count("fetch"),
    f"{TOPICS}FailedProduceRequestsPerSec": api_errors("produce"),
    f"{TOPICS}FailedFetchRequestsPerSec": api_errors("fetch"),
    f"{NETWORK}RequestChannel,name=RequestQueueSize": lambda snapshot: snapshot.server.channel.depth,
    f"{REPLICAS}PartitionCount": lambda snapshot: snapshot.replicas.partitions,
    f"{REPLICAS}LeaderCount": of_cluster("led_partitions"),
    f"{REPLICAS}UnderReplicatedPartitions": of_cluster("under_replicated"),
    f"{REPLICAS}UnderMinIsrPartitionCount": of_cluster("under_min_isr"),
    f"{REPLICAS}AtMinIsrPartitionCount": of_cluster("at_min_isr"),
    f"{REPLICAS}OfflineReplicaCount": lambda snapshot: snapshot.replicas.offline_partitions,
    f"{REPLICAS}ProducerIdCount": summed(lambda each: each.producer_ids),
    f"{REPLICAS}PartitionsWithLateTransactionsCount": lambda snapshot: snapshot.transactions.late_transactions,
    f"{REPLICAS}IsrShrinksPerSec": of_cluster("isr_shrinks"),
    f"{REPLICAS}IsrExpandsPerSec": of_cluster("isr_expands"),
    f"{TOPICS}ReplicationBytesInPerSec": of_cluster("replicated_bytes"),
    BROKER_STATE: lambda _snapshot: RUNNING,
    f"{CONTROLLER}ActiveControllerCount": of_cluster("is_controller"),
    f"{CONTROLLER}ActiveBrokerCount": of_cluster("active_brokers"),
    f"{CONTROLLER}FencedBrokerCount": of_cluster("fenced_brokers"),
    f"{CONTROLLER}GlobalTopicCount": of_cluster("topics"),
    f"{CONTROLLER}GlobalPartitionCount": of_cluster("partitions"),
    f"{CONTROLLER}OfflinePartitionsCount": of_cluster("offline_partitions"),
    f"{CONTROLLER}PreferredReplicaImbalanceCount": of_cluster("imbalanced_partitions"),
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec": of_cluster("unclean_elections"),
    f"{LOG}LogCleanerManager,name=max-dirty-percent": lambda snapshot: 100 * snapshot.cleaner.max_dirty_ratio,
    f"{LOG}LogCleanerManager,name=uncleanable-partitions-count": lambda snapshot: len(snapshot.cleaner.uncleanable),
    f"{OLD_GROUPS}NumOffsets": committed_offsets,
    f"{OLD_GROUPS}NumGroups": group_count(GroupType.CLASSIC),
    **{
        f"{OLD_GROUPS}NumGroups{state}": group_count(GroupType.CLASSIC, state)
        for state in GROUP_STATES[GroupType.CLASSIC]
    },
}
"""Of the whole broker, by MBean. Those of groups are deprecated in Kafka 4.4, and tell of classic groups only."""

OF_FETCHERS: Mapping[str, Read] = {
    f"{FETCHERS}MaxLag": of_cluster("fetcher_max_lag"),
    f"{FETCHERS}MinFetchRate": of_cluster("fetcher_min_rate"),
    f"{FETCHERS}FailedPartitionsCount": of_cluster("fetcher_failed_partitions"),
}
"""Of all fetchers of replicas, by MBean; a client id tells them from those of log directories."""

TRAFFIC: Mapping[str, tuple[Read, ReadPartition]] = {
    f"{TOPICS}MessagesInPerSec": (lambda s: s.replicas.appended_records, lambda each: each.appended_records),
    f"{TOPICS}BytesInPerSec": (lambda s: s.replicas.appended_bytes, lambda each: each.appended_bytes),
    f"{TOPICS}BytesOutPerSec": (lambda s: s.replicas.fetched_bytes, lambda each: each.fetched_bytes),
}
"""By MBean the whole broker's value, and a partition's, of which a topic's is the sum."""

OF_PARTITIONS: Mapping[str, ReadPartition] = {
    f"{LOG}Log,name=Size": lambda each: each.size_bytes,
    f"{LOG}Log,name=LogStartOffset": lambda each: each.log_start_offset,
    f"{LOG}Log,name=LogEndOffset": lambda each: each.log_end_offset,
    f"{LOG}Log,name=NumLogSegments": lambda each: each.segment_count,
    f"{PARTITION}ReplicasCount": lambda each: each.replica_count,
    f"{PARTITION}InSyncReplicasCount": lambda each: each.in_sync_replica_count,
    f"{PARTITION}UnderReplicated": is_under_replicated,
    f"{PARTITION}UnderMinIsr": is_under_min_isr,
    f"{PARTITION}AtMinIsr": is_at_min_isr,
}
"""Of each partition, by MBean."""


def remote_times(times: RequestTimes) -> HistogramSnapshot:
    """What a request waited without a handler: for the disk or, in purgatory, for others; hardly any waits for both."""
    return max(times.phase(RequestPhase.DISK), times.phase(RequestPhase.PURGATORY), key=lambda each: each.sum_ns)


TIMES: Mapping[str, Callable[[RequestTimes], HistogramSnapshot]] = {
    "TotalTimeMs": lambda times: times.total,
    "RequestQueueTimeMs": lambda times: times.phase(RequestPhase.QUEUE),
    "LocalTimeMs": lambda times: times.phase(RequestPhase.LOCAL),
    "RemoteTimeMs": remote_times,
    "ResponseQueueTimeMs": lambda times: times.phase(RequestPhase.RESPONSE_QUEUE),
    "ResponseSendTimeMs": lambda times: times.phase(RequestPhase.SEND),
}
"""Kafka's names for the phases of a request."""


def jmx_exporter_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """All of them."""
    for mbean, read in VALUES.items():
        yield metric_of(mbean, [({}, read(snapshot))])
    for mbean, read in OF_FETCHERS.items():
        yield metric_of(mbean, [({"clientId": "Replica"}, read(snapshot))])
    for mbean, read in IDLE.items():
        for spelling in ("percent", "_percent"):
            name = exporter_name(mbean).removesuffix("percent") + spelling
            yield metric_of(mbean, [({}, read(snapshot))], name)
    yield from modern_group_metrics(snapshot)
    yield from traffic_metrics(snapshot)
    yield from request_metrics(snapshot)
    yield from purgatory_metrics(snapshot)
    yield from recovery_metrics(snapshot.recovery)
    connections = [
        ({"networkProcessor": f"{each.processor_id}"}, each.connections) for each in snapshot.server.processors
    ]
    yield metric_of(
        f"{SERVER}socket-server-metrics,networkProcessor=*: connection-count",
        connections,
        "kafka_server_socket_server_metrics_connection_count",
    )
    for mbean, value in OF_PARTITIONS.items():
        yield streamed_metric(exporter_name(mbean), mbean, partial(values_of_partitions, snapshot.partitions, value))


def jmx_start_metrics(progress: RecoveryProgress) -> Iterator[Metric]:
    """What there is of them while the broker starts."""
    yield metric_of(BROKER_STATE, [({}, RECOVERY if progress.directories else STARTING)])
    yield from recovery_metrics(progress)


def recovery_metrics(progress: RecoveryProgress) -> Iterator[Metric]:
    """What the start has yet to load. Kafka counts segments by thread as well, and drops these metrics at the end."""
    for name, value in (("Logs", "remaining_logs"), ("Segments", "remaining_segments")):
        values = [({"dir": each.path}, getattr(each, value)) for each in progress.directories]
        yield metric_of(f"{LOG}LogManager,name=remaining{name}ToRecover", values)


def metric_of(mbean: str, values: Sequence[LabelledValue], name: str = "") -> Metric:
    """A counter if the name ends like one, else a gauge; it is the exporter's own for the MBean if none is given."""
    return streamed_metric(name or exporter_name(mbean), mbean, lambda: values)


def modern_group_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Groups and their offsets by the names of Kafka 4.4 (KIP-1301); the exporter's rules write tags into the name."""
    values: dict[str, tuple[str, Read]] = {"offset_count": (f"{GROUPS}: offset-count", committed_offsets)}
    for type_, states in GROUP_STATES.items():
        protocol = type_.value
        mbean = f"{GROUPS},protocol={protocol}: group-count"
        values[f"protocol_{protocol}_group_count"] = mbean, group_count(type_)
        for state in states:
            mbean = f"{GROUPS},state={state}: {protocol}-group-count"
            values[f"state_{state.lower()}_{protocol}_group_count"] = mbean, group_count(type_, state)
    for name, (mbean, read) in values.items():
        yield metric_of(mbean, [({}, read(snapshot))], f"kafka_server_group_coordinator_metrics_{name}")


def traffic_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """What was appended and fetched: of the whole broker, without a label, and of each topic."""
    for mbean, (of_broker, of_partition) in TRAFFIC.items():
        topics: defaultdict[str, int] = defaultdict(int)
        for each in snapshot.partitions:
            topics[each.topic] += of_partition(each)
        yield metric_of(
            mbean, [({}, of_broker(snapshot)), *(({"topic": topic}, value) for topic, value in topics.items())]
        )


def request_names(api: str) -> Sequence[str]:
    """Kafka's names for the requests of an API of ours: ``OffsetCommit`` for ``offset_commit``."""
    return FETCH_NAMES if api == "fetch" else ("".join(word.capitalize() for word in api.split("_")),)


def request_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Requests by API: their number, their errors, and the quantiles of their times in the last minute."""
    requests, errors = [], []
    for api, times in sorted(snapshot.requests.items()):
        for request in request_names(api):
            requests.append(({"request": request}, times.count))
            for code, count in sorted(times.errors.items()):
                errors.append(({"request": request, "error": error_name(code)}, count))
    mbean = f"{NETWORK}RequestMetrics,name="
    yield metric_of(f"{mbean}RequestsPerSec", requests)
    yield metric_of(f"{mbean}ErrorsPerSec", errors)
    for name, read in TIMES.items():
        family = SummaryMetricFamily(exporter_name(mbean + name), mbean + name)
        for api, times in sorted(snapshot.requests.items()):
            recent = snapshot.recent_requests.get(api, NO_REQUESTS)
            for request in request_names(api):
                add_times(family, {"request": request}, read(times), read(recent))
        yield family


def add_times(
    family: Metric, labels: Mapping[str, str], since_start: HistogramSnapshot, recent: HistogramSnapshot
) -> None:
    """Add the count and the sum of all times, and the quantiles of the ``recent`` ones; without any there are none."""
    if recent.count:
        for quantile in QUANTILES:
            value = recent.quantile_ms(float(quantile)) if recent.sum_ns else 0.0
            family.add_sample(family.name, {**labels, "quantile": quantile}, value)
    family.add_sample(f"{family.name}_count", dict(labels), since_start.count)
    family.add_sample(f"{family.name}_sum", dict(labels), since_start.sum_ns / 1e6)


def purgatory_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """The requests that wait for others."""
    waiting = {"Produce": snapshot.replicas.delayed_produces, "Fetch": snapshot.replicas.delayed_fetches}
    for name in ("PurgatorySize", "NumDelayedOperations"):
        values = [({"delayedOperation": operation}, count) for operation, count in waiting.items()]
        yield metric_of(f"{SERVER}DelayedOperationPurgatory,name={name}", values)
