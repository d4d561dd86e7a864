"""The transactions of a broker: what is open, what holds partitions back, and aborting.

A transaction that its coordinator knows is aborted as a whole; one that hangs, in each of its partitions. Every abort
may be a dry run, which is refused for the same reasons and changes nothing.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from trio_broker.coordinator.transactions.transaction_snapshot import (
    HeldBackPartition,
    TransactionReport,
    TransactionSnapshot,
)


@attrs.frozen(kw_only=True)
class TransactionPartition:
    """A partition of a transaction that has no marker yet. ``held_back`` is None where nothing holds it back, or
    something else does.
    """

    topic: str
    partition: int
    held_back: HeldBackPartition | None


@attrs.frozen(kw_only=True)
class TransactionDetail:
    """One transactional id. ``partitions`` are those of its open transaction, by topic and number; where only a part of
    them is given, ``transaction.partition_count`` counts all.
    """

    transaction: TransactionSnapshot
    partitions: tuple[TransactionPartition, ...]


@attrs.frozen(kw_only=True)
class TransactionAbort:
    """A transaction that was aborted, or with ``dry_run`` would be, with its state and epoch afterwards.

    The markers follow, so that its state may still be PrepareAbort.
    """

    dry_run: bool
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partition_count: int


@attrs.frozen(kw_only=True)
class PartitionAbort:
    """A hanging transaction that was aborted in one partition, or with ``dry_run`` would be."""

    dry_run: bool
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_stable_offset: int


class TransactionRefused(Exception):
    """An abort is refused, and nothing was changed.

    ``error`` is the name of Kafka's error code, ``reason`` one sentence that says what to do where that is known.
    """

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


class TransactionsView(Protocol):
    """The transactions of a broker, as the admin app sees them."""

    async def report(self) -> TransactionReport:
        """All of them, and what is held back, from a report that may be some seconds old."""
        ...

    async def coordinated(self) -> TransactionReport:
        """Those that this broker coordinates, and what is held back of what it leads, as ``report`` has them."""
        ...

    def coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates an id, which alone knows what is asked below; None if nobody does yet."""
        ...

    async def get(self, transactional_id: str) -> TransactionDetail | None:
        """One transactional id as it is now; None if there is none, or it is still being loaded."""
        ...

    async def abort(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, dry_run: bool
    ) -> TransactionAbort:
        """Abort the transaction that this producer has open, in all partitions, and fence the producer.

        Raises:
            TransactionRefused: as it says.
        """
        ...

    async def abort_in_partition(
        self, topic: str, partition: int, start_offset: int, *, dry_run: bool
    ) -> PartitionAbort:
        """Abort the hanging transaction that begins at ``start_offset``, in this partition.

        Raises:
            TransactionRefused: as it says; a coordinator will end the transaction here, for one.
        """
        ...
