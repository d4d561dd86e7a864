"""The controller: the only writer of the cluster's metadata.

Every change has the same steps: decide (a function of the image) and append (one batch, durable), both under a lock, so
that a decision is still valid when it is written; then wait, without the lock, until the loader of this broker has
read the batch and all parts have followed: a topic that was created can be produced to.

So a part that is slow holds up its own request and no decision, and a request that is cancelled leaves nothing half
done: what was appended is published.

Source: Kafka's QuorumController, without the quorum.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import RemoveTopicRecord
from trio_broker.changes.change import Change
from trio_broker.cluster.alter_partition import Altered, PartitionAlteration, decide_alterations
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import (
    BrokerHeartbeatReply,
    decide_fencing,
    decide_heartbeat,
    decide_unregistration,
    require_broker_epoch,
)
from trio_broker.cluster.cluster_control import NodeRegistration, decide_broker_registration, decide_registration
from trio_broker.cluster.configuration_control import ConfigChange, decide_config_change
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.controller_client import ConfigOutcome
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.directory_assignments import DirectoryAssignment, decide_directory_assignments
from trio_broker.cluster.features import FeatureUpdate, decide_feature_updates
from trio_broker.cluster.internal_topics import decide_internal_growth
from trio_broker.cluster.leader_elections import ElectionType, decide_election, decide_leader_balance
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    TopicImage,
)
from trio_broker.cluster.metadata_loader import ExpectedChange, MetadataLoader
from trio_broker.cluster.metadata_log import SNAPSHOT_AFTER_RECORDS
from trio_broker.cluster.metadata_log_writer import MetadataLogWriter
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import Claim, ClaimLost, MetadataStore
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignments
from trio_broker.cluster.producer_ids import ProducerIdBlock, decide_producer_id_block
from trio_broker.cluster.quorum_info import QuorumInfo
from trio_broker.cluster.replication_control import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicTarget,
    decide_new_partitions,
    decide_new_topics,
    decide_topic_deletions,
)
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.free_lock import FreeLock
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import InTurns, list_in_turns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope
from trio_broker.runtime.runtime import Runtime

T = TypeVar("T")

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

SESSION_CHECKS = 8
"""How often within one timeout sessions are looked at: an eighth of it longer, and a silent broker is fenced."""

GROWTH_CHECK_MS = 5000
"""How long a broker that has joined waits for replicas of the broker's own topics; a look costs less than 1 ms."""

CLAIM_PAUSE_SECONDS = 1.0
"""Before a claim that the store refused is tried again."""

SNAPSHOT_CHECK_MS = 60_000
"""So far a snapshot stays behind the end of the log, that a broker which has not read the last changes finds them."""

log = logging.getLogger(__name__)


class LogDirReports(Protocol):
    """What brokers report of their log directories."""

    def reason_not_held(self, name: str) -> KafkaError | None:
        """Why a partition of the topic of this name has no log, None if all have one."""
        ...


