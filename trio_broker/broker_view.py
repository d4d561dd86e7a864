"""A running broker, as the admin app sees it: the app's ``BrokerView``, answered from the broker's own statistics.

The one place that knows both sides. It keeps what only the page needs, the history of samples and the journal of
changes. Nothing here decides anything but what one change over HTTP may do to a pool.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import attrs

from broker_admin import view
from broker_admin.view import BrokerEvent, ConfigChangeResult, ConfigRefusal, JournalEntry
from kafka_wire.apis import ApiKey
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker import __version__
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.topic_names import is_internal_topic
from trio_broker.config import keys
from trio_broker.config.broker_config import ConfigScope, ValueChange
from trio_broker.config.entries import AllowedRange, ConfigEntry
from trio_broker.config.errors import ConfigError
from trio_broker.coordinator.reporting.snapshot import GroupLagReport, GroupOffsets, GroupSnapshot, Rebalance
from trio_broker.group_view import GroupView
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.history import History, HistorySample
from trio_broker.metrics.topics import PartitionInfo, TopicInfo
from trio_broker.network.socket_server import SocketServer
from trio_broker.network.statistics import HandlerSlotStatistics, ProcessorStatistics
from trio_broker.replication.partition import Partition
from trio_broker.segment_view import SegmentView

JOURNAL_CHANGES = 200
"""Changes kept for the page: some weeks of a busy operator, a few kilobytes."""

MAX_POOL_SIZE = 256
"""Threads that one change over HTTP may give a pool: a digit too many must not start thousands. Twice the present size
is always allowed, as it is to Kafka's clients."""


