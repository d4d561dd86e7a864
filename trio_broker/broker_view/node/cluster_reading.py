"""The cluster of a running broker as ``/metrics`` shows it: what it knows of all, and what it leads and follows."""

from __future__ import annotations

from broker_admin.views.cluster.replication import BrokerState, ClusterReport
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.snapshot import BrokerAddress, ClusterReading
from trio_broker.partition.replica_fetcher_manager import ReplicaFetcherManagerStatistics

NOTHING_FETCHED = ReplicaFetcherManagerStatistics(max_lag=0, min_fetch_rate=0.0, failed_partitions=0, fetchers=())
"""Of a broker alone."""


async def cluster_reading(services: BrokerServices, report: ClusterReport) -> ClusterReading:
    """``report``, and the counts of this broker."""
    led = [each for each in services.replicas.partitions() if each.state.is_leader]
    under_replicated = under_min_isr = at_min_isr = 0
    async for partition in InTurns(led):
        state = partition.writer.state
        in_sync = state.in_sync_replica_count
        under_replicated += in_sync < 1 + len(state.remote.replicas)
        under_min_isr += state.is_under_min_isr
        at_min_isr += in_sync == state.min_in_sync_replicas
    fetchers = services.replicas.fetchers
    fetched = NOTHING_FETCHED if fetchers is None else fetchers.statistics()
    events = services.cluster_events
    return ClusterReading(
        brokers=[BrokerAddress(each.node_id, each.address) for each in report.brokers],
        active_brokers=sum(each.state is BrokerState.SERVING for each in report.brokers),
        fenced_brokers=sum(each.state is BrokerState.FENCED for each in report.brokers),
        is_controller=report.controller_id == services.node.node_id,
        has_controller=report.controller_id is not None,
        metadata_is_reached=not report.metadata_problem,
        topics=len(services.metadata_cache.image.topics),
        partitions=report.partition_count,
        offline_partitions=report.offline_count,
        imbalanced_partitions=report.imbalanced_count,
        led_partitions=len(led),
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        at_min_isr=at_min_isr,
        isr_shrinks=0 if events is None else events.counts.isr_shrinks,
        isr_expands=0 if events is None else events.counts.isr_expands,
        elections=0 if events is None else events.counts.elections,
        unclean_elections=0 if events is None else events.counts.unclean_elections,
        fetcher_max_lag=fetched.max_lag,
        fetcher_min_rate=fetched.min_fetch_rate,
        fetcher_failed_partitions=fetched.failed_partitions,
        replicated_bytes=sum(each.fetched_bytes for each in fetched.fetchers),
    )
