"""The controller: the only writer of the cluster's metadata.

Every change has the same steps: decide (a function of the image), append (one batch, durable), and hand the batch to
the publisher. A lock serializes the requests, so that a decision is still valid when it is written. The request is
answered when all parts of the broker have followed: a topic that was created can be produced to.

Once a batch is appended nothing interrupts its publication, not even cancellation: with an image behind its own log the
next decision would be wrong.

Source: Kafka's QuorumController, without the quorum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import FeatureLevelRecord, RemoveTopicRecord
from trio_broker.changes.change import Change
from trio_broker.cluster.alter_partition import Altered, PartitionAlteration, decide_alterations
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import (
    BrokerHeartbeatReply,
    decide_fencing,
    decide_heartbeat,
    decide_unregistration,
)
from trio_broker.cluster.cluster_control import NodeRegistration, decide_broker_registration, decide_registration
from trio_broker.cluster.configuration_control import ConfigChange, decide_config_change
from trio_broker.cluster.controller_client import ConfigOutcome
from trio_broker.cluster.controller_result import ControllerResult, attempt
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
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.cluster.metadata_store import Claim, MetadataStore, PreparedBatch
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignment
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
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope
from trio_broker.runtime.runtime import Runtime

T = TypeVar("T")

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

SESSION_CHECKS = 8
"""How often within one timeout sessions are looked at: an eighth of it longer, and a silent broker is fenced."""

GROWTH_CHECK_MS = 5000
"""How long a broker that has joined waits for replicas of the broker's own topics; a look costs less than 1 ms."""

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
        claim: Claim,
        publisher: MetadataPublisher,
        config: BrokerConfig,
        runtime: Runtime,
        log_dirs: LogDirReports | None = None,
    ) -> None:
        """Decide under ``claim``. Without ``log_dirs`` no broker reports anything, as where decisions are previewed."""
        self.publisher = publisher
        self.config = config
        self.node_id = config.node.node_id
        self._settings = config
        self._settings_layers: Mapping[ConfigScope, Mapping[str, str]] | None = None
        self._store = store
        self._claim = claim
        self._clock = runtime.clock
        self._random = runtime.random
        self._log_dirs = log_dirs
        self._lock = trio.Lock()
        self._sessions = BrokerHeartbeatManager(config.node.broker_session_timeout_ms / 1000)

    @property
    def image(self) -> MetadataImage:
        """The image that the next decision is made on."""
        return self.publisher.cache.image

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
        async with self._lock:
            decisions = await run_steps(decide_new_topics(self.image, self.settings, topics, self._random))
            outcomes = await self._carry_out(decisions, validate_only)
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
        removals = [ControllerResult(None, (RemoveTopicRecord(topic_id=topic_id),)) for topic_id in reasons]
        try:
            await self._commit(removals)
        except OSError as error:
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
        async with self._lock:
            decisions = await run_steps(decide_new_partitions(self.image, topics, self._random))
            outcomes = await self._carry_out(decisions, validate_only)
            if validate_only:
                return outcomes
            return [self._unless_unheld(outcome) async for outcome in InTurns(outcomes)]

    def _unless_unheld(self, outcome: NewPartitions | KafkaError) -> NewPartitions | KafkaError:
        """Return the error for a topic of which a partition has no log. Partitions cannot be taken away again."""
        if isinstance(outcome, KafkaError) or (reason := self._reason_not_held(outcome.name)) is None:
            return outcome
        text = f"topic {outcome.name!r} has {outcome.count} partitions now, and not all have a log yet: {reason}"
        return KafkaError(text, code=STORAGE_ERROR)

    async def delete_topics(
        self, targets: Sequence[TopicTarget], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        async with self._lock:
            decisions = await run_steps(decide_topic_deletions(self.image, self.settings, targets))
            return await self._carry_out(decisions, validate_only)

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        async with self._lock:
            decisions = [attempt(partial(self._decide_config, change)) async for change in InTurns(changes)]
            recorded = [] if validate_only else await self._commit(decisions)
            results = await outcomes_of(decisions)
            return ConfigOutcome(results, recorded)

    def _decide_config(self, change: ConfigChange) -> ControllerResult[ConfigResource]:
        # A broker checks its own settings against what is in effect: the rule about pool sizes is about those that run.
        is_of_broker = change.resource.type is ConfigResourceType.BROKER
        return decide_config_change(self.image, self.config if is_of_broker else self.settings, change)

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition]
    ) -> list[KafkaError | None]:
        async with self._lock:
            decisions = (
                attempt(partial(decide_election, self.image, self.settings, election, partition))
                for partition in partitions
            )
            return await self._carry_out(decisions, False)

    async def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[KafkaError | None]:
        async with self._lock:
            decide = partial(
                decide_reassignment,
                self.image,
                self.settings,
                allow_replication_factor_change=allow_replication_factor_change,
            )
            return await self._carry_out((attempt(partial(decide, wanted)) for wanted in reassignments), False)

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        async with self._lock:
            decision = decide_feature_updates(self.image, self.node_id, updates)
            await self._carry_out([decision], validate_only)
            if not validate_only:
                for record in decision.records:
                    if isinstance(record, FeatureLevelRecord):
                        log.info("feature %s: finalized at level %d", record.name, record.feature_level)

    async def register_node(self, node: NodeRegistration) -> int:
        async with self._lock:
            # Under the lock, so that the registration, the first record of its batch, gets just this offset.
            offset = self.image.offset + 1
            decision = decide_registration(self.image, self.settings, node, broker_epoch=offset)
            await self._carry_out([decision], False)
            return decision.outcome

    # --- brokers of several ---

    async def register_broker(self, node: NodeRegistration) -> int:
        async with self._lock:
            steps = decide_broker_registration(
                self.image,
                self.settings,
                node,
                has_session=self._sessions.has_valid_session(node.node_id, self._clock.monotonic()),
                broker_epoch=self.image.offset + 1,
            )
            decision = await run_steps(steps)
            await self._carry_out([decision], False)
            self._sessions.register(node.node_id, decision.outcome, self._clock.monotonic())
            return decision.outcome

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        self._sessions.note_contact(heartbeat.broker_id, heartbeat.broker_epoch, self._clock.monotonic())
        async with self._lock:
            decision = await run_steps(decide_heartbeat(self.image, self.settings, self._sessions, heartbeat))
            await self._carry_out([decision], False)
            reply = decision.outcome
            # Behind the write: what was not written is decided again at the next heartbeat.
            if reply.should_shut_down:
                self._sessions.end(heartbeat.broker_id)
                return reply
            self._sessions.touch(heartbeat, self._clock.monotonic())
            if reply.in_controlled_shutdown:
                self._sessions.begin_controlled_shutdown(heartbeat.broker_id, self.image.offset)
            return reply

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[Altered]:
        async with self._lock:
            steps = decide_alterations(self.image, self.settings, broker_id, broker_epoch, alterations)
            return await self._carry_out(await run_steps(steps), False)

    async def unregister_broker(self, broker_id: int) -> None:
        async with self._lock:
            decision = await run_steps(decide_unregistration(self.image, self.settings, broker_id))
            await self._carry_out([decision], False)
            self._sessions.end(broker_id)

    # --- what the controller of several brokers does by itself ---

    async def run(self) -> None:
        """Fence brokers that are silent, balance leaders, and let the broker's own topics grow, until cancelled."""
        self.begin_sessions()
        settings = self.config.node
        tasks = (
            ScheduledTask("sessions of brokers", self._session_check_ms, self.fence_stale_brokers),
            ScheduledTask(
                "balance of leaders",
                lambda: settings.leader_imbalance_check_interval_seconds * 1000,
                self.balance_leaders,
            ),
            ScheduledTask("replicas of internal topics", lambda: GROWTH_CHECK_MS, self.grow_internal_topics),
        )
        async with trio.open_nursery() as nursery:
            for task in tasks:
                start_scheduled(nursery, task)

    def _session_check_ms(self) -> int:
        return max(self.config.node.broker_session_timeout_ms // SESSION_CHECKS, 1)

    async def balance_leaders(self) -> None:
        """Give preferred replicas their leadership back, some at a time."""
        is_more = True
        while is_more:
            async with self._lock:
                decision = await run_steps(decide_leader_balance(self.image, self.settings))
                await self._carry_out([decision], False)
                is_more = decision.outcome

    async def grow_internal_topics(self) -> None:
        """Give the broker's own topics the replicas that there are brokers for."""
        async with self._lock:
            decision = await run_steps(decide_internal_growth(self.image, self.settings))
            await self._carry_out([decision], False)

    def begin_sessions(self) -> None:
        """Give every broker a whole session, at the beginning of the claim."""
        self._sessions.begin(self.image, self._clock.monotonic())

    async def fence_stale_brokers(self) -> None:
        """Fence the brokers whose sessions have ended, one after the other."""
        while True:
            async with self._lock:
                broker_id = self._sessions.stale_broker(self.image, self._clock.monotonic())
                if broker_id is None:
                    return
                log.warning("broker %d is fenced: its session has ended", broker_id)
                decision = await run_steps(decide_fencing(self.image, self.settings, broker_id))
                await self._carry_out([decision], False)
                self._sessions.end(broker_id)

    async def allocate_producer_ids(self, broker_id: int | None = None) -> ProducerIdBlock:
        async with self._lock:
            decision = decide_producer_id_block(self.image, self.node_id if broker_id is None else broker_id)
            await self._carry_out([decision], False)
            return decision.outcome

    async def describe_quorum(self) -> QuorumInfo:
        leader, end_offset = self._store.controller(), await self._store.end_offset()
        broker = self.image.brokers.get(leader.leader_id)
        # The metadata log, or the copy of it, is in the first directory of each broker.
        directory_id = broker.log_dirs[0] if broker is not None and broker.log_dirs else NO_UUID
        return QuorumInfo(leader.leader_id, leader.epoch, end_offset, end_offset, directory_id)

    # --- the steps of a change ---

    async def _carry_out(
        self, decisions: Iterable[ControllerResult[T] | KafkaError], validate_only: bool
    ) -> list[T | KafkaError]:
        """Commit the decisions in one batch unless only validating, and return each outcome or error."""
        # The image stands still meanwhile: only the holder of the lock has records published.
        decided = [decision async for decision in InTurns(decisions)]
        if not validate_only:
            await self._commit(decided)
        return await outcomes_of(decided)

    async def _commit(self, decisions: Sequence[ControllerResult[Any] | KafkaError]) -> list[Change]:
        """Append the records of all decisions as one batch and publish them; return what was recorded as changed."""
        by_decision = (item.records if isinstance(item, ControllerResult) else () for item in decisions)
        # In turns both ways: of many decisions none may have records, and one may have ten thousand.
        records = [record async for some in InTurns(by_decision) async for record in InTurns(some)]
        if not records:
            return []
        recorded: list[Change] = []
        # Shielded: a batch that is in the log must be in the image too, even if the request is cancelled.
        with trio.CancelScope(shield=True):
            batch = await PreparedBatch.of(records, self._clock.now_ms())
            offset = await self._store.append(batch, claim=self._claim, expected_end=self.image.offset + 1)
            recorded += await self.publisher.publish(records, offset=offset + len(records) - 1, epoch=self._claim.epoch)
        return recorded


async def outcomes_of(decisions: Sequence[ControllerResult[T] | KafkaError]) -> list[T | KafkaError]:
    """The outcome of each decision, or its error."""
    return [each.outcome if isinstance(each, ControllerResult) else each async for each in InTurns(decisions)]
