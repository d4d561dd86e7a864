"""FakeBroker: a broker of constants and curves, whose ``view`` keeps the promises of ``BrokerView`` and nothing more.

Time does not pass by itself: ``tick`` makes one second of it,
with readings that follow smooth curves, so that two runs give the same history. The pools take 1 to 256
threads, ``password`` is a sensitive key, ``node.id`` may not be changed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from broker_admin.view import BrokerView, ClusterView, NodeView
from broker_admin.views.cluster.config import ConfigChangeResult, ConfigRefusal, SettingChange
from broker_admin.views.cluster.groups import CoordinatedGroups, GroupsRebalanced
from broker_admin.views.cluster.messages import AppendedMessage, NewMessage, PartitionBatches, ReadablePartition
from broker_admin.views.cluster.replication import (
    BrokerState,
    BrokerSummary,
    ClusterReport,
    FetcherReport,
    FetchersReport,
)
from broker_admin.views.cluster.transactions import TransactionDetail, TransactionPartition
from broker_admin.views.node.alerts import AlertReport, WebhookReport
from broker_admin.views.node.identity import AdvertisedListener, NodeDescription, Readiness
from broker_admin.views.node.overview import OverviewReadings
from broker_admin.views.node.readings import (
    PoolStatistics,
    QueueStatistics,
    SeriesReport,
    ThreadStatistics,
    WorkerStatistics,
)
from broker_admin.views.node.segments import (
    MANIFEST_VERSION,
    AbortedTransactionInfo,
    LogManifest,
    PartitionManifest,
    PositionInfo,
    SegmentInfo,
    TopicManifest,
)
from broker_admin.views.node.storage import TopicSize
from tests.admin.fake_groups import FakeGroup, fake_groups
from tests.admin.fake_topics import PartitionInfo, TopicInfo
from tests.admin.fake_transactions import fake_transactions
from trio_broker.broker_view.node.events import LiveEventsView
from trio_broker.changes.change import Change
from trio_broker.cluster.cluster_event import ClusterEvent
from trio_broker.config.config_key import ConfigType, ConfigUnit, UpdateMode
from trio_broker.config.entries import AllowedRange, ConfigEntry, ConfigScope, ConfigSource, ConfigSynonym
from trio_broker.coordinator.reporting.snapshot import (
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    Rebalance,
)
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionReport
from trio_broker.metrics.bottleneck import Bottleneck, bottleneck, readings_of
from trio_broker.metrics.history import HistorySample
from trio_broker.metrics.latency import NO_LATENCY, LatencyReport
from trio_broker.network.statistics import FailedHandshake

START_MS = 1_780_000_000_000
"""When fake time begins."""

HISTORY_SAMPLES = 300
"""Five minutes, as the page shows."""

POOL_KEYS = ("num.network.threads", "num.io.threads")

DEFAULTS: Mapping[str, str] = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "queued.max.requests": "500",
    "log.retention.ms": "604800000",
    "auto.create.topics.enable": "true",
    "password": "built-in secret",
    "node.id": "1",
}

TYPES: Mapping[str, ConfigType] = {
    "log.retention.ms": ConfigType.LONG,
    "auto.create.topics.enable": ConfigType.BOOLEAN,
    "password": ConfigType.PASSWORD,
}


def fake_topics() -> tuple[TopicInfo, ...]:
    """Three topics of different shape."""
    shapes = (("clickstream", 6, 184_000, 31 << 20), ("orders", 3, 52_000, 18 << 20), ("audit-log", 1, 912, 220_000))
    return tuple(
        TopicInfo(
            name=name,
            topic_id=f"{name[:4]}AAAAAAAAAAAAAAAAAA",
            partitions=tuple(
                PartitionInfo(
                    partition=index,
                    leader=1,
                    leader_epoch=2,
                    log_start_offset=records // 10 * index,
                    last_stable_offset=records + 97 * index,
                    high_watermark=records + 97 * index,
                    log_end_offset=records + 97 * index,
                    size_bytes=size_bytes + 4096 * index,
                )
                for index in range(partitions)
            ),
            configs={"retention.ms": "86400000"} if name == "orders" else {},
        )
        for name, partitions, records, size_bytes in shapes
    )


def fake_partition_manifest(topic: str, info: PartitionInfo) -> PartitionManifest:
    """Two segments, the older one with a transaction that was aborted; the disk of every sixth partition has failed."""
    if info.partition % 6 == 5:
        return PartitionManifest(info.partition, "the disk failed", None)
    middle, half = (info.log_start_offset + info.high_watermark) // 2, info.size_bytes // 2
    log = LogManifest(
        log_directory="/var/lib/trio-broker",
        directory_name=f"{topic}-{info.partition}",
        leader_epoch=info.leader_epoch,
        log_start_offset=info.log_start_offset,
        last_stable_offset=info.last_stable_offset,
        high_watermark=info.high_watermark,
        segments=(
            SegmentInfo(info.log_start_offset, middle, half),
            SegmentInfo(middle, info.log_end_offset, info.size_bytes - half),
        ),
        active_positions=(PositionInfo(middle + 40, 4200),),
        aborted_transactions=(AbortedTransactionInfo(4000, info.log_start_offset + 3, info.log_start_offset + 9),),
    )
    return PartitionManifest(info.partition, None, log)


class NotFaked:
    """What is tested over a real broker: it can be handed on, and not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{type(self).__name__} has no {name}")


