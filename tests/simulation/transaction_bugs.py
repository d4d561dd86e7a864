"""Bugs of transactions, put into the broker on purpose, to show that the simulation finds them.

Source: the habit of testing a test; mutation testing.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from trio_broker.common.request_phase import ignore_release
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator.group_machine import GroupMachine
from trio_broker.coordinator.marker_writer import MarkerWriter
from trio_broker.coordinator.offsets.pending_offsets import PendingOffsets
from trio_broker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from trio_broker.coordinator.transactions.transaction_machine import TransactionMachine
from trio_broker.coordinator.transactions.transaction_metadata import TransactionMetadata
from trio_broker.handlers.support.transactional_produce import TransactionalProduce
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.storage.open_transactions import OpenTransactions
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.transaction_index import TransactionIndex


def markers_are_lost(patch: pytest.MonkeyPatch) -> None:
    """In the first partition of each topic."""
    append = MarkerWriter._append

    def append_others(writer: MarkerWriter, partition: Any, end: TransactionEnd) -> Steps[int]:
        if partition.topic_partition.partition == 0:
            return int(partition.log_end_offset)
        return (yield from append(writer, partition, end))

    patch.setattr(MarkerWriter, "_append", append_others)


def markers_have_the_epoch_before(patch: pytest.MonkeyPatch) -> None:
    append = MarkerWriter._append

    def append_wrong(writer: MarkerWriter, partition: Any, end: TransactionEnd) -> Steps[int]:
        return append(writer, partition, attrs.evolve(end, producer_epoch=end.producer_epoch - 1))

    patch.setattr(MarkerWriter, "_append", append_wrong)


def the_last_stable_offset_is_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def too_high(transactions: OpenTransactions, high_watermark: int) -> int:
        transactions.advance_high_watermark(high_watermark)
        return high_watermark

    patch.setattr(OpenTransactions, "last_stable_offset", too_high)


def aborted_transactions_are_not_indexed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionIndex, "append", lambda index, transaction: None)


def a_restart_forgets_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """As if their index was not read."""
    patch.setattr(TransactionIndex, "_load", lambda index: [])


def zombies_are_let_in(patch: pytest.MonkeyPatch) -> None:
    of_producer = TransactionMachine._of_producer

    def of_any_epoch(machine: TransactionMachine, transactional_id: str, producer: Any) -> TransactionMetadata:
        metadata = machine.transactions.get(transactional_id)
        epoch = producer.epoch if metadata is None else metadata.producer_epoch
        return of_producer(machine, transactional_id, attrs.evolve(producer, epoch=epoch))

    patch.setattr(TransactionMachine, "_of_producer", of_any_epoch)
    patch.setattr(ProducerStates, "check_epoch", lambda states, header: None)


def offsets_count_although_the_transaction_is_aborted(patch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end
    patch.setattr(
        PendingOffsets, "end", lambda offsets, producer_id, committed: end(offsets, producer_id, committed=True)
    )


def offsets_count_before_the_transaction_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupMachine, "apply_pending", lambda machine, producer_id, record: machine.apply(record))


def the_second_protocol_keeps_its_epoch(patch: pytest.MonkeyPatch) -> None:
    prepared = TransactionMetadata.prepared

    def with_the_same_epoch(metadata: TransactionMetadata, *arguments: Any) -> TransactionMetadata:
        return attrs.evolve(prepared(metadata, *arguments), producer_epoch=metadata.producer_epoch)

    patch.setattr(TransactionMetadata, "prepared", with_the_same_epoch)
    patch.setattr(TransactionEnd, "has_raised_epoch", False)


def markers_do_not_wait_for_the_decision(patch: pytest.MonkeyPatch) -> None:
    """To be durable."""
    until_durable = CoordinatorRuntime.until_durable

    async def of_clients(runtime: Any, shard: Any, required_offset: int, release_handler: Any) -> None:
        if release_handler is not ignore_release:
            await until_durable(runtime, shard, required_offset, release_handler)

    patch.setattr(CoordinatorRuntime, "until_durable", of_clients)


def late_batches_are_not_checked_again(patch: pytest.MonkeyPatch) -> None:
    """Immediately before the append: the transaction may have ended while the request waited."""
    patch.setattr(TransactionalProduce, "_require_added", lambda production, partition, producer: None)
