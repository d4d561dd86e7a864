"""What must hold of the replicas of a simulated cluster at every moment, looked at after every event.

It does not repeat the rules of replication. It knows from etcd what was decided, from each broker that runs where its
replicas are, and from their files what is in them; and it remembers what was ever below a leader's high watermark.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import attrs
import trio

from kafka_wire.records.batch import read_batches
from tests.checking.history import Violation
from tests.simulation.cluster.simulated_cluster import LAYOUT, ClusterMachine, SimulatedCluster
from tests.simulation.simulated_machine import Life
from trio_broker.cluster.etcd.layout import end_of_prefix
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from trio_broker.cluster.metadata_store import CommittedBatch
from trio_broker.cluster.metadata_transactions import MetadataTransactions
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.partition.partition import Partition

ONE_LEADER = "an epoch has one leader"
EPOCHS_GROW = "epochs only grow"
NEVER_FALLS = "a high watermark never falls in an epoch"
ELECTABLE = "each in-sync replica has all that is visible"
DURABLE = "what is visible is on the disk"
SAME_EVERYWHERE = "what is visible is the same everywhere, for ever"
CLEAN = "leaders are elected from the in-sync replicas"
ACTIVE = "who joins the in-sync replicas is active"
IN_ITS_EPOCH = "a decision is of the latest controller"

HEADER = struct.Struct(">qii7xi")
"""Of a batch: base offset, length, leader epoch, last offset delta."""

Key = tuple[bytes, int]
"""A partition, by the id of its topic."""


@attrs.frozen
class StoredBatch:
    """A batch as it lies in a log."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    checksum: int


@attrs.frozen
class Seen:
    """A replica at the latest look."""

    is_leader: bool
    leader_epoch: int
    high_watermark: int
    log_end_offset: int


