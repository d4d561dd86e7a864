"""The transaction index: Kafka's bytes, and which aborted transactions a reader receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.transaction_index import AbortedTransaction, TransactionIndex

GOLDEN = bytes.fromhex("00000000000000000007000000000000006700000000000000680000000000000069")
FIRST = AbortedTransaction(producer_id=7, first_offset=103, last_offset=104, last_stable_offset=105)
SECOND = AbortedTransaction(producer_id=8, first_offset=106, last_offset=110, last_stable_offset=111)


@pytest.fixture
def index(tmp_path: Path) -> TransactionIndex:
    index = TransactionIndex(RealDisk(), tmp_path / "00000000000000000100.txnindex")
    index.append(FIRST)
    index.append(SECOND)
    return index


def test_file_equals_the_golden_vector(tmp_path: Path):
    index = TransactionIndex(RealDisk(), tmp_path / "index")
    assert not Path(index.path).exists()
    index.append(FIRST)
    assert Path(index.path).read_bytes() == GOLDEN
    assert TransactionIndex(RealDisk(), index.path).transactions == [FIRST]


def test_overlapping_transactions_are_found(index: TransactionIndex):
    assert index.overlapping(105, 120).transactions == (SECOND,)
    assert index.overlapping(100, 104).transactions == (FIRST,)
    assert index.overlapping(100, 103).transactions == ()
    assert index.overlapping(100, 120).transactions == (FIRST, SECOND)
    assert index.overlapping(111, 120).transactions == ()


def test_a_search_is_complete_once_a_marker_decided_the_whole_range(index: TransactionIndex):
    assert index.overlapping(100, 105).complete
    assert index.overlapping(100, 111).complete
    assert not index.overlapping(100, 112).complete


class CountingList(list[AbortedTransaction]):
    """Counts how often an entry is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        for index in range(len(self)):
            yield self[index]


def test_few_of_many_entries_are_looked_at(index: TransactionIndex):
    many = [AbortedTransaction(7, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(4096)]
    index._transactions = entries = CountingList(many)
    found = index.overlapping(30_000, 30_014)
    assert (found.transactions, found.complete) == (tuple(many[3000:3002]), True)
    assert entries.looks < 20


def test_truncation_goes_by_the_marker(index: TransactionIndex):
    index.truncate_to(110)
    assert index.transactions == [FIRST]
    assert Path(index.path).read_bytes() == GOLDEN


@pytest.mark.parametrize("content", [GOLDEN[:-1], b"\x00\x01" + GOLDEN[2:], GOLDEN * 2])
def test_malformed_files_are_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex):
        _ = TransactionIndex(RealDisk(), path).transactions
