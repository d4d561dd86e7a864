"""Transactions that hang: they are open in a partition, and nobody would end them.

A power cut takes them out of the coordinator's log, or takes their markers out of the partitions. What hangs of a
producer that a transactional id has is ended by that id, with the usual markers; what nobody has is aborted here, once
all ids are known. Where several brokers are registered none is looked for here: an administrator finds it (KIP-664).

Source: docs/decisions/0053; KIP-664 for the word.
"""

from __future__ import annotations

import logging

import trio

from kafka_wire.errors import KafkaError
from trio_broker.common.request_phase import ignore_release
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.transactions import transaction_marker_channel_manager
from trio_broker.coordinator.transactions.requests import THE_BROKER, EndHanging, OpenEpochs
from trio_broker.coordinator.transactions.transaction_machine import NOTHING_OPEN, TransactionMachine
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import MarkerChannel
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.transaction_end import TransactionEnd

log = logging.getLogger(__name__)


class HangingTransactions:
    """What the logs of this broker have open, and the end of what hangs in them."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionMachine],
        replicas: ReplicaManager,
        markers: MarkerChannel,
    ) -> None:
        self._runtime = runtime
        self._replicas = replicas
        self._markers = markers
        # Set when there may be more to be ended than before, or more ids may be known.
        self._changed = trio.Event()

    def open_transactions(self) -> OpenEpochs:
        """What the logs have open. Not in the log of a coordinator itself, which has no records of transactions.

        Nothing where several brokers are registered: their logs and their transactional ids are not known here, and
        what a power cut has taken from one log the other replicas have.
        """
        found: dict[int, dict[TopicPartition, int]] = {}
        if len(self._runtime.image.brokers) > 1:
            return found
        for partition in self._replicas.partitions():
            producers = partition.producers
            if not producers.transactions.undecided or partition.topic_partition.topic == TRANSACTION_STATE_TOPIC:
                continue
            for producer_id in producers.transactions.undecided.values():
                epochs = found.setdefault(producer_id, {})
                epochs[partition.topic_partition] = producers.producers[producer_id].producer_epoch
        return found

    def open_epoch(self, producer_id: int, topic_partition: TopicPartition) -> int | None:
        """The epoch of the transaction that the producer has open in a partition, None without one."""
        partition = self._replicas.find(topic_partition)
        return None if partition is None else partition.producers.open_epoch(producer_id)

    async def run(self) -> None:
        """End what hangs once all shards are loaded, and again when further partitions could be opened or are led.

        Not where the topic of states was deleted while transactions were open: an operator sees those, and ends them.
        """
        while True:
            self._changed = trio.Event()
            await self._runtime.wait_until_loaded()
            if self._runtime.lacks_leaders:
                await self._changed.wait()
            elif not await self.end():
                await trio.sleep(transaction_marker_channel_manager.MARKER_RETRY_SECONDS)
            # Else a shard is being loaded anew meanwhile, and not all ids were known.
            elif self._runtime.is_loaded:
                await self._changed.wait()

    def leaders_changed(self) -> None:
        """Partitions of the topic of states have other leaders, so other ids may be known."""
        self._changed.set()

    def partitions_opened(self) -> None:
        """Partitions could be opened that could not before: end what hangs in them."""
        self._end_owned()
        self._changed.set()

    async def end(self) -> bool:
        """Try to end what hangs; return whether no log has refused that."""
        is_ended = self._end_owned()
        # Nobody else ever would.
        for producer_id, epochs in self._without_coordinator().items():
            for partition in epochs:
                await self._abort(producer_id, partition)
        return is_ended and not self._without_coordinator()

    def _end_owned(self) -> bool:
        """Have each transactional id end what hangs of its producer; return whether no log has refused that."""
        open_epochs, refusals = self.open_transactions(), 0
        for shard in self._runtime.active_shards() if open_epochs else ():
            for transactional_id, metadata in list(shard.machine.transactions.items()):
                if open_epochs.keys().isdisjoint((metadata.producer_id, metadata.previous_producer_id)):
                    continue
                try:
                    shard.handle(transactional_id, EndHanging(transactional_id, open_epochs), THE_BROKER)
                except KafkaError as error:
                    refusals += 1
                    log_delay(self._runtime, transactional_id, error)
        return not refusals

    def _without_coordinator(self) -> OpenEpochs:
        """Of the open transactions those of producers that no transactional id has, which is not known while not all
        ids are.
        """
        if not (found := self.open_transactions()):
            return NOTHING_OPEN
        if not self._runtime.is_complete:
            text = "transactions that no transactional id has are not looked for: not all of %s is loaded"
            log.error(text, self._runtime.topic)
            return NOTHING_OPEN
        machines = [shard.machine for shard in self._runtime.shards.values()]
        owned = {metadata.producer_id for machine in machines for metadata in machine.transactions.values()}
        return {producer_id: epochs for producer_id, epochs in found.items() if producer_id not in owned}

    async def _abort(self, producer_id: int, partition: TopicPartition) -> None:
        """Abort the producer's transaction in ``partition`` if it is open there, and the disk lets it."""
        if (epoch := self.open_epoch(producer_id, partition)) is None:
            return
        text = f"{partition}: aborts the transaction of producer {producer_id}, which no transactional id has"
        self._runtime.throttled_log.warning("without coordinator", text)
        end = TransactionEnd(producer_id, epoch, committed=False, coordinator_epoch=0, is_unfenced=True)
        await run_steps(self._markers.write_steps(end, [partition], ignore_release))


def log_delay(runtime: CoordinatorRuntime[TransactionMachine], transactional_id: str, reason: object) -> None:
    text = f"the transaction of {transactional_id!r:.200} is decided, but not ended everywhere: {reason}"
    runtime.throttled_log.warning("markers", text)
