"""What a running broker measures of itself, for the admin app."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import PurePath

from broker_admin.views.node.readings import (
    PoolStatistics,
    QueueStatistics,
    SeriesReport,
    ThreadStatistics,
    WorkerStatistics,
)
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker.broker_view.node.awaited_followers import awaited_followers
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import SERIES, BrokerReadings, History, HistorySample
from trio_broker.metrics.minute_file import FILE_NAME, MinuteFile
from trio_broker.metrics.named_minute_file import NamedMinuteFile
from trio_broker.metrics.series import (
    GROUP_SCALES,
    GROUP_SERIES,
    TOPIC_SCALES,
    TOPIC_SERIES,
    HistoryWriter,
    NamedSeriesHistory,
    Row,
    SeriesHistory,
    number,
)
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import HandlerSlotStatistics, ProcessorStatistics, SocketServerStatistics


class LiveReadingsView:
    """The part of the admin app's view that is about threads and the history of samples, which it keeps."""

    def __init__(self, services: BrokerServices, server: SocketServer) -> None:
        self.services = services
        self.server = server
        self.samples = History(self.readings(server.statistics()), services.clock.now_ms)
        disk, directory = services.runtime.disk, PurePath(services.config.node.log_dirs[0])
        self.history_writer = HistoryWriter(services.runtime.workers)
        self.series_history = SeriesHistory(MinuteFile(disk, directory / FILE_NAME, SERIES), self.history_writer)
        self.topic_weeks = NamedSeriesHistory(
            NamedMinuteFile(disk, directory / "history-topics.dat", TOPIC_SCALES),
            self._topic_means,
            self.history_writer,
        )
        self.group_weeks = NamedSeriesHistory(
            NamedMinuteFile(disk, directory / "history-groups.dat", GROUP_SCALES),
            services.groups.lag_peaks,
            self.history_writer,
        )
        self.samples.subscribe(self.series_history.add)
        self.samples.subscribe(self._note_minute)
        server.subscribe(lambda statistics: self.samples.add(self.readings(statistics)))

    def readings(self, server: SocketServerStatistics) -> BrokerReadings:
        """``server`` and what else a sample is made of, at the end of an interval."""
        replicas, by_api = self.services.replicas, self.server.channel.metrics.by_api
        return BrokerReadings(
            server=server,
            flusher=replicas.flusher.statistics(),
            cleaner=replicas.log_maintenance.log_cleaner.statistics(),
            cpu=self.services.runtime.cpu_clock.times(),
            appended_records=replicas.appends.appended_records,
            awaited_followers=awaited_followers(() if replicas.fetchers is None else replicas.partitions()),
            intervals={api_key: metrics.last_interval() for api_key, metrics in by_api.items()},
        )

    def history(self) -> Sequence[HistorySample]:
        return self.samples.samples

    async def series(self, names: Sequence[str], from_ms: int, to_ms: int, step_ms: int) -> SeriesReport:
        return series_report(names, step_ms, await self.series_history.rows(from_ms, to_ms, step_ms, names))

    def _note_minute(self, sample: HistorySample) -> None:
        self.topic_weeks.tick(sample.sampled_at_ms)
        self.group_weeks.tick(sample.sampled_at_ms)

    def _topic_means(self, from_ms: int, to_ms: int) -> dict[str, tuple[float, ...]]:
        """The mean rates of a minute by topic id, in the order of ``TOPIC_SCALES``."""
        means = self.services.replicas.topic_stats.means(from_ms, to_ms)
        return {
            uuid_text(topic_id): (rates.records_in, rates.bytes_in, rates.bytes_out)
            for topic_id, rates in means.items()
        }

    async def topic_series(self, name: str, from_ms: int, to_ms: int, step_ms: int) -> SeriesReport | None:
        topic = self.services.metadata_cache.image.topics.get(name)
        if topic is None:
            return None
        points = self.services.replicas.topic_stats.history(topic.topic_id)
        kept = [
            Row(
                point.at_ms,
                array("f", (rates.records_in, rates.bytes_in, rates.bytes_out, rates.records_out)),
            )
            for point in points
            for rates in (point.rates,)
        ]
        rows = await self.topic_weeks.rows(uuid_text(topic.topic_id), kept, from_ms, to_ms, step_ms, TOPIC_SERIES)
        return series_report(TOPIC_SERIES, step_ms, rows)

    async def group_series(self, group_id: str, from_ms: int, to_ms: int, step_ms: int) -> SeriesReport | None:
        try:
            samples = self.services.groups.lag_history(group_id).samples
        except KafkaError:
            return None
        kept = [
            Row(each.at_ms, array("f", map(number, (each.lag_records, each.lag_seconds, each.consumed_per_second))))
            for each in samples
        ]
        rows = await self.group_weeks.rows(group_id, kept, from_ms, to_ms, step_ms, GROUP_SERIES)
        return series_report(GROUP_SERIES, step_ms, rows)

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
            delayed_requests=server.handlers.delayed,
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