NOT_FAKED: Any = NotFaked()


ALONE = ClusterReport(
    cluster_id="fake",
    controller_id=1,
    controller_epoch=1,
    metadata_offset=7,
    metadata_problem="",
    partition_count=10,
    offline_count=0,
    under_replicated_count=0,
    under_min_isr_count=0,
    imbalanced_count=0,
    electable_count=0,
    reassigning_count=0,
    brokers=(
        BrokerSummary(
            node_id=1,
            address="127.0.0.1:9092",
            rack=None,
            state=BrokerState.SERVING,
            is_controller=True,
            is_this_one=True,
            leader_count=10,
            preferred_leader_count=10,
            replica_count=10,
            in_sync_count=10,
            failed_directories=0,
        ),
    ),
    under_replicated=(),
)
"""A broker alone, with one replica of each partition."""


class FakeReplication(NotFaked):
    """A broker alone, in which nothing has happened."""

    async def report(self) -> ClusterReport:
        await trio.lowlevel.checkpoint()
        return ALONE

    def events(self) -> Sequence[ClusterEvent]:
        return ()

    def own_fetchers(self) -> FetchersReport:
        return FetchersReport(failed_partitions=0, fetchers=())

    async def fetchers(self) -> Sequence[FetcherReport]:
        await trio.lowlevel.checkpoint()
        return ()


class NoPeers:
    """A broker alone."""

    def broker_ids(self) -> Sequence[int]:
        return ()

    def silent(self) -> Mapping[int, str]:
        return {}

    async def ask(self, broker_id: int, question: bytes) -> bytes:
        raise AssertionError(f"there is no broker {broker_id}")


class NoMessages:
    """Records that are not to be seen: ``admin.messages.enabled=false``. Tests of messages run over a real broker."""

    def contents_enabled(self) -> bool:
        return False

    async def readable_partitions(self, topic: str) -> Sequence[ReadablePartition] | None:
        return None

    def takes_records(self, topic: str) -> bool:
        return False

    async def offsets_at(self, topic: str, partitions: Sequence[int], timestamp_ms: int) -> Mapping[int, int]:
        return {}

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_bytes: int, max_wait_seconds: float = 0.0
    ) -> Sequence[PartitionBatches]:
        return []

    async def append(
        self, topic: str, messages: Sequence[NewMessage], *, dry_run: bool = False
    ) -> Sequence[AppendedMessage] | None:
        return None