class Controller:
    """Decides about topics, leaders, settings, features, nodes and producer ids. Implements ``ControllerClient``."""

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        config: BrokerConfig,
        runtime: Runtime,
        log_dirs: LogDirReports | None = None,
    ) -> None:
        """Without ``log_dirs`` no broker reports anything, as where decisions are only previewed."""
        self.config = config
        self.node_id = config.node.node_id
        self.loader = loader
        self.writer = MetadataLogWriter(store, loader, runtime.clock)
        self._settings = config
        self._settings_layers: Mapping[ConfigScope, Mapping[str, str]] | None = None
        self._store = store
        self._runtime = runtime
        self._log_dirs = log_dirs
        self._throttle = LogThrottle(log, runtime.clock)
        self._lock = FreeLock()
        self._activated = trio.Event()
        self._leading, self._is_retired = trio.CancelScope(), False
        self._refusal: OSError | None = None
        # What was published at the last look whether a snapshot is due, and where the newest one ends.
        self._former = (loader.image, loader.last_timestamp_ms)
        self._snapshot_end: int | None = None
        self._sessions = BrokerHeartbeatManager(config.node.broker_session_timeout_ms / 1000)

    async def wait_active(self) -> None:
        """Wait until this broker is the controller for the first time.

        Raises:
            OSError: the store has refused its claim.
        """
        await self._activated.wait()
        if self._refusal is not None:
            raise self._refusal

    async def lead(self) -> None:
        """Claim the metadata log, decide while the claim lasts, and claim it again, until cancelled or ``retire``."""
        # The LEADER_CHANGE of the present controller lies before what the loader reads.
        self.loader.leader_id = self._store.controller().leader_id
        # A scope of its own each time: what has failed begins again.
        with trio.CancelScope() as self._leading:
            while not self._is_retired:
                await self._lead_once()

    async def _lead_once(self) -> None:
        claim = await self._claim()
        try:
            await self.loader.wait_loaded(claim.end_offset)
            async with self._lock:
                self.writer.activate(claim)
                self.begin_sessions()
                # Another controller may have taken one meanwhile.
                self._snapshot_end = None
            self._activated.set()
            await self._fence_predecessor()
            await self._store.wait_lost(claim)
        finally:
            self.writer.deactivate()
            with trio.CancelScope(shield=True):
                await self._store.resign(claim)

    def retire(self) -> None:
        self._is_retired = True
        self._leading.cancel()

    async def _claim(self) -> Claim:
        while True:
            try:
                return await self._store.claim(self.node_id)
            except OSError as error:
                if not self._activated.is_set():
                    # A broker alone waits for it, and does not start.
                    self._refusal = error
                    self._activated.set()
                # Nobody decides meanwhile, if it is the only one left: a store that is full has room again one day.
                self._throttle.warning("claim", f"the metadata is not claimed: {error.strerror or error}")
            await trio.sleep(CLAIM_PAUSE_SECONDS)

    @property
    def image(self) -> MetadataImage:
        """The image that the next decision is made on."""
        return self.writer.image

    @property
    def settings(self) -> BrokerConfig:
        """The settings that decisions about topics and groups read: those that the image has for the cluster and for
        the controller's node, over the static ones of the node.

        So a decision depends on the log and the node's file alone, not on what is on trial or has failed to take
        effect. Kafka's ConfigurationControlManager resolves settings in the same order.
        """
        resources = {
            ConfigScope.CLUSTER: CLUSTER_DEFAULT,
            ConfigScope.BROKER: ConfigResource.of_broker(self.config.node.node_id),
        }
        layers = {scope: self.image.configs(resource) for scope, resource in resources.items()}
        if layers != self._settings_layers:
            self._settings_layers, self._settings = layers, self.config.with_dynamic(layers)
        return self._settings

    # --- requests ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[CreatedTopic | KafkaError]:
        outcomes, _ = await self._carry_out(
            lambda: decide_new_topics(self.image, self.settings, topics, self._runtime.random),
            validate_only=validate_only,
        )
        return outcomes if validate_only else await self._delete_unheld(outcomes)

    async def _delete_unheld(self, outcomes: list[CreatedTopic | KafkaError]) -> list[CreatedTopic | KafkaError]:
        """Delete again the topics of which a partition got no log, and return the error in place of each.

        Otherwise a client would take the topic for there, and each partition would answer nothing but errors.
        """
        reasons: dict[bytes, KafkaError] = {}
        async for outcome in InTurns(outcomes):
            if isinstance(outcome, CreatedTopic) and (reason := self._reason_not_held(outcome.name)) is not None:
                reasons[outcome.topic_id] = reason
        if not reasons:
            return outcomes
        # Another request may have deleted some of them meanwhile.
        removals = (
            ControllerResult(None, (RemoveTopicRecord(topic_id=topic_id),))
            for topic_id in reasons
            if topic_id in self.image.topics_by_id
        )
        try:
            await self._carry_out(lambda: list_in_turns(removals))
        except (OSError, KafkaError) as error:
            # They stay, and their partitions are opened when there is room.
            log.error("topics that lack a log cannot be deleted again: %s", error)
        return [
            KafkaError(f"topic {outcome.name!r} is not created: {reasons[outcome.topic_id]}", code=STORAGE_ERROR)
            if isinstance(outcome, CreatedTopic) and outcome.topic_id in reasons
            else outcome
            for outcome in outcomes
        ]

    def _reason_not_held(self, name: str) -> KafkaError | None:
        return None if self._log_dirs is None else self._log_dirs.reason_not_held(name)

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[NewPartitions | KafkaError]:
        outcomes, _ = await self._carry_out(
            lambda: decide_new_partitions(self.image, topics, self._runtime.random), validate_only=validate_only
        )
        return outcomes if validate_only else [self._unless_unheld(outcome) async for outcome in InTurns(outcomes)]

    def _unless_unheld(self, outcome: NewPartitions | KafkaError) -> NewPartitions | KafkaError:
        """Return the error for a topic of which a partition has no log. Partitions cannot be taken away again."""
        if isinstance(outcome, KafkaError) or (reason := self._reason_not_held(outcome.name)) is None:
            return outcome
        text = f"topic {outcome.name!r} has {outcome.count} partitions now, and not all have a log yet: {reason}"
        return KafkaError(text, code=STORAGE_ERROR)

    async def delete_topics(
        self, targets: Sequence[TopicTarget], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        outcomes, _ = await self._carry_out(
            lambda: decide_topic_deletions(self.image, self.settings, targets), validate_only=validate_only
        )
        return outcomes

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        decisions = (attempt(partial(self._decide_config, change)) for change in changes)
        results, recorded = await self._carry_out(lambda: list_in_turns(decisions), validate_only=validate_only)
        return ConfigOutcome(results, recorded)

    def _decide_config(self, change: ConfigChange) -> ControllerResult[ConfigResource]:
        # A broker checks its own settings against what is in effect: the rule about pool sizes is about those that run.
        is_of_broker = change.resource.type is ConfigResourceType.BROKER
        return decide_config_change(self.image, self.config if is_of_broker else self.settings, change)

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition]
    ) -> list[KafkaError | None]:
        decisions = (
            attempt(partial(decide_election, self.image, self.settings, election, partition))
            for partition in partitions
        )
        return (await self._carry_out(lambda: list_in_turns(decisions)))[0]

    async def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[KafkaError | None]:
        def decide() -> Steps[Iterable[ControllerResult[None] | KafkaError]]:
            allowed = allow_replication_factor_change
            return list_in_turns(
                decide_reassignments(self.image, self.settings, reassignments, allow_replication_factor_change=allowed)
            )

        return (await self._carry_out(decide))[0]

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        finalized = await self._decide(
            lambda: decide_feature_updates(self.image, self.node_id, updates), validate_only=validate_only
        )
        for name, level in finalized.items() if not validate_only else ():
            log.info("feature %s: finalized at level %d", name, level)

    async def register_node(self, node: NodeRegistration) -> int:
        # The registration is the first record of its batch, and gets just this offset.
        return await self._decide(
            lambda: decide_registration(self.image, self.settings, node, broker_epoch=self.writer.end_offset)
        )

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self._decide(lambda: decide_producer_id_block(self.image, self.node_id))

    async def allocate_producer_ids_to(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        def decide() -> ControllerResult[ProducerIdBlock]:
            require_broker_epoch(self.image, broker_id, broker_epoch)
            return decide_producer_id_block(self.image, broker_id)

        return await self._decide(decide)

    # --- brokers of several ---

    async def register_broker(self, node: NodeRegistration) -> int:
        now = self._runtime.clock.monotonic
        return await self._decide(
            lambda: decide_broker_registration(
                self.image,
                self.settings,
                node,
                has_session=self._sessions.has_valid_session(node.node_id, now()),
                broker_epoch=self.writer.end_offset,
            ),
            written=lambda broker_epoch: self._sessions.register(node.node_id, broker_epoch, now()),
        )

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        now = self._runtime.clock.monotonic
        self._sessions.note_contact(heartbeat.broker_id, heartbeat.broker_epoch, now())

        def note(reply: BrokerHeartbeatReply) -> None:
            if reply.should_shut_down:
                self._sessions.end(heartbeat.broker_id)
                return
            self._sessions.touch(heartbeat, now())
            if reply.in_controlled_shutdown:
                self._sessions.begin_controlled_shutdown(heartbeat.broker_id, self.image.offset)

        # What was not written is decided again at the next heartbeat. No broker waits with its session until this one
        # has followed.
        return await self._decide(
            lambda: decide_heartbeat(self.image, self.settings, self._sessions, heartbeat), written=note, follows=False
        )

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[Altered]:
        def decide() -> Steps[Iterable[ControllerResult[Altered] | KafkaError]]:
            return decide_alterations(self.image, self.settings, broker_id, broker_epoch, alterations)

        # The leader follows its own copy of the metadata, whatever this broker has followed.
        carried_out = await self._carry_out(decide, follows=False)
        return carried_out[0]

    async def assign_replicas(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[KafkaError | None]:
        def decide() -> Steps[Iterable[ControllerResult[None] | KafkaError]]:
            return list_in_turns(
                decide_directory_assignments(self.image, self.settings, broker_id, broker_epoch, assignments)
            )

        return (await self._carry_out(decide, follows=False))[0]

    async def unregister_broker(self, broker_id: int) -> None:
        await self._decide(
            lambda: decide_unregistration(self.image, self.settings, broker_id),
            written=lambda _: self._sessions.end(broker_id),
        )

    # --- what the controller of several brokers does by itself ---

    async def run(self) -> None:
        """Fence brokers that are silent, balance leaders, and let the broker's own topics grow, until cancelled. While
        this broker is not the controller nothing is done."""
        settings = self.config.node
        tasks = (
            ScheduledTask("sessions of brokers", self._session_check_ms, self.fence_stale_brokers),
            ScheduledTask(
                "balance of leaders",
                lambda: settings.leader_imbalance_check_interval_seconds * 1000,
                self.balance_leaders,
            ),
            ScheduledTask("replicas of internal topics", lambda: GROWTH_CHECK_MS, self.grow_internal_topics),
            ScheduledTask("snapshots of the metadata", lambda: SNAPSHOT_CHECK_MS, self.take_snapshot_if_due),
        )
        async with trio.open_nursery() as nursery:
            for task in tasks:
                start_scheduled(nursery, task)

    def _session_check_ms(self) -> int:
        return max(self.config.node.broker_session_timeout_ms // SESSION_CHECKS, 1)

    async def balance_leaders(self) -> None:
        """Give preferred replicas their leadership back, some at a time."""
        while self.writer.is_active and await self._decide(
            lambda: decide_leader_balance(self.image, self.settings), follows=False
        ):
            pass

    async def grow_internal_topics(self) -> None:
        """Give the broker's own topics the replicas that there are brokers for."""
        if self.writer.is_active:
            await self._decide(lambda: decide_internal_growth(self.image, self.settings), follows=False)

    async def _fence_predecessor(self) -> None:
        """Fence the broker that was the controller before: its claim has run out, which proves that it is silent.

        To wait for its session as well would double the time without leaders. A broker that lives is unfenced by its
        next heartbeat.
        """
        broker_id = self.loader.previous_leader_id
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id == self.node_id:
            return
        log.warning("broker %d is fenced: it was the controller, and has lost its claim", broker_id)
        try:
            await self._decide(
                lambda: decide_fencing(self.image, self.settings, broker_id),
                written=lambda _: self._sessions.end(broker_id),
                follows=False,
            )
        except (KafkaError, OSError) as error:
            log.warning("broker %d is fenced when its session ends: %s", broker_id, error)

    def begin_sessions(self) -> None:
        """Give every broker a whole session, at the beginning of the claim."""
        self._sessions.begin(self.image, self._runtime.clock.monotonic())

    async def fence_stale_brokers(self) -> None:
        """Fence the brokers whose sessions have ended, one after the other."""
        is_more = self.writer.is_active
        while is_more:
            is_more = await self._decide(self._fence_stalest, written=self._fenced, follows=False) is not None

    def _fence_stalest(self) -> Steps[ControllerResult[int | None]]:
        broker_id = self._sessions.stale_broker(self.image, self._runtime.clock.monotonic())
        if broker_id is None:
            return ControllerResult(None, ())
        log.warning("broker %d is fenced: its session has ended", broker_id)
        decision = yield from decide_fencing(self.image, self.settings, broker_id)
        return ControllerResult(broker_id, decision.records)

    def _fenced(self, broker_id: int | None) -> None:
        if broker_id is not None:
            self._sessions.end(broker_id)

    async def describe_quorum(self) -> QuorumInfo:
        leader, end_offset = self._store.controller(), await self._store.end_offset()
        broker = self.image.brokers.get(leader.leader_id)
        # The metadata log, or the copy of it, is in the first directory of each broker.
        directory_id = broker.log_dirs[0] if broker is not None and broker.log_dirs else NO_UUID
        return QuorumInfo(leader.leader_id, leader.epoch, end_offset, end_offset, directory_id)

    async def take_snapshot(self) -> None:
        """Replace what is in the log so far by a snapshot of the image that is published.

        Raises:
            OSError: the store refused. What was there is there still.
        """
        await self._take_snapshot(self.loader.image, self.loader.last_timestamp_ms)

    async def _take_snapshot(self, image: MetadataImage, last_timestamp_ms: int) -> None:
        claim, now_ms = self.writer.require_active(), self._runtime.clock.now_ms()
        make = partial(MetadataSnapshot.of_image, image, last_timestamp_ms=last_timestamp_ms, now_ms=now_ms)
        await self._store.take_snapshot(await self._runtime.workers.run(make), claim=claim)
        self._snapshot_end = image.offset + 1

    async def take_snapshot_if_due(self) -> None:
        """Take a snapshot of what was published at the last call, where the log has grown long since the last one."""
        image, last_timestamp_ms = self._former
        self._former = (self.loader.image, self.loader.last_timestamp_ms)
        if not self.writer.is_active:
            return
        try:
            if self._snapshot_end is None:
                snapshot = await self._store.snapshot()
                self._snapshot_end = 0 if snapshot is None else snapshot.id.end_offset
            if image.offset + 1 - self._snapshot_end >= SNAPSHOT_AFTER_RECORDS:
                await self._take_snapshot(image, last_timestamp_ms)
        except (OSError, ClaimLost, NotController) as error:
            log.warning("no snapshot of the metadata is taken: %s", error)

    # --- the steps of a change ---

    async def _decide(
        self,
        decide: Callable[[], ControllerResult[T] | Steps[ControllerResult[T]]],
        *,
        validate_only: bool = False,
        written: Callable[[T], object] | None = None,
        follows: bool = True,
    ) -> T:
        """Carry out one decision, which may be refused as a whole, and return its outcome.

        With that ``written`` is called behind the write, before the next decision. Without ``follows`` nobody waits
        until this broker follows.
        """
        async with self._lock:
            self.writer.require_active()
            decided = decide()
            decision = decided if isinstance(decided, ControllerResult) else await run_steps(decided)
            if not validate_only:
                await self._append([decision])
            if written is not None:
                written(decision.outcome)
            end_offset = self.writer.end_offset
        if follows:
            await self.loader.wait_loaded(end_offset)
        return decision.outcome

    async def _carry_out(
        self,
        decide: Callable[[], Steps[Iterable[ControllerResult[T] | KafkaError]]],
        *,
        validate_only: bool = False,
        follows: bool = True,
    ) -> tuple[list[T | KafkaError], Sequence[Change]]:
        """Decide and, unless only validating, append what was decided; with ``follows`` wait until this broker has
        followed. Returns each outcome or error, and what was recorded as changed.
        """
        async with self._lock:
            self.writer.require_active()
            # The image stands still meanwhile: only the holder of the lock appends.
            decisions = [decision async for decision in InTurns(await run_steps(decide()))]
            change = None if validate_only else await self._append(decisions)
            end_offset = self.writer.end_offset
        # Behind the lock: what a part of this broker takes to follow holds up no other decision. A refusal waits too:
        # a topic that is there already is one that this broker knows.
        if follows:
            await self.loader.wait_loaded(end_offset)
        return await outcomes_of(decisions), () if change is None else change.recorded

    async def _append(self, decisions: Sequence[ControllerResult[Any] | KafkaError]) -> ExpectedChange | None:
        """Append the records of all decisions as one; None if there are none."""
        records = await records_of(decisions)
        return await self.writer.append(records) if records else None


async def records_of(decisions: Sequence[ControllerResult[Any] | KafkaError]) -> list[Any]:
    """The records of all decisions, in their order."""
    by_decision = (item.records if isinstance(item, ControllerResult) else () for item in decisions)
    # In turns both ways: of many decisions none may have records, and one may have ten thousand.
    return [record async for some in InTurns(by_decision) async for record in InTurns(some)]


async def outcomes_of(decisions: Sequence[ControllerResult[T] | KafkaError]) -> list[T | KafkaError]:
    """The outcome of each decision, or its error."""
    return [each.outcome if isinstance(each, ControllerResult) else each async for each in InTurns(decisions)]
