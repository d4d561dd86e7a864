"""The transaction coordinator: transactional ids, their producers and transactions.

    handler ─▶ TransactionCoordinator ─▶ Shard (one per partition of __transaction_state) ─▶ TransactionMachine
                  ▲        │ the record of PREPARE is durable ◀───────────────────────────── on_prepared ┘
                  │        ▼
                  │   TransactionMarkerChannelManager ─▶ a marker in each partition of the transaction
                  └── all are durable: CompleteTransaction

A transaction whose end is decided is ended in all its partitions, however often that must be tried and over restarts:
the record of PREPARE has them all.

Source: Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from typing import Final

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.end_txn import EndTxnResponse
from kafka_wire.messages.init_producer_id import InitProducerIdResponse
from kafka_wire.stored.transactions import TransactionStatus
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.internal_topics import UNSET
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.producer_ids import ProducerIds
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase, ignore_release
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition, by_topic
from trio_broker.concurrency.barrier import start_background, start_once
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.response_future import NO_REQUIRED_OFFSET
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.coordinator.runtime.shard import Shard
from trio_broker.coordinator.transactions import transaction_marker_channel_manager
from trio_broker.coordinator.transactions.hanging_transactions import HangingTransactions, log_delay
from trio_broker.coordinator.transactions.requests import (
    THE_BROKER,
    AbortTransaction,
    AddPartitions,
    CompleteTransaction,
    EndTransaction,
    InitProducerId,
    VerifyTransaction,
)
from trio_broker.coordinator.transactions.transaction_machine import TransactionMachine
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import (
    MarkerChannel,
    TransactionMarkerChannelManager,
    leader_of,
)
from trio_broker.coordinator.transactions.transaction_metadata import NO_PARTITIONS, TransactionMetadata
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.runtime.runtime import Runtime

log = logging.getLogger(__name__)

COMMIT_TIMEOUT_SECONDS: Final = 5.0
"""How long a change of a transaction may take to become durable before its client is asked to try again: as long as
``offsets.commit.timeout.ms`` is."""

ENDING_SECONDS: Final = 0.1
"""How long a producer's next transaction waits for the markers of the one before, which spares the client its own wait;
as long as Kafka's broker tries, by ``add.partitions.to.txn.retry.backoff.max.ms``."""