@attrs.define
class FakeIdentity:
    broker: FakeBroker

    def description(self) -> NodeDescription:
        return NodeDescription(
            node_id=self.broker.node_id,
            cluster_id="Vt3kq0ZcQ3y8dW1nQeN5Aw",
            version="0.1.0",
            durability=self.broker.durability,
            listeners=(AdvertisedListener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),),
            started_at_ms=self.broker.started_at_ms,
            now_ms=self.broker.now_ms,
            uptime_seconds=(self.broker.now_ms - self.broker.started_at_ms) / 1000,
        )

    def readiness(self) -> Readiness:
        return Readiness(True) if self.broker.ready else Readiness(False, "loading logs")


@attrs.define
class FakeConfig:
    broker: FakeBroker

    def entries(self) -> Sequence[ConfigEntry]:
        return [self.broker.config_entry(name) for name in DEFAULTS]

    def units(self, names: Iterable[str]) -> Mapping[str, ConfigUnit | None]:
        return {name: entry.unit for name in names if (entry := self.entry(name)) is not None}

    def entry(self, name: str) -> ConfigEntry | None:
        return self.broker.config_entry(name) if name in DEFAULTS else None

    async def change(
        self,
        changes: Mapping[str, str | None],
        *,
        changed_by: str,
        level: ConfigScope = ConfigScope.BROKER,
        dry_run: bool = False,
        try_seconds: int | None = None,
        compare_seconds: int | None = None,
    ) -> ConfigChangeResult:
        await trio.lowlevel.checkpoint()
        reasons = {key: self.broker.reason_to_refuse(key, value) for key, value in changes.items()}
        refusals = tuple(ConfigRefusal(key, reason) for key, reason in reasons.items() if reason)
        if refusals:
            return ConfigChangeResult(refusals=refusals)
        made = tuple(self.broker.change(key, value, changed_by) for key, value in changes.items())
        for change in made:
            self.broker.events.publish(change)
        return ConfigChangeResult(changes=made)


class FakeChanges(NotFaked):
    def list(self) -> Sequence[Change]:
        return ()


class FakeConnectionDiagnosis(NotFaked):
    def failed_handshakes(self) -> Sequence[FailedHandshake]:
        return ()


class FakeAlerts:
    def report(self) -> AlertReport:
        return AlertReport(checked_at_ms=None, alerts=(), total=0, webhook=WebhookReport())


@attrs.define
class FakeOverview:
    """Topics by their sizes, without traffic; no disk, no group that lags and no error."""

    broker: FakeBroker

    async def readings(self) -> OverviewReadings:
        await trio.lowlevel.checkpoint()
        topics = [
            TopicSize(
                topic=topic.name,
                internal=topic.internal,
                partitions=len(topic.partitions),
                size_bytes=sum(partition.size_bytes for partition in topic.partitions),
                records_in_per_second=0.0,
                bytes_in_per_second=0.0,
                bytes_out_per_second=0.0,
            )
            for topic in self.broker.topic_list
        ]
        return OverviewReadings(
            cluster=ALONE,
            read_at_ms=self.broker.now_ms,
            has_records=bool(topics),
            topics=len(topics),
            partitions=sum(topic.partitions for topic in topics),
            unreadable_partitions=0,
            uncleanable_partitions=0,
            groups=len(self.broker.group_list),
            groups_falling_behind=(),
            produce_p99_ms=None,
            fetch_p99_ms=None,
            directories=(),
            lagging_groups=(),
            groups_abandoned=0,
            abandoned_groups=(),
            restless_groups=(),
            largest_topics=tuple(topics),
            busiest_topics=(),
            errors=(),
        )


@attrs.define
class FakeTopics(NotFaked):
    broker: FakeBroker

    def names(self) -> tuple[str, ...]:
        return tuple(topic.name for topic in self.broker.topic_list)

    def leader(self, name: str, partition: int) -> int | None:
        return None


