"""The transaction index of one log segment: the aborted transactions whose marker lies in it.

A consumer that reads committed records only learns from every answer which producers' records to drop in the range
it was given; this file is where that is known from. A transaction may have begun in an older segment. Entries are 34
bytes, big-endian: int16 version 0, int64 producer id, first offset, last offset (the abort marker), last stable
offset after it. The file is created with its first entry, since most segments have none.

Source: Kafka's TransactionIndex and AbortedTxn; docs/formats/indexes.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from operator import attrgetter
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import BatchHeader
from trio_broker.runtime.disk import Disk, OpenMode, write_all
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.index_file import read_index_file

ENTRY_BYTES = 34
ENTRY_VERSION = 0
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = attrgetter("last_offset")


@attrs.frozen
class AbortedTransaction:
    """Records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` never happened.

    ``last_stable_offset`` is the log's last stable offset once the marker was written.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def has(self, batch: BatchHeader) -> bool:
        """Whether the transaction has written ``batch``."""
        return (
            batch.is_transactional
            and batch.producer_id == self.producer_id
            and self.first_offset <= batch.base_offset <= self.last_offset
        )


@attrs.frozen
class AbortedTransactionsFound:
    """What one segment knows of a range; ``complete`` when later segments cannot add to it."""

    transactions: tuple[AbortedTransaction, ...]
    complete: bool


def encode(transaction: AbortedTransaction) -> bytes:
    """Return one entry of the file."""
    return _ENTRY.pack(
        ENTRY_VERSION,
        transaction.producer_id,
        transaction.first_offset,
        transaction.last_offset,
        transaction.last_stable_offset,
    )


class TransactionIndex:
    """The entries of one ``.txnindex`` file. Small and rarely written, so it is written through."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        self.disk = disk
        self.path = path
        self._transactions: list[AbortedTransaction] | None = None

    @property
    def transactions(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers; read from the file when first asked for.

        Raises:
            CorruptIndex: torn, of another version, or out of order.
        """
        if self._transactions is None:
            self._transactions = self._load() if self.disk.exists(self.path) else []
        return self._transactions

    def private_copy(self) -> TransactionIndex:
        """Return one for a worker thread, which reads the file for itself if that has not been done."""
        copy = TransactionIndex(self.disk, self.path)
        copy._transactions = self._transactions
        return copy

    def adopt(self, copy: TransactionIndex) -> None:
        """Take over the entries that ``copy`` has read."""
        if self._transactions is None:
            self._transactions = copy._transactions

    def _load(self) -> list[AbortedTransaction]:
        transactions: list[AbortedTransaction] = []
        for version, *fields in _ENTRY.iter_unpack(read_index_file(self.disk, self.path, ENTRY_BYTES)):
            transaction = AbortedTransaction(*fields)
            if version != ENTRY_VERSION:
                raise CorruptIndex(f"{self.path}: version {version}, expected {ENTRY_VERSION}")
            if transaction.first_offset > transaction.last_offset:
                raise CorruptIndex(f"{self.path}: {transaction} ends before it begins")
            if transactions and transaction.last_offset <= transactions[-1].last_offset:
                raise CorruptIndex(f"{self.path}: {transaction} is not after {transactions[-1]}")
            transactions.append(transaction)
        return transactions

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction whose marker is written to the log in the same step; nothing has changed if this raises."""
        known = self.transactions
        assert not known or transaction.last_offset > known[-1].last_offset, f"{transaction} after {known[-1]}"
        file = self.disk.open(self.path, OpenMode.CREATE)
        try:
            write_all(file, encode(transaction), len(known) * ENTRY_BYTES)
        except OSError:
            # A part of an entry makes the file unreadable.
            file.truncate(len(known) * ENTRY_BYTES)
            raise
        known.append(transaction)

    def overlapping(self, start_offset: int, end_offset: int) -> AbortedTransactionsFound:
        """Return the aborted transactions with records in ``start_offset`` up to ``end_offset`` (exclusive)."""
        transactions = self.transactions
        found: list[AbortedTransaction] = []
        # Every fetch of committed records asks, and a segment may have a million entries.
        first = bisect_left(transactions, start_offset, key=_LAST_OFFSET)
        for index in range(first, len(transactions)):
            transaction = transactions[index]
            if transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                # Everything before the end was decided when this marker was written; later ones lie behind it.
                return AbortedTransactionsFound(tuple(found), complete=True)
        return AbortedTransactionsFound(tuple(found), complete=False)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at ``offset`` or behind it."""
        kept = [transaction for transaction in self.transactions if transaction.last_offset < offset]
        if len(kept) != len(self.transactions):
            self._transactions = kept
            self.disk.open(self.path, OpenMode.UPDATE).truncate(len(kept) * ENTRY_BYTES)

    def clear(self) -> None:
        """Forget all entries; recovery fills the index anew."""
        self._transactions = []
        self.disk.unlink(self.path, missing_ok=True)
