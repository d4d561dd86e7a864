"""The controller: the only writer of the cluster's metadata.

Every change has the same steps (``write_operations``): decide, which is a function of the image; append, one batch,
durable; and wait until all parts of this broker have followed: a topic that was created can be produced to.

Source: Kafka's QuorumController, without the quorum.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import DelegationTokenRecord, RemoveTopicRecord
from trio_broker.cluster.acl_control import decide_acl_deletions, decide_new_acls
from trio_broker.cluster.alter_partition import Altered, PartitionAlteration, decide_alterations
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import (
    BrokerHeartbeatReply,
    decide_fencing,
    decide_heartbeat,
    decide_unregistration,
    require_broker_epoch,
)
from trio_broker.cluster.claim_offer import ClaimOffer
from trio_broker.cluster.client_quota_control import QuotaAlteration, decide_client_quotas
from trio_broker.cluster.cluster_control import NodeRegistration, decide_broker_registration, decide_registration
from trio_broker.cluster.configuration_control import ConfigChange, decide_config_change, validation
from trio_broker.cluster.controller_channel import NotController
from trio_broker.cluster.controller_client import ConfigOutcome
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.delegation_token_control import (
    NewToken,
    decide_expired_tokens,
    decide_new_token,
    decide_token_end,
    decide_token_renewal,
)
from trio_broker.cluster.directory_assignments import DirectoryAssignment, decide_directory_assignments
from trio_broker.cluster.features import FeatureUpdate, decide_feature_updates
from trio_broker.cluster.leader_elections import ElectionType, decide_elections
from trio_broker.cluster.metadata_image import (
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    TopicImage,
)
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_store import Claim, MetadataStore
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignments
from trio_broker.cluster.periodic_tasks import PeriodicTasks
from trio_broker.cluster.producer_ids import ProducerIdBlock, decide_producer_id_block
from trio_broker.cluster.quorum_info import QuorumInfo
from trio_broker.cluster.replication_control import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionChangeQuota,
    TopicTarget,
    decide_new_partitions,
    decide_new_topics,
    decide_topic_deletions,
    unbounded,
)
from trio_broker.cluster.scram_control import ScramChange, decide_scram_changes
from trio_broker.cluster.snapshot_generator import SnapshotGenerator
from trio_broker.cluster.write_operations import WriteOperations
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import InTurns, list_in_turns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.runtime import Runtime
from trio_broker.security.kafka_principal import KafkaPrincipal
from trio_broker.security.standard_acl import AclFilter, StandardAcl

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

CLAIM_PAUSE_SECONDS = 1.0
"""Before a claim that the store refused is tried again."""

log = logging.getLogger(__name__)


class LogDirReports(Protocol):
    """What brokers report of their log directories."""

    def reason_not_held(self, name: str) -> KafkaError | None:
        """Why a partition of the topic of this name has no log, None if all have one."""
        ...


class Controller:
    """Decides about topics, leaders, settings, features, nodes and producer ids. Implements ``ControllerApi``."""

    def __init__(
        self,
        store: MetadataStore,
        loader: MetadataLoader,
        config: BrokerConfig,
        runtime: Runtime,
        log_dirs: LogDirReports | None = None,
        incarnation_id: bytes = NO_UUID,
    ) -> None:
        """Without ``log_dirs`` no broker reports anything, as where decisions are only previewed. ``incarnation_id`` is
        that of this process."""
        self.config = config
        self.node_id = config.node.node_id
        self.loader = loader
        self.operations = WriteOperations(store, loader, config, runtime.clock)
        self.writer = self.operations.writer
        self.sessions = BrokerHeartbeatManager(config.node.broker_session_timeout_ms / 1000)
        self.snapshots = SnapshotGenerator(store, loader, self.writer, runtime)
        self._offer = ClaimOffer(self.node_id, self.sessions)
        self.periodic_tasks = PeriodicTasks(
            self.operations, self.sessions, self._offer, self.snapshots, config, runtime.clock
        )
        self._incarnation_id = incarnation_id
        self._store = store
        self._runtime = runtime
        self._log_dirs = log_dirs
        self._throttle = LogThrottle(log, runtime.clock)
        self._activated = trio.Event()
        self._leading, self._is_retired = trio.CancelScope(), False
        self._refusal: OSError | None = None

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
        if self.loader.leader_id == NO_LEADER:
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
            async with self.operations.lock:
                self.writer.activate(claim)
                holding = self._offer.holding(claim)
                if not self._offer.is_declined:
                    self.begin_sessions()
                self.snapshots.begin()
            self._activated.set()
            with holding:
                await self._fence_predecessor()
                await self._store.wait_lost(claim)
        finally:
            self.writer.deactivate()
            with trio.CancelScope(shield=True):
                await self._store.resign(claim)
        await self._offer.wait_taken()

    async def run_periodic_tasks(self) -> None:
        """Do what the controller does by itself; see ``ControllerApi``."""
        await self.periodic_tasks.run()

    def retire(self) -> None:
        """Lead no more, now or later; see ``ControllerApi``."""
        self._is_retired = True
        self._leading.cancel()

    async def _claim(self) -> Claim:
        while True:
            try:
                return await self._store.claim(self.node_id, self._incarnation_id)
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
        return self.operations.image

    @property
    def settings(self) -> BrokerConfig:
        """The settings that decisions about topics and groups read; see ``WriteOperations.settings``."""
        return self.operations.settings

    # --- requests ---

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False, apply_quota: PartitionChangeQuota = unbounded
    ) -> list[CreatedTopic | KafkaError]:
        outcomes, _ = await self.operations.carry_out(
            lambda: decide_new_topics(self.image, self.settings, topics, self._runtime.random, apply_quota),
            validate_only=validate_only,
            is_recorded=True,
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
            await self.operations.carry_out(lambda: list_in_turns(removals), is_recorded=True)
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
        self,
        topics: Sequence[NewPartitions],
        *,
        validate_only: bool = False,
        apply_quota: PartitionChangeQuota = unbounded,
    ) -> list[NewPartitions | KafkaError]:
        outcomes, _ = await self.operations.carry_out(
            lambda: decide_new_partitions(self.image, topics, self._runtime.random, apply_quota),
            validate_only=validate_only,
            is_recorded=True,
        )
        return outcomes if validate_only else [self._unless_unheld(outcome) async for outcome in InTurns(outcomes)]

    def _unless_unheld(self, outcome: NewPartitions | KafkaError) -> NewPartitions | KafkaError:
        """Return the error for a topic of which a partition has no log. Partitions cannot be taken away again."""
        if isinstance(outcome, KafkaError) or (reason := self._reason_not_held(outcome.name)) is None:
            return outcome
        text = f"topic {outcome.name!r} has {outcome.count} partitions now, and not all have a log yet: {reason}"
        return KafkaError(text, code=STORAGE_ERROR)

    async def delete_topics(
        self,
        targets: Sequence[TopicTarget],
        *,
        validate_only: bool = False,
        apply_quota: PartitionChangeQuota = unbounded,
    ) -> list[TopicImage | KafkaError]:
        outcomes, _ = await self.operations.carry_out(
            lambda: decide_topic_deletions(self.image, self.settings, targets, apply_quota),
            validate_only=validate_only,
            is_recorded=True,
        )
        return outcomes

    async def change_configs(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> ConfigOutcome:
        refusals = [await self._refusal_by_parts(change) async for change in InTurns(changes)]
        decisions = (
            refusal or attempt(partial(self._decide_config, change))
            for change, refusal in zip(changes, refusals, strict=True)
        )
        carried_out = await self.operations.carry_out(
            lambda: list_in_turns(decisions), validate_only=validate_only, is_recorded=True
        )
        return ConfigOutcome(*carried_out)

    async def _refusal_by_parts(self, change: ConfigChange) -> KafkaError | None:
        """Why a part of this broker could not follow a change of its settings, which takes reading and computing."""
        if (validate := validation(self.image, self.config, change)) is None:
            return None
        try:
            await self._runtime.workers.run(validate)
        except KafkaError as refusal:
            return refusal.with_traceback(None)
        return None

    def _decide_config(self, change: ConfigChange) -> ControllerResult[ConfigResource]:
        # A broker checks its own settings against what is in effect: the rule about pool sizes is about those that run.
        is_of_broker = change.resource.type is ConfigResourceType.BROKER
        return decide_config_change(self.image, self.config if is_of_broker else self.settings, change)

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition]
    ) -> list[KafkaError | None]:
        def decide() -> Steps[Iterable[ControllerResult[None] | KafkaError]]:
            return list_in_turns(decide_elections(self.image, self.settings, election, partitions))

        return (await self.operations.carry_out(decide))[0]

    async def reassign_partitions(
        self, reassignments: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> list[KafkaError | None]:
        def decide() -> Steps[Iterable[ControllerResult[None] | KafkaError]]:
            allowed = allow_replication_factor_change
            return list_in_turns(
                decide_reassignments(self.image, self.settings, reassignments, allow_replication_factor_change=allowed)
            )

        return (await self.operations.carry_out(decide))[0]

    async def create_acls(self, acls: Sequence[StandardAcl]) -> list[StandardAcl | KafkaError]:
        def decide() -> Steps[Iterable[ControllerResult[StandardAcl] | KafkaError]]:
            return decide_new_acls(self.image, acls, self._runtime.random)

        return (await self.operations.carry_out(decide, is_recorded=True))[0]

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[Sequence[StandardAcl] | KafkaError]:
        def decide() -> Steps[Iterable[ControllerResult[Sequence[StandardAcl]] | KafkaError]]:
            return decide_acl_deletions(self.image, filters)

        return (await self.operations.carry_out(decide, is_recorded=True))[0]

    async def alter_client_quotas(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[KafkaError | None]:
        outcomes, _ = await self.operations.carry_out(
            lambda: list_in_turns(decide_client_quotas(self.image, alterations)),
            validate_only=validate_only,
            is_recorded=True,
        )
        return outcomes

    async def update_features(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        finalized = await self.operations.decide(
            lambda: decide_feature_updates(self.image, self.node_id, updates), validate_only=validate_only
        )
        for name, level in finalized.items() if not validate_only else ():
            log.info("feature %s: finalized at level %d", name, level)

    async def register_node(self, node: NodeRegistration) -> int:
        """Register the start of a node that is the whole cluster; begin new leader epochs for its partitions. Returns
        the broker epoch."""
        # The registration is the first record of its batch, and gets just this offset.
        return await self.operations.decide(
            lambda: decide_registration(self.image, self.settings, node, broker_epoch=self.writer.end_offset)
        )

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        return await self.operations.decide(lambda: decide_producer_id_block(self.image, self.node_id))

    async def allocate_producer_ids_to(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        def decide() -> ControllerResult[ProducerIdBlock]:
            require_broker_epoch(self.image, broker_id, broker_epoch)
            return decide_producer_id_block(self.image, broker_id)

        return await self.operations.decide(decide)

    # --- brokers of several ---

    async def register_broker(self, node: NodeRegistration) -> int:
        now = self._runtime.clock.monotonic

        def decide() -> Steps[ControllerResult[int]]:
            existing = self.image.brokers.get(node.node_id)
            has_session = existing is not None and self.sessions.keeps_place(existing, node.log_dirs, now())
            return decide_broker_registration(
                self.image, self.settings, node, has_session=has_session, broker_epoch=self.writer.end_offset
            )

        return await self.operations.decide(
            decide,
            written=lambda broker_epoch: self.sessions.register(node.node_id, broker_epoch, now()),
        )

    async def heartbeat(self, heartbeat: BrokerHeartbeat) -> BrokerHeartbeatReply:
        now = self._runtime.clock.monotonic
        self.sessions.note_contact(heartbeat.broker_id, heartbeat.broker_epoch, now())

        def note(reply: BrokerHeartbeatReply) -> None:
            if reply.should_shut_down:
                self.sessions.end(heartbeat.broker_id)
                return
            self.sessions.touch(heartbeat, now())
            if reply.in_controlled_shutdown:
                self.sessions.begin_controlled_shutdown(heartbeat.broker_id, self.image.offset)

        # What was not written is decided again at the next heartbeat. No broker waits with its session until this one
        # has followed.
        return await self.operations.decide(
            lambda: decide_heartbeat(self.image, self.settings, self.sessions, heartbeat), written=note, follows=False
        )

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[Altered]:
        def decide() -> Steps[Iterable[ControllerResult[Altered] | KafkaError]]:
            return decide_alterations(self.image, self.settings, broker_id, broker_epoch, alterations)

        # The leader follows its own copy of the metadata, whatever this broker has followed.
        carried_out = await self.operations.carry_out(decide, follows=False)
        return carried_out[0]

    async def assign_replicas(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[DirectoryAssignment]
    ) -> list[KafkaError | None]:
        def decide() -> Steps[Iterable[ControllerResult[None] | KafkaError]]:
            return list_in_turns(
                decide_directory_assignments(self.image, self.settings, broker_id, broker_epoch, assignments)
            )

        return (await self.operations.carry_out(decide, follows=False))[0]

    async def alter_scram_credentials(self, changes: Sequence[ScramChange]) -> Mapping[str, KafkaError | None]:
        return await self.operations.decide(lambda: decide_scram_changes(self.image, changes), is_recorded=True)

    async def create_delegation_token(self, wanted: NewToken) -> DelegationTokenRecord:
        now_ms, random = self._runtime.clock.now_ms(), self._runtime.random
        return await self.operations.decide(
            lambda: decide_new_token(self.image, self.config.sasl, wanted, now_ms, random)
        )

    async def renew_delegation_token(self, requester: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        now_ms = self._runtime.clock.now_ms()
        return await self.operations.decide(
            lambda: decide_token_renewal(self.image, self.config.sasl, requester, secret, period_ms, now_ms)
        )

    async def expire_delegation_token(self, requester: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        now_ms = self._runtime.clock.now_ms()
        return await self.operations.decide(
            lambda: decide_token_end(self.image, self.config.sasl, requester, secret, period_ms, now_ms)
        )

    async def remove_expired_delegation_tokens(self) -> None:
        if self.operations.is_active:
            with contextlib.suppress(NotController):
                now_ms = self._runtime.clock.now_ms()
                removed = await self.operations.decide(lambda: decide_expired_tokens(self.image, now_ms), follows=False)
                if removed:
                    log.info("delegation tokens that were over are removed: %d", removed)

    async def unregister_broker(self, broker_id: int) -> None:
        await self.operations.decide(
            lambda: decide_unregistration(self.image, self.settings, broker_id),
            written=lambda _: self.sessions.end(broker_id),
        )

    async def _fence_predecessor(self) -> None:
        """Fence the broker that was the controller before: its claim has run out, which proves that it is silent.

        To wait for its session as well would double the time without leaders. A broker that lives is unfenced by its
        next heartbeat. An earlier life of this broker is another one: while its session lasts this one cannot register,
        and before that it hears none of the others, whose sessions would end with it.
        """
        broker_id = self.loader.previous_leader_id
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.incarnation_id == self._incarnation_id:
            return
        log.warning("broker %d is fenced: it was the controller, and has lost its claim", broker_id)
        try:
            await self.operations.decide(
                lambda: decide_fencing(self.image, self.settings, broker_id),
                written=lambda _: self.sessions.end(broker_id),
                follows=False,
            )
        except (KafkaError, OSError) as error:
            log.warning("broker %d is fenced when its session ends: %s", broker_id, error)

    def begin_sessions(self) -> None:
        """Give every broker a whole session, at the beginning of the claim."""
        self.sessions.begin(self.image, self._runtime.clock.monotonic())

    async def describe_quorum(self) -> QuorumInfo:
        leader, end_offset = self._store.controller(), await self._store.end_offset()
        broker = self.image.brokers.get(leader.leader_id)
        # The metadata log, or the copy of it, is in the first directory of each broker.
        directory_id = broker.log_dirs[0] if broker is not None and broker.log_dirs else NO_UUID
        observers = {each: end for each, end in self.sessions.read_ends().items() if each != leader.leader_id}
        return QuorumInfo(leader.leader_id, leader.epoch, end_offset, end_offset, directory_id, observers)