@attrs.define
class FakeGroups:
    broker: FakeBroker

    async def report(self) -> GroupLagReport:
        await trio.lowlevel.checkpoint()
        lags = tuple(group.lag() for _, group in sorted(self.broker.group_list.items()))
        return GroupLagReport(collected_at_ms=self.broker.now_ms, is_complete=True, groups=lags)

    def coordinator(self, group_id: str) -> int | None:
        return None

    async def find_coordinator(self, group_id: str) -> int | None:
        await trio.lowlevel.checkpoint()
        return None

    async def coordinated(self) -> CoordinatedGroups:
        report = await self.report()
        return CoordinatedGroups(
            collected_at_ms=report.collected_at_ms, is_complete=True, groups=report.groups, topics=()
        )

    def get(self, group_id: str) -> GroupSnapshot | None:
        return self.broker.group_list[group_id].snapshot if group_id in self.broker.group_list else None

    async def offsets(self, group_id: str) -> GroupOffsets | None:
        await trio.lowlevel.checkpoint()
        return self.broker.group_list[group_id].offsets() if group_id in self.broker.group_list else None

    def lag_history(self, group_id: str) -> GroupLagHistory | None:
        """Nothing is kept of a fake group's lag."""
        return GroupLagHistory(interval_ms=5000, samples=(), rates=None) if group_id in self.broker.group_list else None

    def timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        return list(self.broker.group_list[group_id].rebalances) if group_id in self.broker.group_list else None


@attrs.define
class FakeTransactions(NotFaked):
    broker: FakeBroker

    async def report(self) -> TransactionReport:
        await trio.lowlevel.checkpoint()
        return self.broker.transactions

    async def coordinated(self) -> TransactionReport:
        return await self.report()

    def coordinator(self, transactional_id: str) -> int | None:
        return None

    async def get(self, transactional_id: str) -> TransactionDetail | None:
        await trio.lowlevel.checkpoint()
        for each in self.broker.transactions.transactions:
            if each.transactional_id == transactional_id:
                held_back = [
                    TransactionPartition(topic=held.topic, partition=held.partition, held_back=held)
                    for held in self.broker.transactions.held_back
                    if held.transactional_id == transactional_id
                ]
                return TransactionDetail(transaction=each, partitions=tuple(held_back))
        return None


@attrs.define
class FakeReadings(NotFaked):
    broker: FakeBroker

    def threads(self) -> ThreadStatistics:
        sample = self.broker.samples[-1] if self.broker.samples else self.broker.sample()
        return ThreadStatistics(
            network=pool_statistics("network-thread", sample.network_idle_ratio, sample.network_idle_ratios),
            io=pool_statistics("io-thread", sample.io_idle_ratio, sample.io_idle_ratios),
            queue=QueueStatistics(sample.queue_depth, sample.queue_capacity),
            delayed_requests=sample.delayed_requests,
            event_loop_busy_ratio=sample.event_loop_busy_ratio,
        )

    def history(self) -> Sequence[HistorySample]:
        return list(self.broker.samples)

    async def group_series(self, group_id: str, from_ms: int, to_ms: int, step_ms: int) -> SeriesReport | None:
        """Nothing is kept of a fake group's lag."""
        await trio.lowlevel.checkpoint()
        return SeriesReport(step_ms, (), {}) if group_id in self.broker.group_list else None


@attrs.define
class FakeMetrics:
    broker: FakeBroker

    async def prometheus_renderer(self, *, failed_admin_logins: int = 0) -> Callable[[], bytes]:
        await trio.lowlevel.checkpoint()
        return lambda: self.broker.metrics_text + b"trio_broker_failed_admin_logins_total %d.0\n" % failed_admin_logins


@attrs.define
class FakeLatency:
    broker: FakeBroker

    def report(self) -> LatencyReport:
        return LatencyReport(apis=(), sync_count=0, syncs=NO_LATENCY, sync_waits=NO_LATENCY)

    def bottleneck(self) -> Bottleneck:
        return bottleneck(readings_of(tuple(self.broker.samples)))


@attrs.define
class FakeSegments:
    broker: FakeBroker

    async def manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicManifest | None:
        await trio.lowlevel.checkpoint()
        for info in self.broker.topic_list:
            if info.name == topic:
                chosen = [each for each in info.partitions if not partitions or each.partition in partitions]
                manifests = tuple(fake_partition_manifest(topic, each) for each in chosen)
                node = self.broker.view.node.identity.description()
                return TopicManifest(MANIFEST_VERSION, node.cluster_id, node.node_id, topic, info.topic_id, manifests)
        return None


