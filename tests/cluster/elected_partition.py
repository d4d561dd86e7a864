"""A partition of several brokers without a network: logs as lists, and whatever happens to them.

The controller's decisions are the product's; what brokers do about them is modelled by the rules of Kafka's
replication: a follower has the leader's log up to where it has fetched, the high watermark is what the whole ISR has
and moves only with enough replicas in sync, and a follower is asked for in the ISR once it has reached the high
watermark and the beginning of the leader's epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from random import Random
from typing import Any

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import FeatureLevelRecord
from tests.fakes.clusters import TOPIC_ID, after, cluster_image, partition_of
from tests.fakes.images import broker_record, image_after
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState, decide_alterations
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.broker_liveness import decide_fencing, decide_heartbeat
from trio_broker.cluster.cluster_control import NodeRegistration, decide_broker_registration
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigOperation,
    ResourceAlterations,
    decide_config_change,
)
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION, own_features
from trio_broker.cluster.leader_elections import ElectionType, decide_election, decide_leader_balance
from trio_broker.cluster.metadata_image import (
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    PartitionImage,
)
from trio_broker.cluster.partition_change_builder import RECOVERING
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignment
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint

BROKERS = (1, 2, 3, 4)

T_0 = TopicPartition("t", 0)


def common_prefix(*logs: Sequence[int]) -> list[int]:
    same = takewhile(lambda row: len(set(row)) == 1, zip(*logs, strict=False))
    return [row[0] for row in same]


@attrs.define(eq=False)
class ElectedPartition:
    """``step`` lets something happen. Raises AssertionError where a promise does not hold."""

    random: Random
    config: BrokerConfig
    min_isr: int
    image: MetadataImage = attrs.field(init=False)
    logs: dict[int, list[int]] = attrs.field(factory=lambda: {each: [] for each in BROKERS})
    running: set[int] = attrs.field(factory=lambda: set(BROKERS))
    clean: set[int] = attrs.field(factory=set)
    committed: list[int] = attrs.field(factory=list)
    epoch_start: int = 0
    next_record: int = 0
    losses: int = 0
    history: list[str] = attrs.field(factory=list)

    @classmethod
    def of_seed(cls, seed: int) -> ElectedPartition:
        random = Random(seed)
        min_isr = random.choice([1, 2, 2, 3])
        unclean = random.choice(["false", "false", "true"])
        settings = {"node.id": "1", "min.insync.replicas": str(min_isr), "unclean.leader.election.enable": unclean}
        made = cls(random, BrokerConfig(settings), min_isr)
        brokers = [broker_record(each, broker_epoch=10 * each, features=[]) for each in BROKERS]
        image = image_after(cluster_image([], [{"replicas": (1, 2, 3)}], elr=False), *brokers)
        made.image = image_after(image, FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1))
        return made

    @property
    def partition(self) -> PartitionImage:
        return partition_of(self.image)

    @property
    def is_led(self) -> bool:
        return self.partition.leader in self.running

    # --- what happens ---

    async def step(self) -> None:
        name = self.random.choices(
            [
                "append",
                "fetch",
                "alter",
                "kill",
                "stop",
                "pause",
                "start",
                "fence",
                "reassign",
                "cancel",
                "elect",
                "config",
                "balance",
            ],
            [8, 20, 10, 2, 2, 2, 6, 6, 1, 1, 1, 1, 1],
        )[0]
        broker_id = self.random.choice(BROKERS)
        present = self.partition
        self.history.append(
            f"{name} {broker_id}: leader {present.leader} of {present.replicas} isr {present.isr} elr"
            f" {present.eligible_leader_replicas} last {present.last_known_elr} committed {len(self.committed)}"
        )
        try:
            await getattr(self, f"_{name}")(broker_id)
        except KafkaError:
            return
        self._commit()

    async def _append(self, _: int) -> None:
        if self.is_led:
            for _ in range(self.random.randint(1, 3)):
                self.logs[self.partition.leader].append(self.next_record)
                self.next_record += 1

    async def _fetch(self, follower: int) -> None:
        leader = self.partition.leader
        if self.is_led and follower in self.running and follower != leader and follower in self.partition.replicas:
            log = self.logs[leader]
            same = len(common_prefix(log, self.logs[follower]))
            self.logs[follower] = log[: same + self.random.randint(0, 5)]

    async def _alter(self, follower: int) -> None:
        """The leader takes a follower into the ISR that has caught up, or one out of it that is slow."""
        present = self.partition
        if not self.is_led or follower == present.leader or follower not in present.replicas:
            return
        isr = [each for each in present.isr if each != follower]
        if follower not in present.isr:
            log = self.logs[follower]
            is_behind = len(log) < max(len(self.committed), self.epoch_start)
            if is_behind or log != self.logs[present.leader][: len(log)]:
                return
            isr.append(follower)
        epochs = {each.broker_id: each.broker_epoch for each in self.image.brokers.values()}
        alteration = PartitionAlteration(
            topic_id=TOPIC_ID,
            index=0,
            leader_epoch=present.leader_epoch,
            partition_epoch=present.partition_epoch,
            isr=[ReplicaState(each, epochs[each]) for each in isr],
            leader_recovery_state=0,
        )
        decisions = await run_steps(
            decide_alterations(self.image, self.config, present.leader, epochs[present.leader], [alteration])
        )
        for decision in decisions:
            if isinstance(decision, ControllerResult):
                self._apply(decision)

    async def _kill(self, broker_id: int) -> None:
        """The machine goes down, and what was not on its disk with it."""
        if broker_id in self.running:
            self.running.discard(broker_id)
            self.clean.discard(broker_id)
            log = self.logs[broker_id]
            del log[max(len(log) - self.random.choice([0, 1, 5, 1000]), 0) :]

    async def _stop(self, broker_id: int) -> None:
        await self._beat(broker_id, want_shut_down=True)
        reply = await self._beat(broker_id, want_shut_down=True)
        if reply is not None and not self.image.brokers[broker_id].is_active:
            self.running.discard(broker_id)
            self.clean.add(broker_id)
            self._apply(await run_steps(decide_fencing(self.image, self.config, broker_id)))

    async def _pause(self, broker_id: int) -> None:
        """A process that is silent for longer than its session, and goes on."""
        if broker_id in self.running and self.image.brokers[broker_id].is_active:
            self._apply(await run_steps(decide_fencing(self.image, self.config, broker_id)))

    async def _fence(self, broker_id: int) -> None:
        if broker_id not in self.running and not self.image.brokers[broker_id].fenced:
            self._apply(await run_steps(decide_fencing(self.image, self.config, broker_id)))

    async def _start(self, broker_id: int) -> None:
        broker = self.image.brokers[broker_id]
        if broker_id not in self.running:
            node = NodeRegistration(
                node_id=broker_id,
                incarnation_id=self.random.randbytes(16),
                endpoints=[Endpoint("X", SecurityProtocol.PLAINTEXT, "h", 1)],
                rack=None,
                log_dirs=[bytes(14) + bytes([1, broker_id])],
                features=own_features(),
                previous_broker_epoch=broker.broker_epoch if broker_id in self.clean else -1,
            )
            steps = decide_broker_registration(
                self.image,
                self.config,
                node,
                has_session=not broker.fenced,
                broker_epoch=self.image.offset + 1,
            )
            self._apply(await run_steps(steps))
            self.running.add(broker_id)
            self.clean.discard(broker_id)
        await self._beat(broker_id)

    async def _reassign(self, _: int) -> None:
        self._reassigned_to(self.random.sample(BROKERS, self.random.randint(1, 4)))

    async def _cancel(self, _: int) -> None:
        self._reassigned_to(None)

    def _reassigned_to(self, target: list[int] | None) -> None:
        changes = ClusterChanges(self.image, self.config)
        self._apply(decide_reassignment(changes, Reassignment(T_0, target), allow_replication_factor_change=True))

    async def _elect(self, _: int) -> None:
        self._apply(decide_election(ClusterChanges(self.image, self.config), ElectionType.PREFERRED, T_0))

    async def _config(self, _: int) -> None:
        value = self.random.choice([1, 2, 3])
        alteration = ConfigAlteration("min.insync.replicas", ConfigOperation.SET, str(value))
        change = ResourceAlterations(ConfigResource(ConfigResourceType.TOPIC, "t"), (alteration,))
        self._apply(decide_config_change(self.image, self.config, change))
        self.min_isr = value

    async def _balance(self, _: int) -> None:
        self._apply(await run_steps(decide_leader_balance(self.image, self.config)))

    # --- what follows ---

    async def _beat(self, broker_id: int, **wants: Any) -> Any:
        if broker_id not in self.running:
            return None
        sessions = BrokerHeartbeatManager(9.0)
        sessions.begin(self.image, 0.0)
        heartbeat = BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].broker_epoch,
            current_metadata_offset=self.image.offset,
            **wants,
        )
        decision = await run_steps(decide_heartbeat(self.image, self.config, sessions, heartbeat))
        self._apply(decision)
        return decision.outcome

    def _apply(self, decision: ControllerResult[Any]) -> None:
        before = self.partition
        self.image = after(self.image, decision)
        present = self.partition
        self._check_partition()
        # One that has died and is not fenced yet leads nobody.
        if present.leader_epoch != before.leader_epoch and present.leader in self.running:
            self._elected(before, present)

    def _elected(self, before: PartitionImage, present: PartitionImage) -> None:
        log = self.logs[present.leader]
        kept = common_prefix(log, self.committed)
        if present.leader_recovery_state == RECOVERING:
            self.losses += len(self.committed) - len(kept)
            self.committed = kept
        assert kept == self.committed, f"{before} -> {present}: {len(self.committed) - len(kept)} records lost"
        self.epoch_start = len(log)

    def _commit(self) -> None:
        isr = self.partition.isr
        if self.is_led and len(isr) >= min(self.min_isr, len(self.partition.replicas)):
            shared = common_prefix(*(self.logs[each] for each in isr))
            if len(shared) > len(self.committed):
                self.committed = shared

    def _check_partition(self) -> None:
        present = self.partition
        active = {each.broker_id for each in self.image.brokers.values() if each.is_active}
        assert present.leader == NO_LEADER or present.leader in present.isr
        assert set(present.isr) <= active, "who is fenced is in no ISR"
        assert set(present.isr) <= set(present.replicas)
        assert set(present.eligible_leader_replicas) <= set(present.replicas) - set(present.isr)
        assert set(present.adding_replicas) | set(present.removing_replicas) <= set(present.replicas)
        if present.leader == NO_LEADER:
            assert not active.intersection(present.eligible_leader_replicas), "who may lead does"