class LiveBrokerView:
    """One broker for the admin app. ``requests`` counts the requests answered, by API key."""

    def __init__(
        self,
        services: BrokerServices,
        server: SocketServer,
        requests: Mapping[int, int],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.services = services
        self.server = server
        self._requests = requests
        self._is_stopping = is_stopping
        self.started_at_ms = services.clock.now_ms()
        self._started_at = services.clock.monotonic()
        # With each entry the change that it is about, by which the entries of one request are found.
        self._journal: deque[tuple[ValueChange, JournalEntry]] = deque(maxlen=JOURNAL_CHANGES)
        self._sequence = itertools.count(1)
        self._listeners: list[Callable[[BrokerEvent], None]] = []
        self._history = History(server.statistics(), services.clock.now_ms)
        self._history.subscribe(self._sampled)
        server.subscribe(self._history.add)
        self.groups_view = GroupView(services.groups, services.clock.now_ms)
        self.segments_view = SegmentView(services.replicas, services.node.cluster_id, services.node.node_id)
        services.config.subscribe_all(self._config_changed)

    # ---- what is asked ----

    def node(self) -> view.NodeDescription:
        node = self.services.node
        return view.NodeDescription(
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            version=__version__,
            durability=self.services.config.node.log_durability,
            listeners=tuple(
                view.AdvertisedListener(each.listener_name, each.security_protocol.name, each.host, each.port)
                for each in node.advertised.values()
            ),
            started_at_ms=self.started_at_ms,
            uptime_seconds=self.services.clock.monotonic() - self._started_at,
        )

    def readiness(self) -> view.Readiness:
        reason = self._reason_not_ready()
        return view.Readiness(ready=not reason, reason=reason)

    def _reason_not_ready(self) -> str:
        """Why clients are not served, or the empty string.

        While one of several data directories works, the partitions in it are served, so one failed disk is no reason.
        Without the metadata log nothing can be decided: no topic, no setting, no producer id.
        """
        if self._is_stopping():
            return "the broker is stopping"
        if (failure := self.services.controller.failure) is not None:
            return f"the metadata log failed: {failure}"
        failures = [directory.failure for directory in self.services.replicas.log_manager.directories]
        if all(failures):
            return f"every data directory failed: {'; '.join(map(str, failures))}"
        return ""

    def config_entries(self) -> Sequence[ConfigEntry]:
        return [
            attrs.evolve(entry, allowed_range=self._allowed_range(entry.name))
            for entry in self.services.config.entries()
        ]

    def _allowed_range(self, name: str) -> AllowedRange | None:
        key = keys.BROKER_KEYS[name]
        if not key.thread_pool:
            return None
        return AllowedRange(1, max(MAX_POOL_SIZE, 2 * self.services.config.value(key)))

    def threads(self) -> view.ThreadStatistics:
        server, config = self.server.statistics(), self.services.config
        return view.ThreadStatistics(
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
            queue=view.QueueStatistics(server.channel.recent_peak_depth, server.channel.capacity),
            parked_requests=server.handlers.parked,
            event_loop_busy_ratio=server.loop_busy_ratio,
        )

    def topics(self) -> Sequence[TopicInfo]:
        held = self.services.replicas.topics
        return [
            TopicInfo(
                name=topic.name,
                topic_id=uuid_text(topic.topic_id),
                partitions=tuple(
                    self._partition_info(partition)
                    for _, partition in sorted(held[topic.name].partitions.items() if topic.name in held else ())
                ),
                configs=dict(topic.configs),
                internal=is_internal_topic(topic.name),
            )
            for topic in sorted(self.services.controller.image.topics.values(), key=lambda topic: topic.name)
        ]

    def _partition_info(self, partition: Partition) -> PartitionInfo:
        return PartitionInfo(
            partition=partition.topic_partition.partition,
            leader=self.services.node.node_id,
            leader_epoch=partition.leader_epoch,
            log_start_offset=partition.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
            size_bytes=partition.log.size_bytes,
        )

    async def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> view.TopicManifest | None:
        return await self.segments_view.topic_manifest(topic, partitions)

    def history(self) -> Sequence[HistorySample]:
        return self._history.samples

    def journal(self) -> Sequence[JournalEntry]:
        return [entry for _, entry in self._journal]

    async def groups(self) -> GroupLagReport:
        return await self.groups_view.groups()

    def group(self, group_id: str) -> GroupSnapshot | None:
        return self.groups_view.group(group_id)

    async def group_offsets(self, group_id: str) -> GroupOffsets | None:
        return await self.groups_view.group_offsets(group_id)

    def group_timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        return self.groups_view.group_timeline(group_id)

    async def prometheus_renderer(self) -> Callable[[], bytes]:
        # Imported here: prometheus_client is for those who are scraped.
        from trio_broker.metrics.prometheus import MetricsSnapshot, render

        per_partition = self.services.config.node.metrics_per_partition
        lags = await self.groups_view.partition_lags() if per_partition else ()
        node, replicas = self.node(), self.services.replicas
        snapshot = MetricsSnapshot(
            version=node.version,
            node_id=node.node_id,
            cluster_id=node.cluster_id,
            durability=node.durability,
            uptime_seconds=node.uptime_seconds,
            log_size_bytes=sum(partition.log.size_bytes for partition in replicas.partitions()),
            server=self.server.statistics(),
            requests={ApiKey(api_key).name.lower(): count for api_key, count in self._requests.items()},
            replicas=replicas.statistics(),
            cleaner=replicas.log_maintenance.log_cleaner.statistics(),
            groups=self.services.groups.statistics(),
            topics=self.topics() if per_partition else (),
            lags=lags,
        )
        return partial(render, snapshot)

    # ---- what is changed ----

    async def change_config(self, changes: Mapping[str, str | None], *, changed_by: str) -> ConfigChangeResult:
        """Set or reset settings of this broker: written to the metadata log, and in effect when this returns."""
        if refusals := self._refusals(changes):
            return ConfigChangeResult(refusals=tuple(refusals))
        controller = self.services.controller
        wanted = ResourceAlterations(
            controller.broker_resource,
            tuple(alteration(name, value) for name, value in changes.items()),
            any_pool_size=True,
        )
        outcome = await controller.change_configs([wanted], changed_by=changed_by)
        [result] = outcome.results
        if isinstance(result, KafkaError):
            at_fault = result.key if isinstance(result, ConfigError) else None
            return ConfigChangeResult(refusals=(ConfigRefusal(at_fault or ", ".join(changes), str(result)),))
        made = [entry for change, entry in self._journal if any(change is each for each in outcome.effective)]
        return ConfigChangeResult(changes=tuple(made))

    def _refusals(self, changes: Mapping[str, str | None]) -> Sequence[ConfigRefusal]:
        """What speaks against each key by itself. What speaks against all of them together is for the controller."""
        refusals = []
        for name, value in changes.items():
            try:
                self.services.config.check_value(ConfigScope.BROKER, name, value)
                self._check_pool_size(name, value)
            except ConfigError as error:
                refusals.append(ConfigRefusal(name, str(error)))
        return refusals

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

    def _sampled(self, sample: HistorySample) -> None:
        self._publish(sample)
        if (rebalanced := self.groups_view.pop_rebalanced()) is not None:
            self._publish(rebalanced)

    def _publish(self, event: BrokerEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    def _config_changed(self, changes: tuple[ValueChange, ...], changed_by: str) -> None:
        for each in changes:
            entry = JournalEntry(
                sequence=next(self._sequence),
                changed_at_ms=self.services.clock.now_ms(),
                changed_by=changed_by,
                key=each.name,
                old=each.old,
                new=each.new,
            )
            self._journal.append((each, entry))
            self._publish(entry)


def alteration(name: str, value: str | None) -> ConfigAlteration:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    return ConfigAlteration(name, operation, value)


def pool(
    size: int, idle_ratio: float, workers: Mapping[int, ProcessorStatistics | HandlerSlotStatistics]
) -> view.PoolStatistics:
    """A pool of ``workers`` by their numbers."""
    named = tuple(view.WorkerStatistics(str(number), worker.idle_ratio) for number, worker in workers.items())
    return view.PoolStatistics(size, idle_ratio, named)
