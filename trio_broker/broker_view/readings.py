"""What a running broker measures of itself, for the admin app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker_admin.views.readings import PoolStatistics, QueueStatistics, ThreadStatistics, WorkerStatistics
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import BrokerReadings, History, HistorySample
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import HandlerSlotStatistics, ProcessorStatistics, SocketServerStatistics


class LiveReadingsView:
    """The part of the admin app's view that is about threads and the history of samples, which it keeps."""

    def __init__(self, services: BrokerServices, server: SocketServer) -> None:
        self.services = services
        self.server = server
        self.samples = History(self.readings(server.statistics()), services.clock.now_ms)
        server.subscribe(lambda statistics: self.samples.add(self.readings(statistics)))

    def readings(self, server: SocketServerStatistics) -> BrokerReadings:
        """``server`` and what else a sample is made of, at the end of an interval."""
        replicas, by_api = self.services.replicas, self.server.channel.metrics.by_api
        return BrokerReadings(
            server=server,
            flusher=replicas.flusher.statistics(),
            cleaner=replicas.log_maintenance.log_cleaner.statistics(),
            appended_records=replicas.appended_records,
            intervals={api_key: metrics.last_interval() for api_key, metrics in by_api.items()},
        )

    def history(self) -> Sequence[HistorySample]:
        return self.samples.samples

    def threads(self) -> ThreadStatistics:
        server, config = self.server.statistics(), self.services.config
        return ThreadStatistics(
            network=pool(
                config.socket_server.num_network_threads,
                server.network_idle_ratio,
                {each.processor_id: each for each in server.processors},
            ),
            io=pool(
                config.socket_server.num_io_threads,
                server.handler_idle_ratio,
                {each.slot: each for each in server.handlers.slots},
            ),
            queue=QueueStatistics(server.channel.recent_peak_depth, server.channel.capacity),
            parked_requests=server.handlers.parked,
            event_loop_busy_ratio=server.loop_busy_ratio,
        )


def pool(
    size: int, idle_ratio: float, workers: Mapping[int, ProcessorStatistics | HandlerSlotStatistics]
) -> PoolStatistics:
    """A pool of ``workers`` by their numbers."""
    named = tuple(WorkerStatistics(str(number), worker.idle_ratio) for number, worker in workers.items())
    return PoolStatistics(size, idle_ratio, named)
