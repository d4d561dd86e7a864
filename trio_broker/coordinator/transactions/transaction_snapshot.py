"""Transactions as values for lists, metrics and the admin API.

The attributes of these classes are the names in the JSON of the API (docs/decisions/0031). Nothing here acts.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class TransactionSnapshot:
    """One transactional id and its newest transaction.

    ``is_open`` says that the transaction is ongoing, or that its end is decided and a marker is missing somewhere; then
    it has a ``started_at_ms`` and an age, and ``partition_count`` partitions have no marker yet. ``is_overdue`` says
    that the broker should have ended it by itself, and has not. ``client_id`` is None if its producer has not been
    heard of since the broker's start.
    """

    transactional_id: str
    state: str
    is_open: bool
    is_overdue: bool
    producer_id: int
    producer_epoch: int
    client_id: str | None
    timeout_ms: int
    started_at_ms: int | None
    age_seconds: float | None
    last_update_at_ms: int
    partition_count: int


@attrs.frozen(kw_only=True)
class HeldBackPartition:
    """One partition whose last stable offset is behind its high watermark, so that committed readers wait.

    ``first_offset`` is where the transaction begins that holds it back, which ``producer_id`` has open there; it is
    None if its marker is written and not yet durable. ``held_back_records`` counts the offsets from there on, and
    ``open_transactions`` the transactions that are open behind it, too. ``held_since_ms`` is when the transaction
    began by its coordinator, or the time of the oldest batch that is remembered of its producer.

    ``transactional_id`` is that of the transaction. ``is_hanging`` says that no coordinator will end it here; None
    while not all transactions are loaded.
    """

    topic: str
    partition: int
    last_stable_offset: int
    high_watermark: int
    held_back_records: int
    first_offset: int
    open_transactions: int
    producer_id: int | None
    producer_epoch: int | None
    coordinator_epoch: int | None
    transactional_id: str | None
    held_since_ms: int | None
    held_seconds: float | None
    is_hanging: bool | None


@attrs.frozen(kw_only=True)
class TransactionReport:
    """All transactional ids, and all partitions that are held back.

    ``is_complete`` is false while transactions are being loaded: then those are missing.
    """

    collected_at_ms: int
    is_complete: bool
    transactions: tuple[TransactionSnapshot, ...]
    held_back: tuple[HeldBackPartition, ...]


@attrs.frozen(kw_only=True)
class TransactionStatistics:
    """The transactions coordinated here, for metrics. Levels are current, counters begin with the broker's start.

    ``transactions`` counts transactional ids by state. ``oldest_seconds`` is the age of the oldest open transaction, 0
    without any. ``markers_pending`` counts partitions of decided transactions that have no marker yet,
    ``hanging_transactions`` partitions in which no coordinator will write one, and ``late_transactions`` partitions
    that are held back for longer than any transaction may be open. What timed out is counted as aborted, too.
    ``loading`` counts partitions of ``__transaction_state`` that cannot answer yet.
    """

    transactions: Mapping[str, int] = attrs.field(factory=dict)
    oldest_seconds: float = 0.0
    markers_pending: int = 0
    overdue: int = 0
    partitions_held_back: int = 0
    hanging_transactions: int = 0
    late_transactions: int = 0
    committed: int = 0
    aborted: int = 0
    timed_out: int = 0
    loading: int = 0
