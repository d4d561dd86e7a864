"""The transactions of a cluster, for the admin app: those that this broker coordinates, and a report on those of all.

A transaction is known to its coordinator, and what it holds back to the leader of each partition, so that one hangs
where no coordinator of any broker has it open. A report on all of them is kept for a while, as that on groups is; see
``groups``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs

from broker_admin.node_addresses import NODE_API
from broker_admin.views.cluster.transactions import (
    PartitionAbort,
    TransactionAbort,
    TransactionDetail,
    TransactionPartition,
    TransactionRefused,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.transactions import STATE_NAMES
from trio_broker.broker_view.cached_report import CachedReport
from trio_broker.broker_view.cluster.coordinators import coordinator_of
from trio_broker.broker_view.cluster.groups import REPORT_PAUSE_FACTOR, REPORT_SECONDS
from trio_broker.broker_view.cluster.peers import LivePeersView
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import MAX_VALUES
from trio_broker.common.request_phase import ignore_release
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.entries import ValueChange
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions.transaction_coordinator import KnownTransaction
from trio_broker.coordinator.transactions.transaction_report import (
    ONGOING,
    held_back_partition,
    holding_transaction,
    is_open,
    statistics_of,
    transaction_report,
    transaction_snapshot,
)
from trio_broker.coordinator.transactions.transaction_snapshot import (
    HeldBackPartition,
    TransactionReport,
    TransactionSnapshot,
    TransactionStatistics,
)
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition
from trio_broker.partition.transaction_end import TransactionEnd

COORDINATED_TRANSACTIONS = f"{NODE_API}/coordinated-transactions"


class LiveTransactionsView:
    """The part of the admin app's view that is about transactions."""

    def __init__(self, services: BrokerServices, peers: LivePeersView) -> None:
        self.services, self.peers = services, peers
        kept = partial(CachedReport, clock=services.clock, seconds=REPORT_SECONDS, pause_factor=REPORT_PAUSE_FACTOR)
        self._report: CachedReport[TransactionReport] = kept(self._collect)
        self._of_all: CachedReport[TransactionReport] = kept(self._put_together)

    # ---- all of them ----

    async def report(self) -> TransactionReport:
        return await (self._of_all if self.peers.broker_ids() else self._report).get()

    async def coordinated(self) -> TransactionReport:
        return await self._report.get()

    async def _collect(self) -> TransactionReport:
        services = self.services
        led = [each for each in services.replicas.partitions() if each.state.is_leader]
        return await transaction_report(services.transactions, led, services.clock.now_ms())

    async def _put_together(self) -> TransactionReport:
        own = await self._report.get()
        others = await self.peers.fetch_each(COORDINATED_TRANSACTIONS, TransactionReport)
        put_together = partial(together, [own, *others.values.values()], is_complete=not others.missing)
        return await self.services.runtime.workers.run(put_together)

    async def statistics(self) -> TransactionStatistics:
        """The numbers of what is coordinated and led here, and the counters, for metrics. What hangs is known of all
        brokers together only."""
        own, of_all = await self.coordinated(), await self.report()
        hanging = {(each.topic, each.partition): each for each in of_all.held_back}
        held_back = tuple(hanging.get((each.topic, each.partition), each) for each in own.held_back)
        return await statistics_of(self.services.transactions, attrs.evolve(own, held_back=held_back))

    def coordinator(self, transactional_id: str) -> int | None:
        return coordinator_of(self.services.metadata_cache.image, TRANSACTION_STATE_TOPIC, transactional_id)

    # ---- one of them ----

    async def get(self, transactional_id: str) -> TransactionDetail | None:
        try:
            known = self.services.transactions.describe(transactional_id)
        except KafkaError:
            return None
        now_ms = self.services.clock.now_ms()
        return TransactionDetail(
            transaction=transaction_snapshot(known, now_ms),
            partitions=tuple(
                [
                    TransactionPartition(
                        topic=place.topic, partition=place.partition, held_back=self._held_back(known, place, now_ms)
                    )
                    async for place in InTurns(sorted(known.partitions))
                ]
            ),
        )

    def _held_back(self, known: KnownTransaction, place: TopicPartition, now_ms: int) -> HeldBackPartition | None:
        """The partition as ``known`` holds it back, None if it does not."""
        try:
            partition = self._partition(place)
        except KafkaError:
            return None
        holding = holding_transaction(partition)
        if holding is None or holding.producer_id != known.metadata.producer_id:
            return None
        return held_back_partition(holding, known, now_ms, is_complete=True)

    def _partition(self, place: TopicPartition) -> Partition:
        """The partition, if it can be used.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_OR_PARTITION``, or the partition's failure.
        """
        partition = self.services.replicas.topic(place.topic).partition(place.partition)
        partition.require_leader()
        return partition

    # ---- aborting ----

    async def abort(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, dry_run: bool
    ) -> TransactionAbort:
        transactions = self.services.transactions
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        try:
            if TRANSACTION_STATE_TOPIC not in self.services.metadata_cache.image.topics:
                # The first producer with a transactional id makes the topic; until then nobody coordinates any.
                raise KafkaError("there is no transactional id", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
            known = transactions.describe(transactional_id)
            state = STATE_NAMES[known.metadata.status]
            if state != ONGOING:
                raise KafkaError(f"it is {state}, not {ONGOING}", code=ErrorCode.INVALID_TXN_STATE)
            if known.metadata.producer != producer:
                text = f"its producer is {known.metadata.producer_id} in epoch {known.metadata.producer_epoch} by now"
                raise KafkaError(text, code=ErrorCode.PRODUCER_FENCED)
            if not dry_run:
                await transactions.abort_transaction(
                    transactional_id, producer, known.metadata.start_ms, ignore_release
                )
        except KafkaError as error:
            raise TransactionRefused(error.code.name, str(error)) from error
        partitions = sorted(known.partitions)
        if not dry_run:
            self._report.expire()
            values = tuple(ValueChange(f"{each}", "open", "aborted") for each in partitions[:MAX_VALUES])
            further = len(partitions) - len(values)
            self._record(transactional_id, values, further)
            known = transactions.describe(transactional_id)
        return TransactionAbort(
            dry_run=dry_run,
            transactional_id=transactional_id,
            producer_id=known.metadata.producer_id,
            producer_epoch=known.metadata.producer_epoch,
            state=STATE_NAMES[known.metadata.status],
            partition_count=len(partitions),
        )

    async def abort_in_partition(
        self, topic: str, partition: int, start_offset: int, *, dry_run: bool
    ) -> PartitionAbort:
        place = TopicPartition(topic, partition)
        try:
            found = self._partition(place)
            end = await self._hanging_end(found, start_offset)
            if not dry_run:
                [code] = (await self.services.markers.write(end, [place], ignore_release)).values()
                if code:
                    raise KafkaError(f"{place}: the marker is refused with {code.name}", code=code)
        except KafkaError as error:
            raise TransactionRefused(error.code.name, str(error)) from error
        if not dry_run:
            self._report.expire()
            value = ValueChange(f"{place}", f"open since offset {start_offset}", "aborted")
            self._record(f"of producer {end.producer_id}", (value,), 0)
        return PartitionAbort(
            dry_run=dry_run,
            topic=topic,
            partition=partition,
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            start_offset=start_offset,
            last_stable_offset=found.last_stable_offset,
        )

    async def _hanging_end(self, partition: Partition, start_offset: int) -> TransactionEnd:
        """The end of the hanging transaction that begins at ``start_offset``.

        Raises:
            KafkaError: none is open there, a coordinator will end it, or not all transactions are loaded.
        """
        place, producers = partition.topic_partition, partition.producers
        producer_id = producers.transactions.undecided.get(start_offset)
        entry = None if producer_id is None else producers.producers.get(producer_id)
        if entry is None:
            text = f"{place}: no open transaction begins at offset {start_offset}"
            raise KafkaError(text, code=ErrorCode.INVALID_TXN_STATE)
        end = TransactionEnd(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            committed=False,
            # Kafka's tool says 0 where no coordinator has written yet: none has an older epoch.
            coordinator_epoch=max(entry.coordinator_epoch, 0),
        )
        async for known in InTurns(self.services.transactions.transactions()):
            if is_open(known) and known.metadata.producer_id == producer_id and place in known.partitions:
                text = (
                    f"{place}: transactional id {known.transactional_id!r:.200} has it open and will end it: abort that"
                )
                raise KafkaError(text, code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if producers.transactions.undecided.get(start_offset) != producer_id:
            raise KafkaError(f"{place}: the transaction has ended meanwhile", code=ErrorCode.INVALID_TXN_STATE)
        return end

    def _record(self, resource: str, values: tuple[ValueChange, ...], further_values: int) -> None:
        made = MadeChange(ChangeAction.ABORTED, ChangedResource.TRANSACTION, resource, values, further_values)
        self.services.changes.record(made)


def together(reports: Sequence[TransactionReport], *, is_complete: bool) -> TransactionReport:
    """One report of those of all brokers: what each leads, with the transactions that any of them coordinates.

    ``is_complete`` says that all brokers have reported; else nothing is said to hang that another one may end.
    """
    is_complete = is_complete and all(each.is_complete for each in reports)
    transactions = {each.transactional_id: each for report in reports for each in report.transactions}
    open_by_producer = {each.producer_id: each for each in transactions.values() if each.is_open}
    return TransactionReport(
        collected_at_ms=reports[0].collected_at_ms,
        is_complete=is_complete,
        transactions=tuple(transactions.values()),
        held_back=tuple(
            held_back_by(each, open_by_producer.get(each.producer_id or 0), is_complete=is_complete)
            for report in reports
            for each in report.held_back
        ),
    )


def held_back_by(
    held_back: HeldBackPartition, coordinated: TransactionSnapshot | None, *, is_complete: bool
) -> HeldBackPartition:
    """``held_back`` with the transaction that a coordinator of some broker has open of its producer."""
    if held_back.transactional_id is not None or held_back.producer_id is None:
        return held_back
    if coordinated is not None:
        return attrs.evolve(held_back, transactional_id=coordinated.transactional_id, is_hanging=False)
    return held_back if is_complete else attrs.evolve(held_back, is_hanging=None)
