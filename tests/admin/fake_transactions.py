"""Transactions of a fake broker: two that are open, one that ended, and one that hangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_broker.coordinator.transactions.transaction_snapshot import (
    HeldBackPartition,
    TransactionReport,
    TransactionSnapshot,
)

HANGING_PRODUCER = 40_004
"""No transactional id has it."""


def snapshot(transactional_id: str, now_ms: int, **fields: Any) -> TransactionSnapshot:
    """An ongoing transaction in one partition, which began ten seconds ago."""
    defaults: Mapping[str, Any] = {
        "state": "Ongoing",
        "is_open": True,
        "is_overdue": False,
        "producer_id": 4000,
        "producer_epoch": 3,
        "client_id": "till-1",
        "timeout_ms": 60_000,
        "started_at_ms": now_ms - 10_000,
        "age_seconds": 10.0,
        "last_update_at_ms": now_ms - 9_000,
        "partition_count": 1,
    }
    return TransactionSnapshot(transactional_id=transactional_id, **{**defaults, **fields})


def held_back(topic: str, partition: int, now_ms: int, **fields: Any) -> HeldBackPartition:
    """A partition that the transaction ``billing`` holds back since ten seconds."""
    defaults: Mapping[str, Any] = {
        "last_stable_offset": 100,
        "high_watermark": 142,
        "held_back_records": 42,
        "first_offset": 100,
        "open_transactions": 1,
        "producer_id": 4000,
        "producer_epoch": 3,
        "coordinator_epoch": 0,
        "transactional_id": "billing",
        "held_since_ms": now_ms - 10_000,
        "held_seconds": 10.0,
        "is_hanging": False,
    }
    return HeldBackPartition(topic=topic, partition=partition, **{**defaults, **fields})


def fake_transactions(now_ms: int) -> TransactionReport:
    """``billing`` holds ``orders-1`` back, and a producer that nobody knows ``clickstream-2``."""
    return TransactionReport(
        collected_at_ms=now_ms,
        is_complete=True,
        transactions=(
            snapshot("billing", now_ms),
            snapshot(
                "invoices/2026", now_ms, state="PrepareCommit", producer_id=4001, age_seconds=95.0, is_overdue=True,
                started_at_ms=now_ms - 95_000, client_id=None, partition_count=3,
            ),
            snapshot(
                "idle", now_ms, state="CompleteCommit", is_open=False, producer_id=4002, started_at_ms=None,
                age_seconds=None, partition_count=0,
            ),
        ),
        held_back=(
            held_back("orders", 1, now_ms),
            held_back(
                "clickstream", 2, now_ms, producer_id=HANGING_PRODUCER, producer_epoch=0, coordinator_epoch=-1,
                transactional_id=None, held_since_ms=now_ms - 7_200_000, held_seconds=7200.0, is_hanging=True,
                held_back_records=9001, open_transactions=2,
            ),
        ),
    )  # fmt: skip