@attrs.define
class FakeBroker:
    """A broker made of constants, curves and a dictionary of dynamic configs."""

    node_id: int = 1
    now_ms: int = START_MS
    started_at_ms: int = START_MS
    durability: str = "fsync"
    ready: bool = True
    dynamic: dict[str, str] = attrs.field(factory=dict)
    journal: list[SettingChange] = attrs.field(factory=list)
    samples: deque[HistorySample] = attrs.field(factory=lambda: deque(maxlen=HISTORY_SAMPLES))
    events: LiveEventsView = attrs.field(factory=lambda: LiveEventsView(START_MS))
    metrics_text: bytes = b"trio_broker_requests_total 1.0\n"
    topic_list: tuple[TopicInfo, ...] = attrs.field(factory=fake_topics)
    transactions: TransactionReport = attrs.field(factory=lambda: fake_transactions(START_MS))
    group_list: dict[str, FakeGroup] = attrs.field(factory=lambda: fake_groups(START_MS))
    view: BrokerView = attrs.field(init=False)

    @view.default
    def _view(self) -> BrokerView:
        cluster = ClusterView(
            config=FakeConfig(self),
            changes=FakeChanges(),
            topics=FakeTopics(self),
            topic_changes=NOT_FAKED,
            messages=NoMessages(),
            groups=FakeGroups(self),
            group_changes=NOT_FAKED,
            transactions=FakeTransactions(self),
            replication=FakeReplication(),
            peers=NoPeers(),
            decommission=NOT_FAKED,
            access=NOT_FAKED,
            authorization=NOT_FAKED,
        )
        node = NodeView(
            identity=FakeIdentity(self),
            overview=FakeOverview(self),
            alerts=FakeAlerts(),
            loggers=NOT_FAKED,
            topic_segments=NOT_FAKED,
            readings=FakeReadings(self),
            metrics=FakeMetrics(self),
            latency=FakeLatency(self),
            segments=FakeSegments(self),
            clients=NOT_FAKED,
            connection_diagnosis=FakeConnectionDiagnosis(),
            storage=NOT_FAKED,
            tasks=NOT_FAKED,
            events=self.events,
        )
        return BrokerView(cluster, node)

    def config_entry(self, name: str) -> ConfigEntry:
        """The entry of one key, with the layers that have a value for it."""
        dynamic, default = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
        layers = [ConfigSynonym(name, self.dynamic[name], dynamic)] if name in self.dynamic else []
        layers.append(ConfigSynonym(name, DEFAULTS[name], default))
        value = layers[0].value or ""
        return ConfigEntry(
            name=name,
            value=value,
            source=layers[0].source,
            update_mode=UpdateMode.READ_ONLY if name == "node.id" else UpdateMode.CLUSTER_WIDE,
            default=DEFAULTS[name],
            type=TYPES.get(name, ConfigType.INT),
            read_only=name == "node.id",
            documentation=f"What {name} means.",
            synonyms=tuple(layers),
            sensitive=name == "password",
            allowed_range=AllowedRange(1, 256) if name in POOL_KEYS else None,
        )

    def reason_to_refuse(self, key: str, value: str | None) -> str | None:
        """Why ``key`` cannot become ``value``, or None if it can."""
        if key not in DEFAULTS:
            return "there is no such key"
        entry = self.config_entry(key)
        if entry.update_mode is UpdateMode.READ_ONLY:
            return "read-only: set it in the config file and start the broker again"
        if entry.allowed_range is None:
            return None
        text = DEFAULTS[key] if value is None else value
        if not text.isdecimal():
            return f"{text!r} is not a whole number"
        minimum, maximum = entry.allowed_range.minimum, entry.allowed_range.maximum
        if minimum <= int(text) <= maximum:
            return None
        return f"{text} is outside {minimum} to {maximum}"

    def change(self, key: str, value: str | None, changed_by: str) -> SettingChange:
        """Make one change that was checked before, and write it into the journal."""
        old = self.config_entry(key).value
        if value is None:
            self.dynamic.pop(key, None)
        else:
            self.dynamic[key] = value
        new = self.config_entry(key).value
        change = SettingChange(len(self.journal) + 1, self.now_ms, changed_by, key, old, new)
        self.journal.append(change)
        return change

    def rebalanced(self, *group_ids: str) -> None:
        """Publish that these groups have rebalanced."""
        self.events.publish(GroupsRebalanced(self.now_ms, group_ids))

    def tick(self, seconds: int = 1) -> None:
        """Let time pass, second by second."""
        for _ in range(seconds):
            self.now_ms += 1000
            sample = self.sample()
            self.samples.append(sample)
            self.events.publish(sample)

    def sample(self) -> HistorySample:
        """The readings of this second: a load that comes and goes, shared by however many workers there are."""
        second = (self.now_ms - START_MS) / 1000
        load = 0.62 + 0.2 * math.sin(second / 37) + 0.04 * math.sin(second / 5) + 0.1 * noise(second)
        network_threads = int(self.config_entry("num.network.threads").value or 1)
        io_threads = int(self.config_entry("num.io.threads").value or 1)
        network_idle = idle_ratios(load * 1.3 / network_threads, network_threads, second)
        io_idle = idle_ratios(load * 5.6 / io_threads, io_threads, second)
        return HistorySample(
            sampled_at_ms=self.now_ms,
            bytes_in_per_second=load * 180e6,
            bytes_out_per_second=(load * 0.8 + 0.3) * 260e6,
            requests_per_second=load * 4200,
            network_idle_ratio=sum(network_idle) / network_threads,
            network_idle_ratios=network_idle,
            io_idle_ratio=sum(io_idle) / io_threads,
            io_idle_ratios=io_idle,
            queue_depth=int(max(0.0, load * 5.6 / io_threads - 0.33 + 0.1 * noise(second + 0.5)) * 220),
            queue_capacity=int(self.config_entry("queued.max.requests").value or 1),
            delayed_requests=14,
            connections=42,
            event_loop_busy_ratio=min(1.0, load * 0.7),
            records_in_per_second=load * 52_000,
            errors_per_second=0.0,
            replication_wait_ratio=0.0,
            disk_wait_ratio=0.6,
            produce_p50_ms=load * 2.1,
            produce_p99_ms=load * 9.5,
            fetch_p50_ms=load * 0.6,
            fetch_p99_ms=load * 3.2,
            sync_threads=io_threads,
            sync_busy_ratio=min(1.0, load * 2 / io_threads),
            sync_threads_busy_ratio=min(1.0, load * 3 / io_threads),
            syncs_per_second=load * 1400,
            syncs_waiting=max(0.0, load * 3 - io_threads),
            sync_p50_ms=1.1,
            sync_p99_ms=4.2,
            sync_wait_p99_ms=load * 2,
            cold_send_busy_ratio=load * 0.1,
            cold_sends_per_second=load * 12,
            compaction_busy_ratio=0.0,
            compaction_bytes_per_second=0.0,
            event_loop_cpu_ratio=min(1.0, load * 0.65),
            process_cpu_ratio=load * 0.9,
            cpu_pressure_ratio=load * 0.1,
            unread_bytes=0,
            unread_wait_ms=0.0,
            backlog=None,
        )


def noise(second: float) -> float:
    """A number from -0.5 to 0.5 that looks random and is the same for the same second."""
    return math.sin(second * 12.9898) * 43758.5453 % 1 - 0.5


def idle_ratios(busy: float, workers: int, second: float) -> tuple[float, ...]:
    """How idle each of ``workers`` is when they are ``busy`` on average."""
    return tuple(
        min(
            1.0,
            max(
                0.0,
                1 - busy * (1 + 0.14 * math.sin(second / (19 + index) + 2 * index) + 0.08 * noise(second + index / 7)),
            ),
        )
        for index in range(workers)
    )


def pool_statistics(name: str, idle_ratio: float, ratios: Sequence[float]) -> PoolStatistics:
    workers = tuple(WorkerStatistics(f"{name}-{index}", ratio) for index, ratio in enumerate(ratios))
    return PoolStatistics(len(workers), idle_ratio, workers)
