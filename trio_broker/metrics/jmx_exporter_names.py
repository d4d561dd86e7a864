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

import attrs
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

BROKER_STATE = ("kafka_server_kafkaserver_brokerstate", "kafka.server:type=KafkaServer,name=BrokerState")

FETCH_NAMES = ("Fetch", "FetchConsumer")
"""Kafka counts each Fetch of a consumer under both."""

GROUP_STATES: Mapping[GroupType, Sequence[str]] = {
    GroupType.CLASSIC: [state.value for state in ClassicGroupState],
    GroupType.CONSUMER: [state.value for state in ConsumerGroupState],
}
"""The states of the groups of each protocol."""


@attrs.frozen
class JmxValue:
    """One number of an MBean, by the exporter's name and Kafka's. The name of a counter ends in ``_total``."""

    name: str
    mbean: str
    read: Callable[[MetricsSnapshot], float]


def api_count(api: str) -> Callable[[MetricsSnapshot], float]:
    """How many requests of one API were answered."""
    return lambda snapshot: snapshot.requests[api].count if api in snapshot.requests else 0


def api_errors(api: str) -> Callable[[MetricsSnapshot], float]:
    """How many errors answers of one API have held."""
    return lambda snapshot: sum(snapshot.requests[api].errors.values()) if api in snapshot.requests else 0


def counted(is_counted: Callable[[PartitionReading], bool]) -> Callable[[MetricsSnapshot], float]:
    """How many partitions are so."""
    return lambda snapshot: sum(map(is_counted, snapshot.partitions))


def is_under_replicated(partition: PartitionReading) -> bool:
    return partition.in_sync_replica_count < partition.replica_count


def is_under_min_isr(partition: PartitionReading) -> bool:
    return partition.in_sync_replica_count < partition.min_in_sync_replicas


def is_at_min_isr(partition: PartitionReading) -> bool:
    return partition.in_sync_replica_count == partition.min_in_sync_replicas


def group_count(type_: GroupType, state: str | None = None) -> Callable[[MetricsSnapshot], float]:
    """How many groups there are of one protocol, in one state or in any."""
    return lambda snapshot: sum(
        count
        for kind, count in snapshot.groups.groups.items()
        if kind.type is type_ and (state is None or kind.state == state)
    )


def committed_offsets(snapshot: MetricsSnapshot) -> float:
    """How many offsets are kept for groups."""
    return snapshot.groups.committed_offsets


def group_values() -> Iterator[JmxValue]:
    """Groups and their offsets, by the names that Kafka 4.4 deprecates and by those in their place (KIP-1301).

    The old names tell of classic groups only. The exporter's rules write what the new MBeans are tagged with into the
    name.
    """
    old, old_mbean = "kafka_coordinator_group_groupmetadatamanager", "kafka.coordinator.group:type=GroupMetadataManager"
    new, new_mbean = "kafka_server_group_coordinator_metrics", "kafka.server:type=group-coordinator-metrics"
    yield JmxValue(f"{old}_numoffsets", f"{old_mbean},name=NumOffsets", committed_offsets)
    yield JmxValue(f"{new}_offset_count", f"{new_mbean}: offset-count", committed_offsets)
    yield JmxValue(f"{old}_numgroups", f"{old_mbean},name=NumGroups", group_count(GroupType.CLASSIC))
    for state in GROUP_STATES[GroupType.CLASSIC]:
        name = f"NumGroups{state}"
        yield JmxValue(f"{old}_{name.lower()}", f"{old_mbean},name={name}", group_count(GroupType.CLASSIC, state))
    for type_, states in GROUP_STATES.items():
        protocol = type_.value
        mbean = f"{new_mbean},protocol={protocol}: group-count"
        yield JmxValue(f"{new}_protocol_{protocol}_group_count", mbean, group_count(type_))
        for state in states:
            name = f"{new}_state_{state.lower()}_{protocol}_group_count"
            mbean = f"{new_mbean},state={state}: {protocol}-group-count"
            yield JmxValue(name, mbean, group_count(type_, state))


def nothing(_snapshot: MetricsSnapshot) -> float:
    """What cannot happen to the only broker of a cluster, which its dashboards ask for all the same."""
    return 0


