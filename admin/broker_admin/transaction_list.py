"""Which transactions and partitions a list shows, and by what it can be ordered.

Pure functions over a report, which may hold tens of thousands of either; their callers run them in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from broker_admin.group_list import folded
from broker_admin.listing import ListQuery, SortValue, ordered_by, take_page
from broker_admin.schemas import bounded
from kafka_wire.limits import MAX_PRODUCER_ID
from trio_broker.coordinator.transactions.transaction_snapshot import (
    HeldBackPartition,
    TransactionReport,
    TransactionSnapshot,
)

TRANSACTION_COLUMNS: Mapping[str, Callable[[TransactionSnapshot], SortValue]] = {
    "transactional_id": lambda each: each.transactional_id,
    "age": lambda each: each.age_seconds,
    "state": lambda each: each.state,
    "producer_id": lambda each: each.producer_id,
    "client_id": lambda each: each.client_id,
    "timeout": lambda each: each.timeout_ms,
    "partitions": lambda each: each.partition_count,
    "last_update": lambda each: each.last_update_at_ms,
}

HELD_BACK_COLUMNS: Mapping[str, Callable[[HeldBackPartition], SortValue]] = {
    "partition": lambda each: partition_id(each),
    "held_seconds": lambda each: each.held_seconds,
    "held_back": lambda each: each.held_back_records,
    "producer_id": lambda each: each.producer_id,
    "transactional_id": lambda each: each.transactional_id,
}


@attrs.frozen(kw_only=True)
class TransactionsQuery(ListQuery):
    """Which transactional ids are wanted: those with an open transaction unless ``open`` is false, or those in a
    ``state``, whose case does not count.
    """

    order: str = ordered_by("-age", TRANSACTION_COLUMNS)
    open: bool = True
    state: tuple[str, ...] = ()
    producer_id: int | None = bounded(None, minimum=0, maximum=MAX_PRODUCER_ID)


@attrs.frozen(kw_only=True)
class HeldBackQuery(ListQuery):
    """Which partitions are wanted that a transaction holds back: of one topic, or only where it hangs."""

    order: str = ordered_by("-held_seconds", HELD_BACK_COLUMNS)
    topic: str | None = None
    hanging: bool = False


@attrs.frozen(kw_only=True)
class TransactionList:
    """A part of the list of transactional ids: ``items`` of the ``matching`` ones of all ``total``.

    ``next_cursor`` leads to the next part. ``is_complete`` is false while the broker still loads some of them.
    """

    items: tuple[TransactionSnapshot, ...]
    total: int
    matching: int
    next_cursor: str | None
    collected_at_ms: int
    is_complete: bool


@attrs.frozen(kw_only=True)
class HeldBackList:
    """A part of the list of partitions that are held back; see ``TransactionList``."""

    items: tuple[HeldBackPartition, ...]
    total: int
    matching: int
    next_cursor: str | None
    collected_at_ms: int
    is_complete: bool


def partition_id(held_back: HeldBackPartition) -> str:
    """The partition as an id whose order is that of topics and numbers."""
    return f"{held_back.topic}-{held_back.partition:010}"


def select_transactions(report: TransactionReport, query: TransactionsQuery) -> TransactionList:
    """The part of ``report`` that ``query`` asks for.

    Raises:
        Problem: the cursor is not one of this list.
    """
    states = folded(query.state)
    wanted = [
        each
        for each in report.transactions
        if (each.state.casefold() in states if states else each.is_open or not query.open)
        and query.producer_id in (None, each.producer_id)
    ]
    page = take_page(wanted, query, id_of=lambda each: each.transactional_id, columns=TRANSACTION_COLUMNS)
    return TransactionList(
        items=page.items,
        total=len(report.transactions),
        matching=page.matching,
        next_cursor=page.next_cursor,
        collected_at_ms=report.collected_at_ms,
        is_complete=report.is_complete,
    )


def select_held_back(report: TransactionReport, query: HeldBackQuery) -> HeldBackList:
    """The part of ``report`` that ``query`` asks for; ``search`` looks through the names of partitions.

    Raises:
        Problem: the cursor is not one of this list.
    """
    wanted = [
        each
        for each in report.held_back
        if query.topic in (None, each.topic) and (each.is_hanging or not query.hanging)
    ]
    page = take_page(
        wanted,
        query,
        id_of=partition_id,
        columns=HELD_BACK_COLUMNS,
        search_text=lambda each: f"{each.topic}-{each.partition}",
    )
    return HeldBackList(
        items=page.items,
        total=len(report.held_back),
        matching=page.matching,
        next_cursor=page.next_cursor,
        collected_at_ms=report.collected_at_ms,
        is_complete=report.is_complete,
    )


def held_back_of(report: TransactionReport, topic: str) -> Mapping[int, HeldBackPartition]:
    """The partitions of ``topic`` that are held back, by number."""
    return {each.partition: each for each in report.held_back if each.topic == topic}
