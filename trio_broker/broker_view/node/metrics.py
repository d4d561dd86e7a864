"""What Prometheus scrapes of a running broker, for the admin app."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from trio_broker.broker_view.cluster.groups import LiveGroupsView
from trio_broker.broker_view.cluster.transactions import LiveTransactionsView
from trio_broker.broker_view.node.cluster_reading import cluster_reading
from trio_broker.broker_view.node.identity import LiveIdentityView
from trio_broker.broker_view.node.latency import LiveLatencyView
from trio_broker.broker_view.node.overview import LiveOverviewView
from trio_broker.broker_view.node.partition_readings import partition_readings
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.latency import api_label
from trio_broker.network.socket_server import SocketServer


@attrs.frozen
class LiveMetricsView:
    """The part of the admin app's view that is scraped; it reads several of the others."""

    services: BrokerServices
    server: SocketServer
    identity: LiveIdentityView
    groups: LiveGroupsView
    latency: LiveLatencyView
    transactions: LiveTransactionsView
    overview: LiveOverviewView

    async def prometheus_renderer(self, *, failed_admin_logins: int = 0) -> Callable[[], bytes]:
        # Imported here: prometheus_client is for those who are scraped.
        from trio_broker.metrics.prometheus import render
        from trio_broker.metrics.snapshot import AccessReading, DirectorySpace, MetricsSnapshot

        config = self.services.config.node
        names, per_partition = config.metrics_names, config.metrics_per_partition
        report = await self.groups.new_lag_report() if per_partition or "kafka-exporter" in names else None
        partitions = await partition_readings(self.services) if per_partition or names else ()
        recent_requests = {
            api_label(api_key): metrics.last_minute()
            async for api_key, metrics in InTurns(list(self.server.channel.metrics.by_api.items()))
            if "jmx-exporter" in names
        }
        transactions = await self.transactions.statistics()
        overview = await self.overview.readings()
        node, replicas = self.identity.description(), self.services.replicas
        snapshot = MetricsSnapshot(
            version=node.version,
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            durability=node.durability,
            uptime_seconds=node.uptime_seconds,
            log_size_bytes=sum(partition.log.size_bytes for partition in replicas.partitions()),
            server=self.server.statistics(),
            requests=self.latency.request_times(),
            replicas=replicas.statistics(),
            cleaner=replicas.log_maintenance.log_cleaner.statistics(),
            cpu=self.services.runtime.cpu_clock.times(),
            scrubber=replicas.log_maintenance.log_scrubber.statistics(),
            groups=self.services.groups.statistics(),
            cluster=await cluster_reading(self.services, overview.cluster),
            access=AccessReading(
                failed_admin_logins=failed_admin_logins,
                denied_requests=self.services.audit_log.denied,
                throttled_requests=self.services.quotas.throttled_requests,
                throttled_seconds=self.services.quotas.throttled_seconds,
            ),
            transactions=transactions,
            recovery=replicas.log_manager.load_report.progress,
            names=names,
            per_partition=per_partition,
            directories=[
                DirectorySpace(each.path, each.failure is not None, each.total_bytes, each.usable_bytes)
                for each in overview.directories
            ],
            unreadable_partitions=overview.unreadable_partitions,
            groups_falling_behind=len(overview.groups_falling_behind),
            restless_groups=len(overview.restless_groups),
            recent_requests=recent_requests,
            partitions=partitions,
            groups_with_lag=() if report is None else report.groups,
            lags=() if report is None else report.partitions,
        )
        return partial(render, snapshot)