VALUES = (
    JmxValue(
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec",
        api_count("produce"),
    ),
    JmxValue(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec",
        api_count("fetch"),
    ),
    JmxValue(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
        api_errors("produce"),
    ),
    JmxValue(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec",
        api_errors("fetch"),
    ),
    JmxValue(
        "kafka_network_requestchannel_requestqueuesize",
        "kafka.network:type=RequestChannel,name=RequestQueueSize",
        lambda snapshot: snapshot.server.channel.depth,
    ),
    *(
        JmxValue(
            f"kafka_network_socketserver_networkprocessoravgidle{spelling}",
            "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
            lambda snapshot: snapshot.server.network_idle_ratio,
        )
        for spelling in ("percent", "_percent")
    ),
    *(
        JmxValue(
            f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle{spelling}",
            "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
            lambda snapshot: snapshot.server.handler_idle_ratio,
        )
        for spelling in ("percent", "_percent")
    ),
    JmxValue(
        "kafka_server_replicamanager_partitioncount",
        "kafka.server:type=ReplicaManager,name=PartitionCount",
        lambda snapshot: snapshot.replicas.partitions,
    ),
    JmxValue(
        "kafka_server_replicamanager_leadercount",
        "kafka.server:type=ReplicaManager,name=LeaderCount",
        counted(lambda each: each.leader >= 0),
    ),
    JmxValue(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        counted(is_under_replicated),
    ),
    JmxValue(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
        counted(is_under_min_isr),
    ),
    JmxValue(
        "kafka_server_replicamanager_atminisrpartitioncount",
        "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
        counted(is_at_min_isr),
    ),
    JmxValue(
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
        lambda snapshot: snapshot.replicas.offline_partitions,
    ),
    JmxValue(
        "kafka_server_replicamanager_produceridcount",
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        lambda snapshot: sum(each.producer_ids for each in snapshot.partitions),
    ),
    JmxValue(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
        lambda snapshot: snapshot.transactions.late_transactions,
    ),
    JmxValue(
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
        nothing,
    ),
    JmxValue(
        "kafka_server_replicamanager_isrexpands_total",
        "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
        nothing,
    ),
    JmxValue(*BROKER_STATE, lambda _snapshot: RUNNING),
    JmxValue(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka.controller:type=KafkaController,name=ActiveControllerCount",
        lambda _snapshot: 1,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_activebrokercount",
        "kafka.controller:type=KafkaController,name=ActiveBrokerCount",
        lambda _snapshot: 1,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "kafka.controller:type=KafkaController,name=FencedBrokerCount",
        nothing,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka.controller:type=KafkaController,name=GlobalTopicCount",
        lambda snapshot: snapshot.replicas.topics,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        lambda snapshot: snapshot.replicas.partitions,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        lambda snapshot: snapshot.replicas.offline_partitions,
    ),
    JmxValue(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
        counted(lambda each: each.leader != each.preferred_leader),
    ),
    JmxValue(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        nothing,
    ),
    JmxValue(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "kafka.log:type=LogCleanerManager,name=max-dirty-percent",
        lambda snapshot: 100 * snapshot.cleaner.max_dirty_ratio,
    ),
    JmxValue(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
        lambda snapshot: len(snapshot.cleaner.uncleanable),
    ),
    *group_values(),
)

TRAFFIC: Mapping[str, tuple[str, Callable[[MetricsSnapshot], float], Callable[[PartitionReading], int]]] = {
    "messagesin": ("MessagesInPerSec", lambda s: s.replicas.appended_records, lambda each: each.appended_records),
    "bytesin": ("BytesInPerSec", lambda s: s.replicas.appended_bytes, lambda each: each.appended_bytes),
    "bytesout": ("BytesOutPerSec", lambda s: s.replicas.fetched_bytes, lambda each: each.fetched_bytes),
}
"""Of BrokerTopicMetrics: Kafka's name, the whole broker's value, and a partition's, of which a topic's is the sum."""

