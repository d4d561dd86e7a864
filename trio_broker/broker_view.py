"""A running broker, as the admin app sees it: the app's ``BrokerView``, answered from the broker's own statistics.

The one place that knows both sides. It keeps what only the page needs, the history of samples and the journal of
changes, and turns the broker's values into the app's. Nothing here decides anything.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker_admin import view
from broker_admin.view import BrokerEvent, ConfigChange, ConfigChangeResult, ConfigRefusal
from kafka_wire.apis import ApiKey
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker import __version__
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.topic_names import is_internal_topic
from trio_broker.config import keys
from trio_broker.config.broker_config import ConfigScope, ValueChange
from trio_broker.config.entries import ConfigEntry
from trio_broker.config.errors import ConfigError
from trio_broker.group_view import GroupView
from trio_broker.metrics.history import History, Sample, Sampler, WorkerSample
from trio_broker.metrics.reading import CompactionReading, PartitionReading, Reading, WorkerReading
from trio_broker.replication.log_cleaner import LogCleanerStatistics
from trio_broker.replication.partition import Partition
from trio_broker.segment_view import SegmentView

if TYPE_CHECKING:
    from trio_broker.broker import Broker

log = logging.getLogger(__name__)

JOURNAL_CHANGES = 200
"""Changes kept for the page: some weeks of a busy operator, a few kilobytes."""


MAX_POOL_SIZE = 256
"""Threads that one change over HTTP may give a pool: a digit too many must not start thousands. Twice the present size
is always allowed, as it is to Kafka's clients."""


