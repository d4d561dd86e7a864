"""What the pages say of transactions: addresses, commands, and what holds a partition back, in words."""

from __future__ import annotations

from urllib.parse import quote

from broker_admin.texts import counted, short_duration_text
from trio_broker.coordinator.transactions.transaction_snapshot import HeldBackPartition

UNROUTABLE_IDS = frozenset({"", ".", ".."})
"""Transactional ids that no path can carry."""


def transaction_address(transactional_id: str) -> str:
    """The page of a transactional id."""
    if transactional_id in UNROUTABLE_IDS:
        return f"/transactions/-?id={quote(transactional_id, safe='')}"
    return f"/transactions/{quote(transactional_id, safe='')}"


def held_for_text(held_back: HeldBackPartition) -> str:
    """How much is held back, and for how long: ``42 records for 10 s``."""
    records = counted(held_back.held_back_records, "record")
    return records if held_back.held_seconds is None else f"{records} for {short_duration_text(held_back.held_seconds)}"


def holder_text(held_back: HeldBackPartition) -> str:
    """Why the partition is held back, where no transactional id says it; empty where one does."""
    if held_back.producer_id is None:
        return "its marker is not durable yet"
    producer = f"producer {held_back.producer_id}, epoch {held_back.producer_epoch}"
    if held_back.is_hanging:
        return f"{producer}; no coordinator knows its transaction here, so it hangs"
    return producer if held_back.transactional_id is None else ""
