"""The files of a cluster's partitions: each is read once, from its leader or from the replica that is seen here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.compat.cluster_clients import WAIT_SECONDS, kill_leader, write_numbers
from tests.spark.log_files import read
from tests.waits import eventually
from trio_broker.client.address import parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.files.cluster_manifests import ClusterManifests
from trio_broker.spark.files.file_planning import FileTask, plan_files
from trio_broker.spark.files.manifest import NoSuchTopic
from trio_broker.spark.files.offline import OfflineLogs
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.testing.broker_thread import ADMIN_ON_ANY_PORT
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

PARTITIONS = 2
RECORDS = 20
RANGES = [OffsetRange(TopicPartition("orders", number), 0, RECORDS // PARTITIONS) for number in range(PARTITIONS)]
ENDS = {each.partition.partition: each.end_offset for each in RANGES}


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with cluster_in_thread(admin_listener=ADMIN_ON_ANY_PORT) as running:
        running.create_topic("orders", PARTITIONS, min_insync_replicas=2)
        write_numbers(running, "orders", range(RECORDS))
        yield running


def manifests(cluster: ClusterThread, *brokers: int, request_timeout_ms: int = 30_000) -> ClusterManifests:
    """Those of a cluster of which the directories of ``brokers`` are seen; of none given, as the brokers see them."""
    urls = tuple(url for node_id in cluster.broker_ids if (url := cluster.admin_url_of(node_id)))
    settings = KafkaSettings(parse_addresses(cluster.bootstrap_servers), request_timeout_ms=request_timeout_ms)
    return ClusterManifests(settings, urls, paths=tuple(directory(cluster, node_id) for node_id in brokers))


def directory(cluster: ClusterThread, node_id: int) -> str:
    return str(cluster.directory / f"broker-{node_id}")


def numbers_in(source: ClusterManifests) -> list[int]:
    return numbers_of(plan_files(RANGES, source, paths=source.paths))


def numbers_of(tasks: Sequence[FileTask]) -> list[int]:
    return sorted(int(value or b"") for task in tasks for _, value in read(task.transport, task.offsets))


def test_a_partition_is_read_once_from_its_leader_or_the_replica_that_is_seen(cluster: ClusterThread) -> None:
    leaders = {cluster.leader_of("orders", number) for number in range(PARTITIONS)}
    assert len(leaders) == PARTITIONS, "several brokers lead"
    everything = list(range(RECORDS))
    for brokers in ([], cluster.broker_ids, *([each] for each in cluster.broker_ids)):
        source = manifests(cluster, *brokers)
        logs = source.topic_manifest("orders", ENDS).logs.values()
        assert {log.node_id for log in logs} == (leaders if len(brokers) != 1 else set(brokers))
        assert numbers_in(source) == everything

    kill_leader(cluster, "orders")
    source = manifests(cluster)
    assert {log.node_id for log in source.topic_manifest("orders", ENDS).logs.values()} <= set(cluster.running)
    assert numbers_in(source) == everything

    with pytest.raises(NoSuchTopic, match="'nowhere'"):
        source.topic_manifest("nowhere", ENDS)
    with pytest.raises(NoSuchTopic, match="has no partition 5"):
        source.topic_manifest("orders", {5: 0})
    dead = manifests(cluster, *set(cluster.broker_ids) - set(cluster.running), request_timeout_ms=2000)
    with pytest.raises(SourceUnavailable, match=r"orders-\d: broker \d"):
        dead.topic_manifest("orders", ENDS).log(0)


def test_directories_of_several_stopped_brokers_are_read_as_one(cluster: ClusterThread) -> None:
    def is_known_to_all() -> bool:
        partitions = [each for node in cluster.running for each in cluster.broker(node).services.replicas.partitions()]
        return {each.high_watermark for each in partitions} == {RECORDS // PARTITIONS}

    eventually(is_known_to_all, WAIT_SECONDS)
    cluster.stop()
    paths = [directory(cluster, each) for each in cluster.broker_ids]
    tasks = plan_files(RANGES, OfflineLogs(paths), paths=paths)
    assert numbers_of(tasks) == list(range(RECORDS))
