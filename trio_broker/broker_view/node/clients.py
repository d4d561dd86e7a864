"""The clients of a running broker, for the admin app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from broker_admin.views.node.clients import NetworkLimits, ServedVersions
from kafka_wire.apis import api_name
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.advertised_versions import advertised_versions
from trio_broker.handlers.support.registry import advertised_apis
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.connection_statistics import connection_statistics, stage_of
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import ConnectionStage, ConnectionStatistics, DepartedConnection


class LiveClientsView:
    """The part of the admin app's view that is about clients and their connections."""

    def __init__(self, services: BrokerServices, server: SocketServer) -> None:
        self.services = services
        self.socket_server = server

    async def connections(self) -> Sequence[ConnectionStatistics]:
        clock = self.services.clock
        now, now_ms = clock.monotonic(), clock.now_ms()
        return [
            connection_statistics(connection, now=now, now_ms=now_ms)
            async for connection in InTurns(list(self.socket_server.connections()))
        ]

    def departed_connections(self) -> Sequence[DepartedConnection]:
        return self.socket_server.departed_clients.connections(self.services.clock.now_ms())

    async def connection_stages(self) -> Mapping[ConnectionStage, int]:
        return Counter([stage_of(connection) async for connection in InTurns(list(self.socket_server.connections()))])

    def network_limits(self) -> NetworkLimits:
        channel, handlers = self.socket_server.channel.statistics(), self.socket_server.handlers
        limit = self.socket_server.config.queued_max_request_bytes
        return NetworkLimits(
            request_bytes_held=self.socket_server.memory_pool.held,
            request_bytes_limit=limit if limit > 0 else None,
            queue_depth=channel.depth,
            queue_capacity=channel.capacity,
            handlers_busy=sum(slot.busy_time.depth > 0 for slot in handlers.slots),
            handlers=handlers.size,
        )

    def served_versions(self) -> Sequence[ServedVersions]:
        return [
            ServedVersions(api_name(each.api_key), each.min_version, each.max_version)
            for each in advertised_versions(advertised_apis(to_brokers=False))
        ]
