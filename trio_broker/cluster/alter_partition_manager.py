"""Changes of in-sync replicas, on their way from the leaders on this broker to the controller.

One request at a time, with all that has been submitted while the last one was under way; so one change of a partition
is in flight at a time. Each leader has its own answer, by which it goes on, or asks again. A request that is refused as
a whole is sent again, without what is not wanted any more: new metadata may have come in between.

Source: Kafka's AlterPartitionManager, and Partition (``submitAlterPartition``); KIP-497.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.alter_partition import PartitionAlteration, ReplicaState
from trio_broker.cluster.broker_metadata_publisher import leader_and_isr
from trio_broker.cluster.metadata_image import PartitionImage
from trio_broker.cluster.partition_change_builder import RECOVERED
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import Barrier
from trio_broker.network.errors import RequestFailed
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.05
"""Before what was refused is sent again, as in Kafka: short against what a follower may lag, long against spinning."""


@attrs.frozen(eq=False)
class SubmittedChange:
    """What the leader of a partition wants of the controller."""

    partition: Partition
    pending: PendingPartitionChange

    @property
    def is_wanted(self) -> bool:
        """Whether the leader still waits for it: newer metadata may have overtaken it."""
        state = self.partition.writer.state
        return state.is_leader and state.failure is None and state.remote.state is self.pending


class AlterPartitions(Protocol):
    """What this needs of the controller; see ``ControllerClient``."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, alterations: Sequence[PartitionAlteration]
    ) -> list[PartitionImage | KafkaError]: ...


class AlterPartitionManager:
    """See the head of the file. ``run`` is a task of the broker. ``broker_epoch`` is that of its registration."""

    def __init__(
        self, controller: AlterPartitions, broker_id: int, broker_epoch: Callable[[], int], clock: Clock
    ) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._throttled_log = LogThrottle(log, clock)
        self._barrier = Barrier("the answer to an AlterPartition", "other partitions are not concerned")
        # At most one of each partition: the last one that its leader wants.
        self._unsent: dict[TopicPartition, SubmittedChange] = {}
        self._submitted = trio.Event()

    def submit(self, partition: Partition, pending: PendingPartitionChange) -> None:
        """Have the controller asked for ``pending``, and the writer of ``partition`` given its answer."""
        self._unsent[partition.topic_partition] = SubmittedChange(partition, pending)
        self._submitted.set()

    async def run(self) -> None:
        """Send what is submitted, until cancelled."""
        while True:
            while not self._unsent:
                self._submitted = trio.Event()
                await self._submitted.wait()
            again = await self._send()
            if again:
                for each in again:
                    self._unsent.setdefault(each.partition.topic_partition, each)
                await trio.sleep(RETRY_SECONDS)

    async def _send(self) -> list[SubmittedChange]:
        """Send all that is still wanted; return what is to be sent again."""
        changes = [each for each in self._unsent.values() if each.is_wanted]
        self._unsent.clear()
        if not changes:
            return []
        broker_epoch = self._broker_epoch()
        alterations = [self._alteration(each, broker_epoch) for each in changes]
        try:
            results = await self._controller.alter_partitions(self._broker_id, broker_epoch, alterations)
        except (KafkaError, OSError, RequestFailed) as error:
            text = f"{len(changes)} changes of in-sync replicas have not been made: {error}; they are sent again"
            self._throttled_log.warning("unanswered", text)
            return changes
        again: list[SubmittedChange] = []
        for each, result in zip(changes, results, strict=True):
            with self._barrier:
                if self._is_to_be_sent_again(each, result):
                    again.append(each)
        return again

    def _alteration(self, change: SubmittedChange, broker_epoch: int) -> PartitionAlteration:
        """What the request says of one; the epochs of now, since the change is wanted now."""
        partition, remote = change.partition, change.partition.writer.state.remote
        isr = sorted(change.pending.wanted_isr)
        epochs = {**remote.broker_epochs(isr), self._broker_id: broker_epoch}
        return PartitionAlteration(
            topic_id=partition.topic_id,
            index=partition.topic_partition.partition,
            leader_epoch=partition.leader_epoch,
            partition_epoch=remote.partition_epoch,
            isr=[ReplicaState(each, epochs[each]) for each in isr],
            leader_recovery_state=RECOVERED,
        )

    def _is_to_be_sent_again(self, change: SubmittedChange, result: PartitionImage | KafkaError) -> bool:
        """Pass the answer on to the leader; return whether it asks again."""
        partition, pending, now = change.partition, change.pending, self._clock.monotonic()
        if isinstance(result, KafkaError):
            log.info("%s: the controller refuses %s: %s", partition.topic_partition, pending, result)
            return partition.writer.isr_refused(pending, ErrorCode(result.code), now) is not None
        isr = list(result.isr)
        log.info("%s: in sync are %s, in partition epoch %d", partition.topic_partition, isr, result.partition_epoch)
        partition.writer.isr_altered(pending, leader_and_isr(result), now)
        return False
