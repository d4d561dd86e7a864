"""What is open, and what holds the last stable offset of partitions back: a report over all transactions.

Made in turns, so that ten thousand transactional ids and partitions do not hold the event loop. What is found while
other tasks run belongs together all the same: a partition is looked at before the coordinator and once more after it,
and reported as hanging only if the transaction was open in it all the time.

Source: Kafka's TransactionsCommand (find-hanging); KIP-664.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import NO_TIMESTAMP
from kafka_wire.stored.transactions import STATE_NAMES, TransactionStatus
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.coordinator.transactions.transaction_coordinator import KnownTransaction, TransactionCoordinator
from trio_broker.coordinator.transactions.transaction_snapshot import (
    HeldBackPartition,
    TransactionReport,
    TransactionSnapshot,
    TransactionStatistics,
)
from trio_broker.partition.partition import Partition

ONGOING: Final = STATE_NAMES[TransactionStatus.ONGOING]

OVERDUE_SECONDS: Final = 30.0
"""How long after its timeout, or after its end was decided, a transaction may still be open: as long as one attempt to
write a marker."""

LATE_SECONDS: Final = 300.0
"""How long after ``transaction.max.timeout.ms`` Kafka calls a transaction late."""


@attrs.frozen
class HoldingTransaction:
    """What a partition's log knows of the transaction that holds it back: None for the producer of a decided one."""

    partition: Partition
    first_offset: int
    producer_id: int | None


async def transaction_report(
    coordinator: TransactionCoordinator, partitions: Iterable[Partition], now_ms: int
) -> TransactionReport:
    """All transactions of ``coordinator``, and those of ``partitions`` that are held back, in no order."""
    holding = [each async for partition in InTurns(list(partitions)) if (each := holding_transaction(partition))]
    known, is_complete = [], True
    try:
        known = [each async for each in InTurns(coordinator.transactions())]
    except KafkaError:
        is_complete = False
    open_by_producer = {each.metadata.producer_id: each async for each in InTurns(known) if is_open(each)}
    held_back = [
        held_back_partition(each, open_by_producer.get(each.producer_id or 0), now_ms, is_complete=is_complete)
        async for each in InTurns(holding)
        if holding_transaction(each.partition) == each
    ]
    return TransactionReport(
        collected_at_ms=now_ms,
        is_complete=is_complete,
        transactions=tuple([transaction_snapshot(each, now_ms) async for each in InTurns(known)]),
        held_back=tuple(held_back),
    )


def is_open(known: KnownTransaction) -> bool:
    """Whether a transaction is ongoing, or decided with a marker missing."""
    return not known.metadata.is_idle


def transaction_snapshot(known: KnownTransaction, now_ms: int) -> TransactionSnapshot:
    metadata = known.metadata
    started_at_ms = metadata.start_ms if is_open(known) and metadata.start_ms != NO_TIMESTAMP else None
    due_ms = metadata.last_update_ms if metadata.is_prepared else metadata.start_ms + metadata.timeout_ms
    return TransactionSnapshot(
        transactional_id=known.transactional_id,
        state=STATE_NAMES[metadata.status],
        is_open=is_open(known),
        is_overdue=is_open(known) and now_ms > due_ms + OVERDUE_SECONDS * 1000,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        client_id=known.client_id,
        timeout_ms=metadata.timeout_ms,
        started_at_ms=started_at_ms,
        age_seconds=None if started_at_ms is None else max(0, now_ms - started_at_ms) / 1000,
        last_update_at_ms=metadata.last_update_ms,
        partition_count=len(known.partitions),
    )


def holding_transaction(partition: Partition) -> HoldingTransaction | None:
    """What holds the last stable offset of a partition back, None if nothing does."""
    if partition.last_stable_offset >= partition.high_watermark:
        return None
    transactions = partition.producers.transactions
    first_offset = transactions.first_unstable_offset
    if first_offset is None:
        return None
    return HoldingTransaction(partition, first_offset, transactions.undecided.get(first_offset))


def held_back_partition(
    holding: HoldingTransaction, coordinated: KnownTransaction | None, now_ms: int, *, is_complete: bool
) -> HeldBackPartition:
    """``coordinated`` is the open transaction of the producer, as far as a coordinator knows one."""
    partition, place = holding.partition, holding.partition.topic_partition
    entry = None if holding.producer_id is None else partition.producers.producers.get(holding.producer_id)
    if holding.producer_id is None or (coordinated is not None and place not in coordinated.partitions):
        coordinated = None
    since_ms = None
    if coordinated is not None:
        since_ms = coordinated.metadata.start_ms
    elif entry is not None:
        since_ms = min((batch.timestamp_ms for batch in entry.batches), default=entry.last_timestamp_ms)
    is_hanging = None if not is_complete else entry is not None and coordinated is None
    return HeldBackPartition(
        topic=place.topic,
        partition=place.partition,
        last_stable_offset=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        held_back_records=partition.high_watermark - partition.last_stable_offset,
        first_offset=holding.first_offset,
        open_transactions=len(partition.producers.transactions.undecided),
        producer_id=holding.producer_id,
        producer_epoch=None if entry is None else entry.producer_epoch,
        coordinator_epoch=None if entry is None else entry.coordinator_epoch,
        transactional_id=None if coordinated is None else coordinated.transactional_id,
        held_since_ms=since_ms,
        held_seconds=None if since_ms is None else max(0, now_ms - since_ms) / 1000,
        is_hanging=is_hanging,
    )


async def statistics_of(coordinator: TransactionCoordinator, report: TransactionReport) -> TransactionStatistics:
    """The numbers of ``report``, and what the machines of ``coordinator`` have counted."""
    states: Counter[str] = Counter()
    oldest_seconds, markers_pending, overdue = 0.0, 0, 0
    async for each in InTurns(report.transactions):
        states[each.state] += 1
        overdue += each.is_overdue
        if each.is_open:
            oldest_seconds = max(oldest_seconds, each.age_seconds or 0.0)
            markers_pending += each.partition_count if each.state != ONGOING else 0
    shards = list(coordinator.runtime.shards.values())
    late_seconds = coordinator.settings.transaction_max_timeout_ms / 1000 + LATE_SECONDS
    return TransactionStatistics(
        transactions=states,
        oldest_seconds=oldest_seconds,
        markers_pending=markers_pending,
        overdue=overdue,
        partitions_held_back=len(report.held_back),
        hanging_transactions=sum([bool(each.is_hanging) async for each in InTurns(report.held_back)]),
        late_transactions=sum([(each.held_seconds or 0.0) > late_seconds async for each in InTurns(report.held_back)]),
        committed=sum(shard.machine.committed for shard in shards),
        aborted=sum(shard.machine.aborted for shard in shards),
        timed_out=sum(shard.machine.timed_out for shard in shards),
        loading=sum(not shard.is_active and not shard.is_closed for shard in shards),
    )