NEEDS_NO_MARKER: Final = frozenset(
    {
        # The topic was deleted, and the records with it.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # A later marker stands there, which an administrator has written.
        ErrorCode.INVALID_PRODUCER_EPOCH,
        # The log of a coordinator itself, which has no records of transactions.
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""The refusals of a marker after which it is not tried again, if the partition has nothing open of the producer."""


@attrs.frozen
class KnownTransaction:
    """A transactional id, its state, and the partitions where its transaction still needs a marker or goes on.

    ``client_id`` is that of its producer, None if none has been heard since the start.
    """

    transactional_id: str
    metadata: TransactionMetadata
    partitions: Collection[TopicPartition]
    client_id: str | None = None


class TransactionCoordinator:
    """All transactions that this broker coordinates."""

    def __init__(
        self,
        replicas: ReplicaManager,
        markers: TransactionMarkerChannelManager,
        controller: ControllerClient,
        metadata_cache: MetadataCache,
        producer_ids: ProducerIds,
        config: BrokerConfig,
        runtime: Runtime,
    ) -> None:
        self.settings = config.transaction_coordinator
        self.markers: MarkerChannel = markers
        self._run_marker_channels = markers.run
        self._replicas = replicas
        self._producer_ids = producer_ids
        self._metadata_cache = metadata_cache
        self.runtime: CoordinatorRuntime[TransactionMachine] = CoordinatorRuntime(
            topic=TRANSACTION_STATE_TOPIC,
            new_topic=self._state_topic,
            new_machine=lambda: TransactionMachine(self.settings, self._on_prepared, self.hanging.open_transactions),
            commit_timeout_seconds=COMMIT_TIMEOUT_SECONDS,
            replicas=replicas,
            controller=controller,
            metadata_cache=metadata_cache,
            clock=runtime.clock,
            expiry_clock=runtime.expiry_clock,
        )
        self.hanging = HangingTransactions(self.runtime, replicas, markers)
        # As many as there are transactional ids at most, each of which has one transaction.
        self._prepared_send, self._prepared_receive = trio.open_memory_channel[str](float("inf"))
        # By transactional id whose markers are being written: where that is done in the present leader epoch.
        self._marked: dict[str, frozenset[TopicPartition]] = {}
        # By transactional id whose transaction is ending: set once it has ended, if somebody waits for it.
        self._awaited_ends: dict[str, trio.Event] = {}

    # ---- running --------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load all shards, time transactions out and write markers, until cancelled."""
        async with trio.open_nursery() as nursery:
            start_background(nursery, "markers to other brokers", self._run_marker_channels)
            start_background(nursery, "markers of transactions", partial(self._run_markers, nursery))
            await nursery.start(self.runtime.run)
            start_background(nursery, "hanging transactions", self.hanging.run)
            task_status.started()

    def _state_topic(self) -> NewTopic:
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(self.settings.transaction_state_log_segment_size),
            "unclean.leader.election.enable": "false",
        }
        if self.settings.transaction_state_log_min_isr != UNSET:
            configs["min.insync.replicas"] = str(self.settings.transaction_state_log_min_isr)
        return NewTopic(
            name=TRANSACTION_STATE_TOPIC,
            num_partitions=self.settings.transaction_state_log_num_partitions,
            replication_factor=self.settings.transaction_state_log_replication_factor,
            configs=configs,
        )

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the shards' own topic."""
        self.runtime.apply_metadata(delta)
        topic = delta.image.topics.get(self.runtime.topic)
        # Not where it is made anew: what the deleted one knew is for an operator to judge.
        if topic is not None and topic.topic_id in image.topics_by_id and delta.changed_partitions(topic.topic_id):
            self.hanging.leaders_changed()

    def topic_opened(self, name: str) -> None:
        """Load the shards whose partitions could not be opened before, and end what hangs in them."""
        if name == self.runtime.topic:
            self.runtime.load_led_partitions()
        self.hanging.partitions_opened()

    # ---- requests -------------------------------------------------------------------------------------------------

    def _shard(self, transactional_id: str) -> Shard[TransactionMachine]:
        """The shard of ``transactional_id``, ready to answer.

        Raises:
            KafkaError: ``INVALID_REQUEST``, ``NOT_COORDINATOR``, ``COORDINATOR_LOAD_IN_PROGRESS``.
        """
        if not transactional_id:
            raise KafkaError("a transactional id is not empty", code=ErrorCode.INVALID_REQUEST)
        return self.runtime.shard_for(transactional_id)

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> InitProducerIdResponse:
        """Give ``transactional_id`` to a producer, which fences the one that had it.

        Raises:
            KafkaError: the request had no effect.
        """
        if not transactional_id:
            raise KafkaError("a transactional id is not empty", code=ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.transaction_max_timeout_ms:
            text = f"{timeout_ms} ms; transaction.max.timeout.ms is {self.settings.transaction_max_timeout_ms}"
            raise KafkaError(text, code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        new_id = await run_steps(self._new_producer_id(transactional_id))
        request = InitProducerId(transactional_id, timeout_ms, expected, new_id)
        shard = self._shard(transactional_id)
        return await run_steps(self.runtime.call(shard, transactional_id, request, context, release_handler))

    def _new_producer_id(self, transactional_id: str) -> Steps[int | None]:
        """A new producer id if ``transactional_id`` may need one; ids that are not used are lost, and there are 2^63.

        Raises:
            KafkaError: none can be allocated, or those of ``_shard``.
        """
        if not self._shard(transactional_id).machine.needs_producer_id(transactional_id):
            return None
        try:
            new_id: int = yield self._producer_ids.next
        except OSError as error:
            text = f"no producer id can be allocated: {error}"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        return new_id

    def add_partitions_steps(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_transaction_version: int,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[None]:
        """Make ``partitions`` part of the producer's transaction, durably, once the one before has ended.

        Raises:
            KafkaError: nothing was added; see ``TransactionMachine.add_partitions``.
        """
        request = AddPartitions(transactional_id, producer, partitions, client_transaction_version)
        shard = self._shard(transactional_id)
        if shard.machine.is_ending(transactional_id, producer):
            release_handler(RequestPhase.PURGATORY)
            yield partial(self._until_ended, transactional_id)
            shard = self._shard(transactional_id)
        yield from self.runtime.call(shard, transactional_id, request, context, release_handler)
        # Now, and all together: librdkafka writes to one partition after another.
        here = (found for each in partitions if (found := self._replicas.find(each)) is not None)
        yield from self._replicas.appends.ready_steps(here, release_handler)

    def verify_steps(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[None]:
        """Refuse a producer that may not write in its transaction, and wait until what is known of it is durable.

        A record in a partition that a power cut takes out of the transaction would hold back the partition's readers
        for ever.

        Raises:
            KafkaError: see ``TransactionMachine.add_partitions``.
        """
        request = VerifyTransaction(transactional_id, producer)
        shard = self._shard(transactional_id)
        yield from self.runtime.call(shard, transactional_id, request, context, release_handler)

    def require_added(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Refuse a partition that is not part of the producer's transaction at this moment.

        For the moment before an append, where nothing can come between: no marker would ever follow a record that is
        appended after the end of its transaction.

        Raises:
            KafkaError: see ``TransactionMachine.require_added``.
        """
        self._shard(transactional_id).machine.require_added(transactional_id, producer, partition)

    def end_transaction_steps(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        commits: bool,
        client_transaction_version: int,
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[EndTxnResponse]:
        """Commit or abort. The decision is durable when this returns; the markers follow.

        Raises:
            KafkaError: nothing was decided; see ``TransactionMachine.end``.
        """
        new_id = yield from self._new_producer_id(transactional_id)
        request = EndTransaction(transactional_id, producer, commits, client_transaction_version, new_id)
        shard = self._shard(transactional_id)
        return (yield from self.runtime.call(shard, transactional_id, request, context, release_handler))

    async def abort_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, start_ms: int, release_handler: ReleaseHandler
    ) -> None:
        """Abort one ongoing transaction, and fence its producer. The decision is durable when this returns; the
        markers follow.

        Raises:
            KafkaError: nothing was decided; see ``TransactionMachine.abort``.
        """
        request = AbortTransaction(transactional_id, producer, start_ms)
        shard = self._shard(transactional_id)
        await run_steps(self.runtime.call(shard, transactional_id, request, THE_BROKER, release_handler))

    # ---- markers --------------------------------------------------------------------------------------------------

    def _on_prepared(self, transactional_id: str) -> None:
        self._prepared_send.send_nowait(transactional_id)

    async def _run_markers(self, nursery: trio.Nursery) -> None:
        async for transactional_id in self._prepared_receive:
            if transactional_id in self._marked:
                # Its shard was loaded anew meanwhile. A second marker could come into the producer's next transaction.
                continue
            steps = self._marker_steps(transactional_id)
            try:
                wait = next(steps)
            except StopIteration:
                # In the page cache all is durable at once, and most transactions need no task.
                continue
            start_once(nursery, "markers of a transaction", partial(run_steps, steps, wait))

    def _marker_steps(self, transactional_id: str) -> Steps[None]:
        """End the transaction in all its partitions, however often it must be tried. One run at a time for each id."""
        leader_epoch: int | None = None
        try:
            while (shard := self._prepared_shard(transactional_id)) is not None:
                if shard.leader_epoch != leader_epoch:
                    # Between two epochs another broker may have ended the transaction and begun a later one.
                    self._marked[transactional_id], leader_epoch = NO_PARTITIONS, shard.leader_epoch
                try:
                    if (yield from self._try_markers(shard, transactional_id)):
                        return
                except KafkaError as error:
                    log_delay(self.runtime, transactional_id, error)
                except Exception as bug:
                    text = f"ending the transaction of {transactional_id!r:.200} failed, and is tried again"
                    self.runtime.throttled_log.error("markers failed", text, bug)
                yield partial(trio.sleep, transaction_marker_channel_manager.MARKER_RETRY_SECONDS)
        finally:
            self._marked.pop(transactional_id, None)
            if (ended := self._awaited_ends.pop(transactional_id, None)) is not None:
                ended.set()
            if self._prepared_shard(transactional_id) is not None:
                self._on_prepared(transactional_id)

    async def _until_ended(self, transactional_id: str) -> None:
        """Wait for the markers of the transaction that is ending, at most ``ENDING_SECONDS``."""
        if self._prepared_shard(transactional_id) is None:
            return  # while this request was given to a task
        ended = self._awaited_ends.setdefault(transactional_id, trio.Event())
        with trio.move_on_after(ENDING_SECONDS):
            await ended.wait()

    def _prepared_shard(
        self, transactional_id: str, leader_epoch: int | None = None
    ) -> Shard[TransactionMachine] | None:
        """The shard, of ``leader_epoch`` if that is given, if it still has the transaction to be ended; otherwise the
        next one that is loaded will end it."""
        try:
            shard = self._shard(transactional_id)
        except KafkaError:
            return None
        metadata = shard.machine.transactions.get(transactional_id)
        is_present = leader_epoch in (None, shard.leader_epoch)
        return shard if is_present and metadata is not None and metadata.is_prepared else None

    def _try_markers(self, shard: Shard[TransactionMachine], transactional_id: str) -> Steps[bool]:
        """Write the markers that are missing; return whether none is missing any more.

        Raises:
            KafkaError: what was decided is not durable, or its completion could not be written down.
        """
        metadata = shard.machine.transactions[transactional_id]
        # A marker is seen by readers at once, so nothing may take back the decision.
        if (required_offset := shard.log.required_offset) != NO_REQUIRED_OFFSET:
            yield partial(self.runtime.until_durable, shard, required_offset, ignore_release)
            if self._prepared_shard(transactional_id) is not shard:
                return False  # another one has taken its place, and may have ended the transaction
        end = TransactionEnd(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            committed=metadata.status is TransactionStatus.PREPARE_COMMIT,
            coordinator_epoch=shard.leader_epoch,
            transaction_version=metadata.client_transaction_version,
            is_unfenced=self.runtime.image.has_one_broker,
        )
        topics = by_topic(metadata.partitions - self._marked[transactional_id])
        pending_markers = [TopicPartition(topic, index) for topic, indexes in topics.items() for index in indexes]
        codes = yield from self.markers.write_steps(end, pending_markers, ignore_release)
        if self._prepared_shard(transactional_id, shard.leader_epoch) is None:
            return False  # as above, or another broker has
        missing = [each for each, code in codes.items() if self._is_missing(each, metadata.producer_id, code)]
        self._marked[transactional_id] = metadata.partitions.difference(missing)
        if missing:
            first = missing[0]
            log_delay(self.runtime, transactional_id, f"{first}: {codes[first].name}, and {len(missing) - 1} more")
            return False
        new_id = yield from self._new_producer_id(transactional_id)
        if (after := self._prepared_shard(transactional_id, shard.leader_epoch)) is None:
            return False
        complete = CompleteTransaction(transactional_id, metadata.producer, metadata.partitions, new_id)
        # Perhaps another one than at the beginning, since the shard may have been loaded anew in the same epoch.
        after.handle(transactional_id, complete, THE_BROKER)
        return True

    def _is_missing(self, partition: TopicPartition, producer_id: int, code: ErrorCode) -> bool:
        """Whether the marker must be tried again. A refusal is no end while the transaction is open there."""
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and leader_of(self.runtime.image, partition) is not None:
            return True  # its leader has only begun to hold it
        if code in NEEDS_NO_MARKER:
            return self.hanging.open_epoch(producer_id, partition) is not None
        return code is not ErrorCode.NONE

    # ---- reporting ------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> KnownTransaction:
        """The state of one transactional id.

        Raises:
            KafkaError: ``TRANSACTIONAL_ID_NOT_FOUND``, or those of ``_shard``.
        """
        machine = self._shard(transactional_id).machine
        metadata = machine.transactions.get(transactional_id)
        if metadata is None:
            text = f"transactional id {transactional_id!r:.200} is not known"
            raise KafkaError(text, code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return self._known(machine, transactional_id, metadata)

    def _known(
        self, machine: TransactionMachine, transactional_id: str, metadata: TransactionMetadata
    ) -> KnownTransaction:
        partitions = metadata.partitions - self._marked.get(transactional_id, NO_PARTITIONS)
        return KnownTransaction(transactional_id, metadata, partitions, machine.client_ids.get(transactional_id))

    def transactions(self) -> Iterator[KnownTransaction]:
        """All of them.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``: they would not be all.
        """
        return self._transactions_of(self.runtime.led_shards())

    def _transactions_of(self, shards: Iterable[Shard[TransactionMachine]]) -> Iterator[KnownTransaction]:
        for shard in shards:
            for transactional_id, metadata in list(shard.machine.transactions.items()):
                yield self._known(shard.machine, transactional_id, metadata)
