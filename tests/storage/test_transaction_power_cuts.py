"""Whatever a power cut, a kill or a stop does to logs of transactions, readers of committed records get what is right.

``InterruptedTransactions`` says what is done and what is compared. ``POWER_CUT_SEEDS`` names other seeds for the long
run, ``20000:40000`` for instance; a failure names the seed and what the logs did.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from kafka_wire.records.batch import RecordBatch
from tests.storage import compaction_harness
from tests.storage.interrupted_transactions import InterruptedTransactions
from trio_broker.storage.cleaned_transactions import CleanedTransactions
from trio_broker.storage.cleaner import Cleaning
from trio_broker.storage.compaction_plan import CompactionRange, compaction_range
from trio_broker.storage.log import Log
from trio_broker.storage.open_transactions import OpenTransactions
from trio_broker.storage.producer_state import ProducerEntry, ProducerStates
from trio_broker.storage.segment_recovery import SegmentRecovery
from trio_broker.storage.transaction_index import TransactionIndex

SEEDS_PER_TEST = 5
SEEDS_OF_A_MISTAKE = range(140, 290)
"""Those that show the rarest mistake soon."""
FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("POWER_CUT_SEEDS", "100000:102000").split(":"))

DURABILITY = pytest.mark.parametrize("syncs", [True, False], ids=["fsync", "page-cache"])


def run(seed: int, *, syncs: bool, cut_before: int | None = None, lives: int = 3, steps: int = 40) -> int:
    """Live through some lives; return how often the disk was changed in the last one."""
    logs = InterruptedTransactions(seed, cut_before=cut_before, syncs=syncs)
    try:
        logs.run(lives, steps)
    except Exception as error:
        error.add_note("\n".join((f"seed {seed}, syncs {syncs}, cut before {cut_before}", *logs.story)))
        raise
    return logs.changes


@DURABILITY
@pytest.mark.parametrize("seed", range(0, 10, SEEDS_PER_TEST))
def test_a_transaction_is_whole_or_not_there(seed: int, syncs: bool):
    for each in range(seed, seed + SEEDS_PER_TEST):
        run(each, syncs=syncs)


def nothing(*arguments: object, **named: object) -> None:
    """Leave it undone."""


def high_watermark(transactions: OpenTransactions, offset: int) -> int:
    """Let readers of committed records see what is open."""
    return offset


def restore_no_transactions(states: ProducerStates, entries: list[ProducerEntry], end_offset: int) -> None:
    """Take the producers from a snapshot, and not what they have begun."""
    states.producers = {entry.producer_id: entry for entry in entries}
    states.transactions = OpenTransactions()
    states.end_offset = end_offset


def compact_to_the_recovery_point(log: Log, **named: Any) -> CompactionRange:
    """Trust in markers that are not on the disk."""
    durable, log.durable_stable_offset = log.durable_stable_offset, log.recovery_point
    try:
        return compaction_range(log, **named)
    finally:
        log.durable_stable_offset = durable


def drop_any_marker(transactions: CleanedTransactions, batch: RecordBatch) -> bool:
    return True


def always(*arguments: object) -> bool:
    return True


def never(*arguments: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (TransactionIndex, "append", nothing),
        (OpenTransactions, "last_stable_offset", high_watermark),
        (ProducerStates, "restore", restore_no_transactions),
        (compaction_harness, "compaction_range", compact_to_the_recovery_point),
        (CleanedTransactions, "_may_discard_marker", drop_any_marker),
        (CleanedTransactions, "_is_aborted", never),
        (Cleaning, "_is_past_horizon", always),
        (Cleaning, "_index_aborted", nothing),
        (SegmentRecovery, "_has_lost_batches", never),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_mistakes_are_found(monkeypatch, owner: object, name: str, mistake: Callable[..., Any]):
    """A storage that makes one lets a reader see what is wrong with some of the seeds."""
    monkeypatch.setattr(owner, name, mistake)

    def fails(seed: int) -> bool:
        try:
            run(seed, syncs=seed % 2 == 0)
        except Exception:
            return True
        return False

    assert any(fails(seed) for seed in SEEDS_OF_A_MISTAKE)


@pytest.mark.soak
@DURABILITY
@pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED, 100))
def test_many_more_seeds(seed: int, syncs: bool):
    for each in range(seed, min(seed + 100, END_SEED)):
        run(each, syncs=syncs)


@pytest.mark.soak
@DURABILITY
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_the_power_may_go_before_any_operation_of_a_long_life(syncs: bool, first: int):
    for number in range(first, first + 100):
        run(1, cut_before=number, lives=1, steps=300, syncs=syncs)
