"""``metrics.names``: the names, labels and types that the dashboards of two well-known exporters ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.test_metrics_prometheus import GROUPS, lag, partition_reading, request_times, snapshot
from tests.network.test_request_metrics import MS
from tests.running_broker import connected, running, view_of
from trio_broker.common.histogram import Histogram
from trio_broker.common.request_phase import RequestPhase
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupLag,
    GroupPartitionLag,
    GroupSnapshot,
    GroupType,
)
from trio_broker.metrics.jmx_exporter_names import remote_times
from trio_broker.metrics.prometheus import NAMES, render
from trio_broker.metrics.snapshot import BrokerAddress, ClusterReading, MetricsSnapshot
from trio_broker.network.request_metrics import RequestTimes

PAGE = Path(__file__).parents[2] / "docs" / "metric-names.md"

KAFKA_EXPORTER_DASHBOARDS = {
    "kafka_brokers": set(),
    "kafka_consumergroup_current_offset": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_current_offset_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_lag": {"consumergroup", "topic", "partition"},
    "kafka_consumergroup_lag_sum": {"consumergroup", "topic"},
    "kafka_consumergroup_members": {"consumergroup"},
    "kafka_topic_partition_current_offset": {"topic", "partition"},
    "kafka_topic_partition_in_sync_replica": {"topic", "partition"},
    "kafka_topic_partition_leader": {"topic", "partition"},
    "kafka_topic_partition_leader_is_preferred": {"topic", "partition"},
    "kafka_topic_partition_oldest_offset": {"topic", "partition"},
    "kafka_topic_partition_replicas": {"topic", "partition"},
    "kafka_topic_partition_under_replicated_partition": {"topic", "partition"},
    "kafka_topic_partitions": {"topic"},
}
"""What is asked for by Grafana's dashboard 7589 (kafka_exporter_overview.json) and by strimzi-kafka-exporter.json, but
for what the latter takes from the JMX exporter."""

JMX_DASHBOARDS = {
    "kafka_cluster_partition_atminisr": {"topic", "partition"},
    "kafka_cluster_partition_underminisr": {"topic", "partition"},
    "kafka_controller_controllerstats_uncleanleaderelections_total": set(),
    "kafka_controller_kafkacontroller_activebrokercount": set(),
    "kafka_controller_kafkacontroller_activecontrollercount": set(),
    "kafka_controller_kafkacontroller_fencedbrokercount": set(),
    "kafka_controller_kafkacontroller_globalpartitioncount": set(),
    "kafka_controller_kafkacontroller_globaltopiccount": set(),
    "kafka_controller_kafkacontroller_offlinepartitionscount": set(),
    "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": set(),
    "kafka_log_log_size": {"topic", "partition"},
    "kafka_network_requestchannel_requestqueuesize": set(),
    "kafka_network_requestmetrics_errors_total": {"request", "error"},
    "kafka_network_requestmetrics_localtimems": {"request", "quantile"},
    "kafka_network_requestmetrics_remotetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_requestqueuetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_requests_total": {"request"},
    "kafka_network_requestmetrics_responsequeuetimems": {"request", "quantile"},
    "kafka_network_requestmetrics_responsesendtimems": {"request", "quantile"},
    "kafka_network_requestmetrics_totaltimems": {"request", "quantile"},
    "kafka_network_requestmetrics_totaltimems_count": {"request"},
    "kafka_network_socketserver_networkprocessoravgidle_percent": set(),
    "kafka_network_socketserver_networkprocessoravgidlepercent": set(),
    "kafka_server_brokertopicmetrics_bytesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_bytesout_total": {"topic"},
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": set(),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": set(),
    "kafka_server_brokertopicmetrics_messagesin_total": {"topic"},
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": set(),
    "kafka_server_brokertopicmetrics_totalproducerequests_total": set(),
    "kafka_server_delayedoperationpurgatory_purgatorysize": {"delayedOperation"},
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": set(),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent": set(),
    "kafka_server_kafkaserver_brokerstate": set(),
    "kafka_server_replicamanager_isrexpands_total": set(),
    "kafka_server_replicamanager_isrshrinks_total": set(),
    "kafka_server_replicamanager_leadercount": set(),
    "kafka_server_replicamanager_partitioncount": set(),
    "kafka_server_replicamanager_underminisrpartitioncount": set(),
    "kafka_server_replicamanager_underreplicatedpartitions": set(),
    "kafka_server_socket_server_metrics_connection_count": {"networkProcessor"},
}
"""What is asked for by strimzi-kafka.json, strimzi-kraft.json and the dashboards of Grafana's Kafka mixin, but for the
Java virtual machine, other programs, and replication between brokers."""

GROUP = GroupSnapshot(
    group_id="billing",
    type=GroupType.CLASSIC,
    protocol_type="consumer",
    protocol="range",
    state="Stable",
    generation=3,
    leader=None,
    member_count=2,
)


def committed(partition: int, offset: int | None, records: int | None) -> GroupPartitionLag:
    return GroupPartitionLag(
        "billing",
        ConsumerLag(
            topic="orders",
            partition=partition,
            member_id=None,
            committed_offset=offset,
            log_end_offset=None,
            lag_records=records,
            lag_seconds=None,
        ),
    )


def named(*names: str) -> MetricsSnapshot:
    """A broker with two topics of three partitions, a group, and some requests, under ``names``."""
    return snapshot(
        names=names,
        groups=GROUPS,
        cluster=ClusterReading(brokers=[BrokerAddress(1, "broker.example:9092")], under_replicated=1),
        recent_requests={"produce": request_times(4)},
        partitions=[
            partition_reading(partition=0),
            partition_reading(partition=1, in_sync_replica_count=1, replica_count=2, preferred_leader=2),
            partition_reading(topic="bills", partition=0, appended_records=7),
        ],
        groups_with_lag=[
            GroupLag(
                group=GROUP,
                last_rebalance_at_ms=None,
                partition_count=2,
                partitions_without_lag=1,
                lag_records=8,
                lag_seconds=None,
            )
        ],
        lags=[committed(0, 12, 8), committed(1, None, None), committed(2, 5, 3)],
    )


def samples_of(shown: MetricsSnapshot) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every sample that is not ours, by its name and its labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(render(shown).decode()):
        for sample in family.samples:
            if sample.name.startswith("kafka_"):
                labels = tuple(sorted(sample.labels.items()))
                assert labels not in found.setdefault(sample.name, {}), "twice"
                found[sample.name][labels] = sample.value
    return found


def of(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def test_no_names_but_ours_are_shown_unless_they_are_asked_for() -> None:
    assert samples_of(named()) == {}


@pytest.mark.parametrize(
    ("names", "asked"), [("kafka-exporter", KAFKA_EXPORTER_DASHBOARDS), ("jmx-exporter", JMX_DASHBOARDS)]
)
def test_what_dashboards_ask_for_is_there_with_the_labels_they_choose_by(
    names: str, asked: dict[str, set[str]]
) -> None:
    found = samples_of(named(names))
    labels = {name: {label for each in series for label, _ in each} for name, series in found.items()}
    assert {name: labels.get(name) for name in asked} == asked


def test_both_lists_of_names_live_side_by_side() -> None:
    found = samples_of(named("kafka-exporter", "jmx-exporter"))
    assert found.keys() >= KAFKA_EXPORTER_DASHBOARDS.keys() | JMX_DASHBOARDS.keys()


def test_partitions_are_described_as_kafka_exporter_does() -> None:
    found = samples_of(named("kafka-exporter"))
    behind = of(topic="orders", partition="1")
    assert found["kafka_topic_partitions"] == {of(topic="orders"): 2, of(topic="bills"): 1}
    assert found["kafka_topic_partition_current_offset"][behind] == 20
    assert found["kafka_topic_partition_oldest_offset"][behind] == 10
    assert found["kafka_topic_partition_replicas"][behind] == 2
    assert found["kafka_topic_partition_in_sync_replica"][behind] == 1
    assert found["kafka_topic_partition_under_replicated_partition"][behind] == 1
    assert found["kafka_topic_partition_leader_is_preferred"][behind] == 0
    assert found["kafka_topic_partition_leader"][behind] == 1
    assert found["kafka_broker_info"] == {of(id="1", address="broker.example:9092"): 1}


def test_a_partition_without_a_commit_lags_by_minus_one_and_counts_in_no_sum() -> None:
    found = samples_of(named("kafka-exporter"))
    unknown = of(consumergroup="billing", topic="orders", partition="1")
    assert found["kafka_consumergroup_lag"][unknown] == -1
    assert found["kafka_consumergroup_current_offset"][unknown] == -1
    assert found["kafka_consumergroup_lag_sum"] == {of(consumergroup="billing", topic="orders"): 11}
    assert found["kafka_consumergroup_current_offset_sum"] == {of(consumergroup="billing", topic="orders"): 17}
    assert found["kafka_consumergroup_members"] == {of(consumergroup="billing"): 2}


def test_traffic_is_of_the_broker_without_a_label_and_of_each_topic_with_one() -> None:
    found = samples_of(named("jmx-exporter"))
    assert found["kafka_server_brokertopicmetrics_messagesin_total"] == {
        (): 3,
        of(topic="orders"): 10,
        of(topic="bills"): 7,
    }
    assert found["kafka_server_brokertopicmetrics_bytesin_total"][()] == 1000


def test_times_are_milliseconds_and_a_fetch_is_counted_by_both_of_its_names() -> None:
    found = samples_of(named("jmx-exporter"))
    assert found["kafka_network_requestmetrics_requests_total"] == {
        of(request="Produce"): 4,
        of(request="Fetch"): 2,
        of(request="FetchConsumer"): 2,
    }
    total = found["kafka_network_requestmetrics_totaltimems"]
    assert {dict(labels)["quantile"] for labels in total} == {"0.50", "0.75", "0.95", "0.98", "0.99", "0.999"}
    assert total[of(request="Produce", quantile="0.99")] == pytest.approx(6, rel=0.2)
    assert found["kafka_network_requestmetrics_totaltimems_count"][of(request="Produce")] == 4
    assert found["kafka_network_requestmetrics_totaltimems_sum"][of(request="Produce")] == 24
    # No fetch was answered in the last minute, so no quantile of it is known.
    assert not [labels for labels in total if dict(labels)["request"] == "Fetch"]


def test_the_remote_time_of_an_api_is_that_for_which_most_of_it_waited() -> None:
    waited = Histogram()
    waited.record(5 * MS)
    times = RequestTimes({RequestPhase.PURGATORY: waited.snapshot()}, waited.snapshot(), waited.snapshot())
    assert remote_times(times).sum_ns == 5 * MS


def test_groups_are_counted_by_the_names_of_kafka_4_3_and_of_4_4() -> None:
    """Those of old are of the classic protocol alone, in Kafka, too."""
    found = {name: series[()] for name, series in samples_of(named("jmx-exporter")).items() if () in series}
    groups = {name: count for name, count in found.items() if "group" in name and count}
    assert groups == {
        "kafka_coordinator_group_groupmetadatamanager_numgroups": 2,
        "kafka_coordinator_group_groupmetadatamanager_numgroupsempty": 2,
        "kafka_coordinator_group_groupmetadatamanager_numoffsets": 40,
        "kafka_server_group_coordinator_metrics_offset_count": 40,
        "kafka_server_group_coordinator_metrics_protocol_classic_group_count": 2,
        "kafka_server_group_coordinator_metrics_protocol_consumer_group_count": 3,
        "kafka_server_group_coordinator_metrics_state_empty_classic_group_count": 2,
        "kafka_server_group_coordinator_metrics_state_stable_consumer_group_count": 3,
    }


def test_types_follow_the_ends_of_names() -> None:
    for family in text_string_to_metric_families(render(named("kafka-exporter", "jmx-exporter")).decode()):
        if family.name.startswith("kafka_"):
            is_counter = any(sample.name.endswith("_total") for sample in family.samples)
            assert family.type == ("counter" if is_counter else family.type)
            assert family.type in {"counter", "gauge", "summary"}, family.name
            assert family.documentation, family.name


def test_the_page_names_every_metric_of_both_lists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    written = set(re.findall(r"`(kafka_\w+)", text))
    shown = {re.sub(r"_(count|sum)$", "", name) if "timems" in name else name for name in samples_of(named(*NAMES))}
    assert written == shown


async def test_the_names_are_chosen_live_and_agree_with_what_clients_did(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker) as client:
        view = view_of(broker)
        await client.create_topic("orders", 2)
        await client.produce("orders", b"one", b"two")
        assert b"kafka_brokers" not in (await view.node.metrics.prometheus_renderer())()
        result = await view.cluster.config.change({"metrics.names": "kafka-exporter,jmx-exporter"}, changed_by="a test")
        assert result.refusals == ()
        text = (await view.node.metrics.prometheus_renderer())().decode()
        for series in (
            'kafka_topic_partition_current_offset{partition="0",topic="orders"} 2.0',
            'kafka_topic_partitions{topic="orders"} 2.0',
            'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"} 2.0',
            'kafka_network_requestmetrics_requests_total{request="Produce"} 1.0',
            "kafka_server_replicamanager_leadercount 2.0",
        ):
            assert series in text, series
        refused = await view.cluster.config.change({"metrics.names": "statsd"}, changed_by="a test")
        assert [refusal.key for refusal in refused.refusals] == ["metrics.names"]


def test_lags_alone_do_not_show_the_series_of_each_partition_under_our_names() -> None:
    text = render(snapshot(names=("kafka-exporter",), lags=[lag(0, 5, 0.5)])).decode()
    assert "trio_broker_group_lag_records" not in text
