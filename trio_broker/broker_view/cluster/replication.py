"""The brokers and replicas of a cluster, for the admin app: as the metadata have them, and as the leaders see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from broker_admin.node_addresses import NODE_API
from broker_admin.views.cluster.replication import (
    BegunReassignment,
    BrokerState,
    BrokerSummary,
    ClusterReport,
    FetcherReport,
    FetchersReport,
    OutOfSyncReplica,
    PreferredElection,
    UnderReplicatedPartition,
    Unregistration,
)
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster.groups import REPORT_PAUSE_FACTOR
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.broker_view.cluster.replica_details import reason_out_of_sync
from trio_broker.broker_view.cluster.replication_changes import ReplicationChanges
from trio_broker.broker_view.cluster.topics import LiveTopicsView
from trio_broker.cluster.cluster_event import ClusterEvent
from trio_broker.cluster.cluster_events import ReplicaOfPartition
from trio_broker.cluster.metadata_image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from trio_broker.cluster.metadata_store import LeaderAndEpoch
from trio_broker.common.cluster_status import RegistrationState
from trio_broker.common.host_port import host_port
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.resource_config import topic_config
from trio_broker.handlers.support.services import BrokerServices

REPORT_SECONDS: Final = 1.0
"""How long a report on the cluster is good for: what has just failed is to be seen at once."""

MAX_UNDER_REPLICATED: Final = 200
"""Under-replicated partitions that are listed; with a broker away there may be ten thousand."""

MAX_ASKED_TOPICS: Final = 20
"""Topics whose leaders are asked how far replicas are behind; what a fenced broker explains needs no question."""

FETCHERS: Final = f"{NODE_API}/fetchers"

STATES: Final = {
    RegistrationState.ACTIVE: BrokerState.SERVING,
    RegistrationState.STOPPING: BrokerState.STOPPING,
    RegistrationState.FENCED: BrokerState.FENCED,
}

RATE_SECONDS: Final = 1.0
"""The shortest time that a rate of a fetcher is of."""


@attrs.define
class Tally:
    """The partitions of all topics, counted."""

    partitions: int = 0
    offline: int = 0
    imbalanced: int = 0
    electable: int = 0
    reassigning: int = 0
    leaders: Counter[int] = attrs.field(factory=Counter)
    preferred: Counter[int] = attrs.field(factory=Counter)
    replicas: Counter[int] = attrs.field(factory=Counter)
    in_sync: Counter[int] = attrs.field(factory=Counter)
    failed_directories: dict[int, set[bytes]] = attrs.field(factory=dict)
    under_replicated: list[tuple[TopicImage, int]] = attrs.field(factory=list)

    def add(self, image: MetadataImage, topic: TopicImage, index: int, state: PartitionImage) -> None:
        """Count one partition."""
        preferred = state.replicas[0]
        self.partitions += 1
        self.offline += state.leader == NO_LEADER
        self.imbalanced += state.leader != preferred
        self.electable += state.leader != preferred and preferred in state.isr
        self.reassigning += state.is_reassigned
        self.leaders[state.leader] += 1
        self.preferred[preferred] += 1
        self.replicas.update(state.replicas)
        self.in_sync.update(state.isr)
        if state.is_under_replicated:
            self.under_replicated.append((topic, index))
            for broker_id, directory in zip(state.replicas, state.directories, strict=False):
                if (broker := image.brokers.get(broker_id)) is not None and not broker.has_online(directory):
                    self.failed_directories.setdefault(broker_id, set()).add(directory)


@attrs.frozen
class FetchedBytes:
    """What a fetcher had fetched at a time, and how much a second up to then."""

    read_at: float
    fetched_bytes: int
    per_second: float = 0.0


class LiveReplicationView:
    """The part of the admin app's view that is about brokers and replicas."""

    def __init__(self, services: BrokerServices, peers: LivePeersView, topics: LiveTopicsView) -> None:
        self.services, self.peers, self.topics = services, peers, topics
        self.changes = ReplicationChanges(services, topics)
        self._report = CachedReport(
            self._collect, services.clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR
        )
        self._fetched: dict[tuple[int, int], FetchedBytes] = {}

    # ---- the cluster ----

    async def report(self) -> ClusterReport:
        return await self._report.get()

    def controller(self) -> LeaderAndEpoch:
        """Who decides, as far as is known."""
        store = self.services.metadata_store
        alone = LeaderAndEpoch(self.services.node.node_id, self.services.metadata_cache.image.epoch)
        return alone if store is None else store.controller()

    async def _collect(self) -> ClusterReport:
        image, tally = self.services.metadata_cache.image, Tally()
        async for topic in InTurns(image.topics.values()):
            async for index, state in InTurns(topic.partitions.items()):
                tally.add(image, topic, index, state)
        under_replicated = [
            self._under_replicated(image, topic, index) async for topic, index in InTurns(tally.under_replicated)
        ]
        under_replicated.sort(key=urgency)
        leader, store, leaving = self.controller(), self.services.metadata_store, image.leaving_brokers
        return ClusterReport(
            cluster_id=self.services.node.cluster_id,
            controller_id=None if leader.leader_id == NO_LEADER else leader.leader_id,
            controller_epoch=leader.epoch,
            metadata_offset=image.offset,
            metadata_problem="" if store is None else store.problem,
            partition_count=tally.partitions,
            offline_count=tally.offline,
            under_replicated_count=len(under_replicated),
            under_min_isr_count=sum(each.is_under_min_isr for each in under_replicated),
            imbalanced_count=tally.imbalanced,
            electable_count=tally.electable,
            reassigning_count=tally.reassigning,
            brokers=tuple(self._broker(each, tally, leader, leaving) for _, each in sorted(image.brokers.items())),
            under_replicated=tuple(await self._with_lags(under_replicated[:MAX_UNDER_REPLICATED])),
        )

    def _broker(
        self, broker: BrokerImage, tally: Tally, controller: LeaderAndEpoch, leaving: frozenset[int]
    ) -> BrokerSummary:
        clients, broker_id = self.services.broker_clients, broker.broker_id
        name = None if clients is None else clients.listener_name
        endpoint = next((each for each in broker.endpoints if name in (None, each.name)), None)
        return BrokerSummary(
            node_id=broker_id,
            address="" if endpoint is None else host_port(endpoint.host, endpoint.port),
            rack=broker.rack,
            state=STATES[broker.state],
            is_controller=broker_id == controller.leader_id,
            is_this_one=broker_id == self.services.node.node_id,
            leader_count=tally.leaders[broker_id],
            preferred_leader_count=tally.preferred[broker_id],
            replica_count=tally.replicas[broker_id],
            in_sync_count=tally.in_sync[broker_id],
            failed_directories=len(tally.failed_directories.get(broker_id, ())),
            is_leaving=broker_id in leaving,
            problem=self.peers.silent().get(broker_id, ""),
        )

    def _under_replicated(self, image: MetadataImage, topic: TopicImage, index: int) -> UnderReplicatedPartition:
        state = topic.partitions[index]
        wanted = topic_config(topic.configs, self.services.config, topic.name).min_insync_replicas
        least = min(wanted, len(state.replicas))
        events = self.services.cluster_events
        since = {} if events is None else events.out_of_sync_since_ms
        return UnderReplicatedPartition(
            topic=topic.name,
            partition=index,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=state.replicas,
            in_sync_replicas=state.isr,
            min_in_sync_replicas=least,
            is_under_min_isr=len(state.isr) < least,
            out_of_sync=tuple(
                OutOfSyncReplica(
                    broker_id=each,
                    reason=reason_out_of_sync(image, state, each, None),
                    since_ms=since.get(ReplicaOfPartition(TopicPartition(topic.name, index), each)),
                )
                for each in state.replicas
                if each not in state.isr
            ),
        )

    async def _with_lags(self, partitions: Sequence[UnderReplicatedPartition]) -> list[UnderReplicatedPartition]:
        """``partitions`` with what their leaders know of the replicas that are in contact."""
        brokers = self.services.metadata_cache.image.brokers
        asked = [each.topic for each in partitions if any(is_in_contact(brokers, one) for one in each.out_of_sync)]
        reasons: dict[ReplicaOfPartition, str] = {}
        for topic in list(dict.fromkeys(asked))[:MAX_ASKED_TOPICS]:
            for detail in await self.topics.partitions(topic) or ():
                for replica in detail.replica_details:
                    place = TopicPartition(topic, detail.partition)
                    reasons[ReplicaOfPartition(place, replica.broker_id)] = replica.reason
        return [with_reasons(each, reasons) for each in partitions]

    def events(self) -> Sequence[ClusterEvent]:
        events = self.services.cluster_events
        return () if events is None else events.latest_first()

    # ---- fetchers ----

    def own_fetchers(self) -> FetchersReport:
        fetchers, now = self.services.replicas.fetchers, self.services.clock.monotonic()
        if fetchers is None:
            return FetchersReport(failed_partitions=0, fetchers=())
        statistics = fetchers.statistics()
        fetched: dict[tuple[int, int], FetchedBytes] = {}
        reports = []
        for each in statistics.fetchers:
            key = (each.leader_id, each.fetcher_id)
            known = self._fetched.get(key, FetchedBytes(now, each.fetched_bytes))
            if (seconds := now - known.read_at) >= RATE_SECONDS:
                known = FetchedBytes(now, each.fetched_bytes, (each.fetched_bytes - known.fetched_bytes) / seconds)
            fetched[key] = known
            reports.append(
                FetcherReport(
                    broker_id=self.services.node.node_id,
                    leader_id=each.leader_id,
                    fetcher_id=each.fetcher_id,
                    partition_count=len(each.lags),
                    bytes_per_second=known.per_second,
                    fetches_per_second=each.fetch_rate,
                    lag_records=max(each.lags.values(), default=0),
                )
            )
        self._fetched = fetched
        return FetchersReport(failed_partitions=statistics.failed_partitions, fetchers=tuple(reports))

    async def fetchers(self) -> Sequence[FetcherReport]:
        others = await self.peers.fetch_each(FETCHERS, FetchersReport)
        reports = [self.own_fetchers(), *others.values.values()]
        found = [fetcher for each in reports for fetcher in each.fetchers]
        return sorted(found, key=lambda each: (each.broker_id, each.leader_id, each.fetcher_id))

    # ---- changes ----

    async def elect_preferred(self, partitions: Sequence[tuple[str, int]], *, dry_run: bool) -> PreferredElection:
        return await self.changes.elect_preferred(partitions, dry_run=dry_run)

    async def reassign(
        self, topic: str, targets: Sequence[tuple[int, tuple[int, ...] | None]], *, dry_run: bool
    ) -> BegunReassignment:
        return await self.changes.reassign(topic, targets, dry_run=dry_run)

    async def unregister(self, broker_id: int, *, dry_run: bool) -> Unregistration:
        return await self.changes.unregister(broker_id, dry_run=dry_run)


def urgency(partition: UnderReplicatedPartition) -> tuple[bool, bool, str, int]:
    """The sort key that puts first what nobody leads, then what takes no acks=all."""
    return partition.leader != NO_LEADER, not partition.is_under_min_isr, partition.topic, partition.partition


def is_in_contact(brokers: Mapping[int, BrokerImage], replica: OutOfSyncReplica) -> bool:
    broker = brokers.get(replica.broker_id)
    return broker is not None and broker.is_active


def with_reasons(
    partition: UnderReplicatedPartition, reasons: Mapping[ReplicaOfPartition, str]
) -> UnderReplicatedPartition:
    """``partition`` with the reasons that its leader gives."""
    place = TopicPartition(partition.topic, partition.partition)
    known = [
        attrs.evolve(each, reason=reasons.get(ReplicaOfPartition(place, each.broker_id)) or each.reason)
        for each in partition.out_of_sync
    ]
    return attrs.evolve(partition, out_of_sync=tuple(known))