@attrs.define(eq=False)
class ReplicationWatch:
    """``look`` is called after each event; ``violations`` are what it has found."""

    cluster: SimulatedCluster
    scope: trio.CancelScope
    """Of the simulation, which ends with the first violation."""
    violations: list[Violation] = attrs.field(factory=list)
    image: MetadataImage = attrs.field(factory=MetadataImage)
    """As etcd has it."""
    names: dict[Key, str] = attrs.field(factory=dict)
    visible: dict[Key, int] = attrs.field(factory=dict)
    """The largest high watermark of any replica."""
    batches: dict[Key, dict[int, StoredBatch]] = attrs.field(factory=dict)
    """What lies below it, by base offset."""
    leaders: dict[tuple[Key, int], str] = attrs.field(factory=dict)
    looks: int = 0
    controller_epoch: int = 0
    _seen: dict[tuple[Life, Key], Seen] = attrs.field(factory=dict)
    _revision: int = 1
    _transactions: MetadataTransactions = attrs.field(factory=MetadataTransactions)

    def violate(self, promise: str, text: str) -> None:
        self.cluster.tell(f"BROKEN: {promise}: {text}")
        self.violations.append(Violation(promise, text))
        self.scope.cancel()

    # ---- what is decided

    def follow_metadata(self) -> None:
        """Read what was decided since the last call."""
        state = self.cluster.etcd.state
        events = state.events_from(self._revision + 1, LAYOUT.log, end_of_prefix(LAYOUT.log))
        self._revision = state.revision
        for _, event in events:
            if event.type == 0 and event.kv is not None:
                [batch] = read_batches(bytearray(event.kv.value))
                self._apply(CommittedBatch.of(batch))

    def _apply(self, batch: CommittedBatch) -> None:
        before, records = self.image, list(self._transactions.settled(batch.records))
        if batch.leader_id is not None:
            self.controller_epoch = batch.epoch
            self.cluster.tell(f"controller {batch.leader_id} in epoch {batch.epoch}")
        if batch.epoch != self.controller_epoch:
            text = f"offset {batch.base_offset} is of epoch {batch.epoch}, behind {self.controller_epoch}"
            self.violate(IN_ITS_EPOCH, text)
        if not records:
            return
        delta = MetadataDelta(before)
        for record in records:
            delta.replay(record)
        self.image = after = delta.apply(offset=batch.last_offset, epoch=batch.epoch)
        for broker_id, broker in after.brokers.items():
            if (old := before.brokers.get(broker_id)) is not broker:
                is_new = old is None or old.broker_epoch != broker.broker_epoch
                state = "fenced" if broker.fenced else "leaving" if broker.in_controlled_shutdown else "unfenced"
                self.cluster.tell(f"broker {broker_id} is {'registered, ' if is_new else ''}{state}")
        for topic in after.topics.values():
            known = before.topics_by_id.get(topic.topic_id)
            for index, partition in topic.partitions.items():
                old_partition = None if known is None else known.partitions.get(index)
                if partition is not old_partition:
                    key = (topic.topic_id, index)
                    self.names[key] = f"{topic.name}-{index}"
                    self._check_decision(key, old_partition, partition)
        for topic in before.topics.values():
            if topic.topic_id not in after.topics_by_id:
                for key in [(topic.topic_id, index) for index in topic.partitions]:
                    self.visible.pop(key, None)

    def _check_decision(self, key: Key, before: PartitionImage | None, after: PartitionImage) -> None:
        name = self.names[key]
        elr = f", eligible {after.eligible_leader_replicas}" if after.eligible_leader_replicas else ""
        self.cluster.tell(f"{name}: leader {after.leader} in {after.leader_epoch}, in sync {after.isr}{elr}")
        if after.leader != NO_LEADER and after.leader not in after.isr:
            self.violate(CLEAN, f"{name}: {after}")
        if before is None:
            return
        if after.leader_epoch < before.leader_epoch or after.partition_epoch <= before.partition_epoch:
            self.violate(EPOCHS_GROW, f"{name}: {before} to {after}")
        if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
            self.violate(ONE_LEADER, f"{name}: {before} to {after}")
        joining = set(after.isr).difference(before.isr, before.eligible_leader_replicas, before.last_known_elr)
        if not all(each in self.image.active_brokers for each in joining):
            self.violate(ACTIVE, f"{name}: {before} to {after}")
        candidates = {*before.isr, *before.eligible_leader_replicas, *before.last_known_elr}
        if before.is_reassigned and not after.is_reassigned:
            # The decision that takes the last of them into the ISR completes the reassignment and elects, as Kafka's.
            candidates |= joining
        if after.leader not in (NO_LEADER, *candidates):
            self.violate(CLEAN, f"{name}: {before} to {after}")
        self._check_electable(key)

    # ---- where the replicas are

    def look(self) -> None:
        """Look at every replica of each broker that runs."""
        self.looks += 1
        for machine in self.cluster.machines:
            if (broker := machine.broker) is not None and machine.life is not None:
                for partition in broker.services.replicas.partitions():
                    self._look_at(machine, machine.life, partition)

    def _look_at(self, machine: ClusterMachine, life: Life, partition: Partition) -> None:
        state, key = partition.state, (partition.topic_id, partition.topic_partition.partition)
        before = self._seen.get((life, key))
        if (
            before is not None
            and before.high_watermark == state.high_watermark
            and before.log_end_offset == state.log_end_offset
            and before.leader_epoch == state.leader_epoch
            and before.is_leader == state.is_leader
        ) or state.failure is not None:
            return
        now = Seen(state.is_leader, state.leader_epoch, state.high_watermark, state.log_end_offset)
        self._seen[life, key] = now
        name = f"{partition.topic_partition} on {machine.name}"
        is_new = before is None or (before.is_leader, before.leader_epoch) != (now.is_leader, now.leader_epoch)
        if now.is_leader:
            if self.leaders.setdefault((key, now.leader_epoch), machine.name) != machine.name:
                other = self.leaders[key, now.leader_epoch]
                self.violate(ONE_LEADER, f"{name}: {other} has led in epoch {now.leader_epoch}")
            if not is_new and before is not None and now.high_watermark < before.high_watermark:
                self.violate(NEVER_FALLS, f"{name}: from {before} to {now}")
            durable_offset = partition.writer.state.durable_offset
            if partition.writer.state.waits_for_disk and durable_offset < now.high_watermark:
                self.violate(DURABLE, f"{name}: {durable_offset} of {now} are durable")
        if now.high_watermark > self.visible.get(key, 0):
            # A follower's is what a leader has shown.
            self.visible[key] = now.high_watermark
            self._check_electable(key)
        elif is_new or before is None or now.log_end_offset < before.log_end_offset:
            self._check_electable(key)
        self._check_content(machine, partition, 0 if is_new or before is None else before.high_watermark)

    def _check_electable(self, key: Key) -> None:
        """Each in-sync replica that runs has all that is visible, on its disk where that counts."""
        topic, visible = self.image.topics_by_id.get(key[0]), self.visible.get(key, 0)
        if topic is None:
            return
        for node_id in topic.partitions[key[1]].isr:
            machine = self.cluster.machine(node_id)
            broker = None if machine is None else machine.broker
            found = None if broker is None else broker.services.replicas.find(TopicPartition(topic.name, key[1]))
            if found is None or found.topic_id != key[0] or found.failure is not None:
                continue
            replica = found.writer.state
            end = replica.durable_offset if replica.waits_for_disk else replica.log_end_offset
            if end < visible:
                self.violate(ELECTABLE, f"{self.names[key]}: broker {node_id} has {end} of {visible}")

    # ---- what is in them

    def _check_content(self, machine: ClusterMachine, partition: Partition, since: int) -> None:
        """What is below the high watermark of this replica is what others have shown there."""
        key = (partition.topic_id, partition.topic_partition.partition)
        known, end = self.batches.setdefault(key, {}), partition.high_watermark
        for batch in stored_batches(machine, partition, since):
            if batch.base_offset >= end:
                break
            if (other := known.setdefault(batch.base_offset, batch)) != batch:
                self.violate(SAME_EVERYWHERE, f"{partition} on {machine.name}: {batch}, and before {other}")
                return

    def check_all(self) -> None:
        """Look at everything below each high watermark once more."""
        for machine, partition in self.cluster.replicas():
            self._check_content(machine, partition, 0)
        for key, known in self.batches.items():
            offset = None
            for base_offset in sorted(known):
                if offset not in (None, base_offset):
                    self.violate(SAME_EVERYWHERE, f"{self.names[key]}: {known[base_offset]} does not follow {offset}")
                offset = known[base_offset].next_offset


def stored_batches(machine: ClusterMachine, partition: Partition, since: int = 0) -> Iterator[StoredBatch]:
    """The batches from ``since`` on, as they are in the files."""
    segments = partition.log.segments
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= since:
            continue
        data, position = machine.disk.content(segment.file.path)[: segment.size], 0
        while position < len(data):
            base_offset, length, leader_epoch, delta = HEADER.unpack_from(data, position)
            end = position + 12 + length
            if base_offset >= since:
                checksum = zlib.crc32(data[position:end])
                yield StoredBatch(base_offset, base_offset + delta + 1, leader_epoch, checksum)
            position = end
