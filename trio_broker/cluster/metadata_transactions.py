"""Transactions of metadata records: decisions that are too large for one batch, and count as a whole or not at all.

Between a BeginTransactionRecord and an EndTransactionRecord nothing else is in the log. An AbortTransactionRecord in
place of the end is written by the next controller, or by the same one after an append that failed: what came before
it was never decided.

Source: Kafka's MetadataBatchLoader (KIP-868).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from kafka_wire.stored.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from trio_broker.cluster.metadata_delta import ContradictoryMetadata


@attrs.define
class MetadataTransactions:
    """The transaction that is open at the end of what was read, if any is."""

    _pending: list[Any] | None = None
    name: str | None = None
    """Of the last one that has begun."""

    @property
    def is_open(self) -> bool:
        return self._pending is not None

    def has_no_part_in(self, records: Sequence[Any]) -> bool:
        """Whether none is open, and ``records``, which are a batch, begin none: each begins a batch."""
        return self._pending is None and not (records and isinstance(records[0], BeginTransactionRecord))

    def settled(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yield those of ``records``, the next of the log, that count now, and of the open transaction if it ends.

        Raises:
            ContradictoryMetadata: a transaction begins within another, or ends without a beginning.
        """
        for record in records:
            match record:
                case BeginTransactionRecord():
                    self._require(is_open=False, record=record)
                    self._pending, self.name = [], record.name
                case EndTransactionRecord():
                    self._require(is_open=True, record=record)
                    pending, self._pending = self._pending, None
                    yield from pending or ()
                case AbortTransactionRecord():
                    self._require(is_open=True, record=record)
                    self._pending = None
                case _ if self._pending is None:
                    yield record
                case _:
                    self._pending.append(record)

    def _require(self, *, is_open: bool, record: Any) -> None:
        if self.is_open != is_open:
            state = "within another" if self.is_open else "without a beginning"
            raise ContradictoryMetadata(f"a transaction of metadata records {state}: {record}")