OF_PARTITIONS: Mapping[str, tuple[str, Callable[[PartitionReading], int]]] = {
    "kafka_log_log_size": ("kafka.log:type=Log,name=Size", lambda each: each.size_bytes),
    "kafka_log_log_logstartoffset": ("kafka.log:type=Log,name=LogStartOffset", lambda each: each.log_start_offset),
    "kafka_log_log_logendoffset": ("kafka.log:type=Log,name=LogEndOffset", lambda each: each.log_end_offset),
    "kafka_log_log_numlogsegments": ("kafka.log:type=Log,name=NumLogSegments", lambda each: each.segment_count),
    "kafka_cluster_partition_replicascount": (
        "kafka.cluster:type=Partition,name=ReplicasCount",
        lambda each: each.replica_count,
    ),
    "kafka_cluster_partition_insyncreplicascount": (
        "kafka.cluster:type=Partition,name=InSyncReplicasCount",
        lambda each: each.in_sync_replica_count,
    ),
    "kafka_cluster_partition_underreplicated": (
        "kafka.cluster:type=Partition,name=UnderReplicated",
        is_under_replicated,
    ),
    "kafka_cluster_partition_underminisr": (
        "kafka.cluster:type=Partition,name=UnderMinIsr",
        is_under_min_isr,
    ),
    "kafka_cluster_partition_atminisr": (
        "kafka.cluster:type=Partition,name=AtMinIsr",
        is_at_min_isr,
    ),
}
"""Of each partition, by the exporter's name: Kafka's and its value."""


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
    for each in VALUES:
        yield metric_of(each.name, each.mbean, [({}, each.read(snapshot))])
    yield from traffic_metrics(snapshot)
    yield from request_metrics(snapshot)
    yield from purgatory_metrics(snapshot)
    yield from recovery_metrics(snapshot.recovery)
    yield metric_of(
        "kafka_server_socket_server_metrics_connection_count",
        "kafka.server:type=socket-server-metrics,networkProcessor=*: connection-count",
        [({"networkProcessor": f"{each.processor_id}"}, each.connections) for each in snapshot.server.processors],
    )
    for name, (mbean, value) in OF_PARTITIONS.items():
        yield streamed_metric(name, mbean, partial(values_of_partitions, snapshot.partitions, value))


def jmx_start_metrics(progress: RecoveryProgress) -> Iterator[Metric]:
    """What there is of them while the broker starts."""
    yield metric_of(*BROKER_STATE, [({}, RECOVERY if progress.directories else STARTING)])
    yield from recovery_metrics(progress)


def recovery_metrics(progress: RecoveryProgress) -> Iterator[Metric]:
    """What the start has yet to load. Kafka counts segments by thread as well, and drops these metrics at the end."""
    for name, value in (("Logs", "remaining_logs"), ("Segments", "remaining_segments")):
        yield metric_of(
            f"kafka_log_logmanager_remaining{name.lower()}torecover",
            f"kafka.log:type=LogManager,name=remaining{name}ToRecover",
            [({"dir": each.path}, getattr(each, value)) for each in progress.directories],
        )


def metric_of(name: str, mbean: str, values: Sequence[LabelledValue]) -> Metric:
    """A counter if ``name`` ends like one, else a gauge."""
    return streamed_metric(name, mbean, lambda: values)


def traffic_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """What was appended and fetched: of the whole broker, without a label, and of each topic."""
    for name, (kafka_name, of_broker, of_partition) in TRAFFIC.items():
        topics: defaultdict[str, int] = defaultdict(int)
        for each in snapshot.partitions:
            topics[each.topic] += of_partition(each)
        yield metric_of(
            f"kafka_server_brokertopicmetrics_{name}_total",
            f"kafka.server:type=BrokerTopicMetrics,name={kafka_name}",
            [({}, of_broker(snapshot)), *(({"topic": topic}, value) for topic, value in topics.items())],
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
    mbean = "kafka.network:type=RequestMetrics,name="
    yield metric_of("kafka_network_requestmetrics_requests_total", f"{mbean}RequestsPerSec", requests)
    yield metric_of("kafka_network_requestmetrics_errors_total", f"{mbean}ErrorsPerSec", errors)
    for name, read in TIMES.items():
        family = SummaryMetricFamily(f"kafka_network_requestmetrics_{name.lower()}", f"{mbean}{name}")
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
        yield metric_of(
            f"kafka_server_delayedoperationpurgatory_{name.lower()}",
            f"kafka.server:type=DelayedOperationPurgatory,name={name}",
            [({"delayedOperation": operation}, count) for operation, count in waiting.items()],
        )
