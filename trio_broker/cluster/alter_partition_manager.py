"""Asks the controller for other in-sync replicas, on behalf of the partitions that this broker leads.

One change of a partition is in flight at a time, and one request of all partitions: what comes meanwhile goes with the
next. A request without an answer is sent again for as long as the partition has not heard of newer metadata, since
nobody knows whether it was carried out; the epochs in it let it have its effect once.

Source: Kafka's DefaultAlterPartitionManager and Partition.submitAlterPartition; KIP-497, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.broker_metadata_publisher import leader_and_isr
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_image import PartitionImage
from trio_broker.cluster.partition_change_builder import RECOVERED
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.network.errors import RequestFailed
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.partition import Partition
from trio_broker.partition.remote_replicas import ReplicaBrokers
from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.05
"""After which the controller is asked again that has not answered, as in Kafka."""


@attrs.frozen(eq=False)
class WantedChange:
    """What the leader of a partition wants."""

    partition: Partition
    pending: PendingPartitionChange


@attrs.define(eq=False)
class AlterPartitionManager:
    """See the head of the file. ``run`` is a task of the owner, without which nothing is asked."""

    controller: ControllerClient
    brokers: ReplicaBrokers
    broker_id: int
    clock: Clock
    _unsent: dict[TopicPartition, WantedChange] = attrs.field(factory=dict, init=False)
    _submitted: trio.Event = attrs.field(factory=trio.Event, init=False)

    def submit(self, partition: Partition, pending: PendingPartitionChange) -> None:
        """Ask for a change; its partition gets the answer."""
        wanted = self._unsent.setdefault(partition.topic_partition, WantedChange(partition, pending))
        if wanted.pending is not pending:
            # An earlier leadership's change is on its way still.
            partition.writer.isr_refused(pending, ErrorCode.OPERATION_NOT_ATTEMPTED, self.clock.monotonic())
            return
        self._submitted.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._drop_outdated()
            if not self._unsent:
                self._submitted = trio.Event()
                await self._submitted.wait()
            elif not await self._send(list(self._unsent.values())):
                await trio.sleep(RETRY_SECONDS)

    def _drop_outdated(self) -> None:
        """Forget what no partition waits for any longer: newer metadata have come."""
        self._unsent = {
            name: wanted
            for name, wanted in self._unsent.items()
            if wanted.partition.writer.is_pending(wanted.pending) and wanted.partition.failure is None
        }

    async def _send(self, changes: Sequence[WantedChange]) -> bool:
        """Ask for all of these; return whether there is an answer."""
        epoch = self.brokers.registered_epoch(self.broker_id)
        if epoch is None:
            return False
        try:
            alterations = [self._alteration(each, epoch) for each in changes]
            outcomes = await self.controller.alter_partitions(self.broker_id, epoch, alterations)
        except (KafkaError, RequestFailed) as error:
            log.debug("in-sync replicas are asked for again: %s", error)
            return False
        is_answered = True
        for wanted, outcome in zip(changes, outcomes, strict=True):
            is_answered &= self._answer(wanted, outcome)
        return is_answered

    def _answer(self, wanted: WantedChange, outcome: PartitionImage | KafkaError) -> bool:
        """Pass an answer to its partition; return whether it is one, after which nothing is to be asked again."""
        writer, now = wanted.partition.writer, self.clock.monotonic()
        if isinstance(outcome, KafkaError):
            log.info("%s: other in-sync replicas are refused: %s", wanted.partition.topic_partition, outcome.code.name)
            if writer.isr_refused(wanted.pending, outcome.code, now) is not None:
                return False
        else:
            writer.isr_altered(wanted.pending, leader_and_isr(outcome), now)
            log.info("%s: in-sync replicas are %s", wanted.partition.topic_partition, list(outcome.isr))
        self._unsent.pop(wanted.partition.topic_partition, None)
        return True

    def _alteration(self, wanted: WantedChange, broker_epoch: int) -> PartitionAlteration:
        partition, remote = wanted.partition, wanted.partition.writer.state.remote
        epochs = remote.broker_epochs(sorted(wanted.pending.wanted_isr))
        return PartitionAlteration(
            topic_id=partition.topic_id,
            index=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
            partition_epoch=remote.partition_epoch,
            isr=[
                ReplicaState(each, broker_epoch if each == self.broker_id else epoch) for each, epoch in epochs.items()
            ],
            # A leader recovers before it leads here: its log is as it found it.
            leader_recovery_state=RECOVERED,
        )
