"""Producer snapshots: Kafka's bytes, refused when damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import producer_snapshot
from trio_broker.storage.errors import CorruptSnapshot
from trio_broker.storage.producer_state import BatchMetadata, ProducerEntry

GOLDEN = bytes.fromhex(
    "000155c0469e0000000200000000000000070000000000000000000000000067000000000000018bcfe5681400000009ffffffffffffffff"
    "0000000000000008000200000008000000000000006c000000010000018bcfe5681fffffffffffffffffffffffff"
)
"""As Kafka's own recovery wrote it: producer 7 after an abort, producer 8 with sequences 7 and 8."""

BASE_MS = 1_700_000_000_000
AFTER_ABORT = ProducerEntry(7, 0, [BatchMetadata(0, 103, 0, BASE_MS + 20)], BASE_MS + 20, coordinator_epoch=9)
IDEMPOTENT = ProducerEntry(8, 2, [BatchMetadata(8, 108, 1, BASE_MS + 31)], BASE_MS + 31)


def test_content_equals_the_golden_vector():
    assert producer_snapshot.encode([AFTER_ABORT, IDEMPOTENT]) == GOLDEN


def test_golden_vector_reads_as_it_was_meant():
    assert producer_snapshot.decode(GOLDEN, "109.snapshot") == [AFTER_ABORT, IDEMPOTENT]


def test_only_the_last_batch_is_stored_and_an_open_transaction_survives(tmp_path: Path):
    batches = [BatchMetadata(sequence, 10 + sequence, 0, 1) for sequence in range(3)]
    entry = ProducerEntry(1, 0, batches, 1, transaction_first_offset=11)
    path = producer_snapshot.write(RealDisk(), tmp_path, 13, [entry], sync=True)
    assert path.name == "00000000000000000013.snapshot"
    assert producer_snapshot.offsets(RealDisk(), tmp_path) == [13]
    (read,) = producer_snapshot.decode(Path(path).read_bytes(), path.name)
    assert read == ProducerEntry(1, 0, batches[-1:], 1, transaction_first_offset=11)


def test_a_producer_without_batches_keeps_its_epoch():
    entry = ProducerEntry(1, 4, [], 77, coordinator_epoch=2)
    assert producer_snapshot.decode(producer_snapshot.encode([entry]), "x") == [entry]


@pytest.mark.parametrize(
    "content", [b"", GOLDEN[:9], GOLDEN[:-1], GOLDEN + b"\0", b"\0\2" + GOLDEN[2:], GOLDEN[:40] + b"!" + GOLDEN[41:]]
)
def test_damaged_snapshots_are_refused(content: bytes):
    with pytest.raises(CorruptSnapshot):
        producer_snapshot.decode(content, "x.snapshot")