class LiveBrokerView:
    """Tells the admin app about one broker, and the broker what the admin app wants changed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.started_at_ms = broker.clock.now_ms()
        self._started_at = broker.clock.monotonic()
        # With each line the change that it is about, by which the lines of one request are found.
        self._journal: deque[tuple[ValueChange, ConfigChange]] = deque(maxlen=JOURNAL_CHANGES)
        self._sequence = itertools.count(1)
        self._listeners: list[Callable[[BrokerEvent], None]] = []
        self.samples = History(self.read())
        self.groups_view = GroupView(broker.services.groups, broker.clock.now_ms)
        node = broker.services.node
        self.segments_view = SegmentView(broker.services.replicas, node.cluster_id, node.node_id)
        self.samples.subscribe(self._sampled)
        broker.config.subscribe_all(self._config_changed)

    async def run(self) -> None:
        """Take a sample every second, until cancelled."""
        await Sampler(self.samples, self.read).run()

    # ---- what is asked ----

    def node(self) -> view.NodeInfo:
        node, clock = self.broker.services.node, self.broker.clock
        return view.NodeInfo(
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            version=__version__,
            durability=self.broker.config.node.log_durability,
            listeners=tuple(
                view.Listener(each.listener_name, each.security_protocol.name, each.host, each.port)
                for each in node.advertised.values()
            ),
            started_at_ms=self.started_at_ms,
            uptime_seconds=clock.monotonic() - self._started_at,
        )

    def readiness(self) -> view.Readiness:
        reason = self._reason_not_ready()
        return view.Readiness(ready=not reason, reason=reason)

    def _reason_not_ready(self) -> str:
        """Why clients are not served, or the empty string.

        While one of several data directories works, the partitions in it are served, so one failed disk is no reason.
        Without the metadata log nothing can be decided: no topic, no setting, no producer id.
        """
        if self.broker.is_stopping:
            return "the broker is stopping"
        services = self.broker.services
        if (failure := services.controller.failure) is not None:
            return f"the metadata log failed: {failure}"
        failures = [directory.failure for directory in services.replicas.log_manager.directories]
        if all(failures):
            return f"every data directory failed: {'; '.join(map(str, failures))}"
        return ""

    def config_entries(self) -> Sequence[view.ConfigEntry]:
        return [self._config_entry(entry) for entry in self.broker.config.entries()]

    def _config_entry(self, entry: ConfigEntry) -> view.ConfigEntry:
        return view.ConfigEntry(
            name=entry.name,
            value=entry.value,
            source=view.ConfigSource[entry.source.name],
            update_mode=view.UpdateMode(entry.update_mode.value),
            default=entry.default,
            type=entry.type.name.lower(),
            documentation=entry.documentation,
            synonyms=tuple(
                view.ConfigSynonym(each.name, each.value, view.ConfigSource[each.source.name])
                for each in entry.synonyms
            ),
            sensitive=entry.sensitive,
            allowed_range=self._allowed_range(entry.name),
        )

    def _allowed_range(self, name: str) -> view.AllowedRange | None:
        key = keys.BROKER_KEYS[name]
        if not key.thread_pool:
            return None
        return view.AllowedRange(1, max(MAX_POOL_SIZE, 2 * self.broker.config.value(key)))

    def threads(self) -> view.ThreadStatistics:
        sample, config = self.samples.latest_sample, self.broker.config
        return view.ThreadStatistics(
            network=pool(config.socket_server.num_network_threads, sample.network_idle_ratio, sample.network_workers),
            io=pool(config.socket_server.num_io_threads, sample.io_idle_ratio, sample.io_workers),
            queue=view.QueueStatistics(sample.queue_depth, sample.queue_capacity),
            parked_requests=sample.parked_requests,
            event_loop_busy_ratio=sample.event_loop_busy_ratio,
        )

    def topics(self) -> Sequence[view.TopicInfo]:
        services = self.broker.services
        held = services.replicas.topics
        return [
            view.TopicInfo(
                name=topic.name,
                topic_id=uuid_text(topic.topic_id),
                partitions=tuple(
                    self._partition_info(partition)
                    for _, partition in sorted(held[topic.name].partitions.items() if topic.name in held else ())
                ),
                configs=dict(topic.configs),
                internal=is_internal_topic(topic.name),
            )
            for topic in sorted(services.controller.image.topics.values(), key=lambda topic: topic.name)
        ]

    def _partition_info(self, partition: Partition) -> view.PartitionInfo:
        return view.PartitionInfo(
            partition=partition.topic_partition.partition,
            leader=self.broker.services.node.node_id,
            leader_epoch=partition.leader_epoch,
            log_start_offset=partition.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
            size_bytes=partition.log.size_bytes,
        )

    async def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> view.TopicManifest | None:
        return await self.segments_view.topic_manifest(topic, partitions)

    def history(self) -> Sequence[view.HistorySample]:
        return [history_sample(sample) for sample in self.samples.samples]

    def journal(self) -> Sequence[ConfigChange]:
        return [line for _, line in self._journal]

    async def groups(self) -> view.GroupSurvey:
        return await self.groups_view.groups()

    def group(self, group_id: str) -> view.GroupInfo | None:
        return self.groups_view.group(group_id)

    async def group_offsets(self, group_id: str) -> view.GroupOffsets | None:
        return await self.groups_view.group_offsets(group_id)

    def group_timeline(self, group_id: str) -> Sequence[view.RebalanceInfo] | None:
        return self.groups_view.group_timeline(group_id)

    async def prometheus_renderer(self) -> Callable[[], bytes]:
        # Imported here: prometheus_client is for those who are scraped.
        from trio_broker.metrics.prometheus import MetricsSnapshot, render

        per_partition = self.broker.config.node.metrics_per_partition
        groups = await self.groups_view.reading(with_partitions=per_partition)
        node = self.node()
        partitions = list(self.broker.services.replicas.partitions())
        snapshot = MetricsSnapshot(
            version=node.version,
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            durability=node.durability,
            uptime_seconds=node.uptime_seconds,
            topic_count=len(self.broker.services.controller.image.topics),
            partition_count=len(partitions),
            log_size_bytes=sum(partition.log.size_bytes for partition in partitions),
            reading=self.samples.latest_reading,
            sample=self.samples.latest_sample,
            groups=groups,
            partitions=tuple(map(partition_reading, partitions)) if per_partition else (),
            compaction=compaction_reading(self.broker.services.replicas.log_maintenance.log_cleaner.statistics()),
        )
        return partial(render, snapshot)

    # ---- what is told ----

    async def change_config(self, changes: Mapping[str, str | None], *, changed_by: str) -> ConfigChangeResult:
        """Set or reset settings of this broker: written to the metadata log, and in effect when this returns."""
        if refusals := self._refusals(changes):
            return ConfigChangeResult(refusals=refusals)
        controller = self.broker.services.controller
        wanted = ResourceAlterations(
            controller.broker_resource,
            tuple(alteration(name, value) for name, value in changes.items()),
            any_pool_size=True,
        )
        outcome = await controller.change_configs([wanted], changed_by=changed_by)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            return ConfigChangeResult(refusals=(ConfigRefusal(", ".join(changes), str(result)),))
        made = [line for change, line in self._journal if any(change is each for each in outcome.effective)]
        return ConfigChangeResult(changes=tuple(made))

    def _refusals(self, changes: Mapping[str, str | None]) -> tuple[ConfigRefusal, ...]:
        """What speaks against each key by itself, or else against all of them together."""
        config = self.broker.config
        refusals = []
        for name, value in changes.items():
            try:
                config.check_change(ConfigScope.BROKER, {name: value}, any_pool_size=True)
                self._check_pool_size(name, value)
            except ConfigError as error:
                refusals.append(ConfigRefusal(name, str(error)))
        if not refusals:
            try:
                config.check_change(ConfigScope.BROKER, changes, any_pool_size=True)
            except ConfigError as error:
                refusals.append(ConfigRefusal(error.key or ", ".join(changes), str(error)))
        return tuple(refusals)

    def _check_pool_size(self, name: str, value: str | None) -> None:
        """Refuse a pool of more threads than one change may give it; a reset goes back whatever that was.

        Raises:
            ConfigError: as said.
        """
        allowed = self._allowed_range(name)
        if value is not None and allowed is not None and keys.BROKER_KEYS[name].parse(value) > allowed.maximum:
            raise ConfigError(f"{name}={value} is refused: one change may set at most {allowed.maximum}", key=name)

    # ---- what happens ----

    def subscribe(self, listener: Callable[[BrokerEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _sampled(self, sample: Sample) -> None:
        self._tell(history_sample(sample))
        if (rebalanced := self.groups_view.pop_rebalanced()) is not None:
            self._tell(rebalanced)

    def _tell(self, event: BrokerEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def _config_changed(self, changes: tuple[ValueChange, ...], changed_by: str) -> None:
        for each in changes:
            change = ConfigChange(
                sequence=next(self._sequence),
                changed_at_ms=self.broker.clock.now_ms(),
                changed_by=changed_by,
                key=each.name,
                old=each.old,
                new=each.new,
            )
            self._journal.append((each, change))
            self._tell(change)

    # ---- what is read ----

    def read(self) -> Reading:
        """The broker at this moment."""
        server = self.broker.server.statistics()
        replicas = self.broker.services.replicas.statistics()
        return Reading(
            taken_at=server.measured_ns / 1e9,
            taken_at_ms=self.broker.clock.now_ms(),
            bytes_in=server.bytes_in,
            bytes_out=server.bytes_out,
            records_in=replicas.appended_records,
            requests=server.requests,
            connections=server.connections,
            connections_accepted=server.connections_accepted,
            network_workers=tuple(
                WorkerReading(f"{each.processor_id}", each.busy_ns / 1e9) for each in server.processors
            ),
            io_workers=tuple(WorkerReading(f"{each.slot}", each.busy_ns / 1e9) for each in server.handlers.slots),
            queue_depth=server.channel.recent_peak_depth,
            queue_capacity=server.channel.capacity,
            parked_requests=server.handlers.parked,
            event_loop_busy_seconds=server.loop_busy_ns / 1e9,
            requests_by_api={
                ApiKey(api_key).name.lower(): count for api_key, count in self.broker.dispatcher.requests.items()
            },
        )


def alteration(name: str, value: str | None) -> ConfigAlteration:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return ConfigAlteration(name, operation, value)


def compaction_reading(statistics: LogCleanerStatistics) -> CompactionReading:
    return CompactionReading(
        rounds=statistics.rounds,
        bytes_read=statistics.bytes_read,
        bytes_written=statistics.bytes_written,
        max_dirty_ratio=statistics.max_dirty_ratio,
        uncleanable_partitions=len(statistics.uncleanable),
    )


def partition_reading(partition: Partition) -> PartitionReading:
    return PartitionReading(
        topic=partition.topic_partition.topic,
        partition=partition.topic_partition.partition,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.log_end_offset,
        size_bytes=partition.log.size_bytes,
    )


def pool(size: int, idle_ratio: float, workers: Sequence[WorkerSample]) -> view.PoolStatistics:
    return view.PoolStatistics(
        size, idle_ratio, tuple(view.WorkerStatistics(worker.name, worker.idle_ratio) for worker in workers)
    )


def history_sample(sample: Sample) -> view.HistorySample:
    """A sample in the app's terms."""
    return view.HistorySample(
        sampled_at_ms=sample.taken_at_ms,
        bytes_in_per_second=sample.bytes_in_per_second,
        bytes_out_per_second=sample.bytes_out_per_second,
        requests_per_second=sample.requests_per_second,
        network_idle_ratio=sample.network_idle_ratio,
        network_idle_ratios=tuple(worker.idle_ratio for worker in sample.network_workers),
        io_idle_ratio=sample.io_idle_ratio,
        io_idle_ratios=tuple(worker.idle_ratio for worker in sample.io_workers),
        queue_depth=sample.queue_depth,
        queue_capacity=sample.queue_capacity,
        parked_requests=sample.parked_requests,
        connections=sample.connections,
        event_loop_busy_ratio=sample.event_loop_busy_ratio,
    )
