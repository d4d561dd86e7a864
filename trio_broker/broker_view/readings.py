"""What a running broker measures of itself, for the admin app."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path

from broker_admin.views.readings import (
    PoolStatistics,
    QueueStatistics,
    SeriesReport,
    ThreadStatistics,
    WorkerStatistics,
)
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import SERIES, BrokerReadings, History, HistorySample
from trio_broker.metrics.minute_file import FILE_NAME, MinuteFile
from trio_broker.metrics.series import Row, SeriesHistory
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import HandlerSlotStatistics, ProcessorStatistics, SocketServerStatistics


class LiveReadingsView:
    """The part of the admin app's view that is about threads and the history of samples, which it keeps."""

    def __init__(self, services: BrokerServices, server: SocketServer) -> None:
        self.services = services
        self.server = server
        self.samples = History(self.readings(server.statistics()), services.clock.now_ms)
        directory = Path(services.config.node.log_dirs[0])
        self.series_history = SeriesHistory(MinuteFile(directory / FILE_NAME, SERIES))
        self.samples.subscribe(self.series_history.add)
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

    async def series(self, names: Sequence[str], from_ms: int, to_ms: int, step_ms: int) -> SeriesReport:
        return series_report(names, step_ms, await self.series_history.rows(from_ms, to_ms, step_ms, names))

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


def series_report(names: Sequence[str], step_ms: int, rows: Sequence[Row]) -> SeriesReport:
    """The series ``names``, which are the columns of ``rows``."""
    columns = {name: tuple(measured(row.values[place]) for row in rows) for place, name in enumerate(names)}
    return SeriesReport(step_ms, tuple(row.at_ms for row in rows), columns)


def measured(value: float) -> float | None:
    return None if isnan(value) else value


def pool(
    size: int, idle_ratio: float, workers: Mapping[int, ProcessorStatistics | HandlerSlotStatistics]
) -> PoolStatistics:
    """A pool of ``workers`` by their numbers."""
    named = tuple(WorkerStatistics(str(number), worker.idle_ratio) for number, worker in workers.items())
    return PoolStatistics(size, idle_ratio, named)
