"""A transaction that hangs: a batch in a partition's log of which no coordinator knows.

Brokers verify appends, so none lets it in any more. It is written into the log of a broker that was killed, as one of
an older Kafka would have left it.
"""

from __future__ import annotations

import time
from pathlib import Path

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord

PRODUCER_ID = 7_000
PRODUCER_EPOCH = 3
AGE_MS = 3_600_000
"""An hour: longer than ``transaction.max.timeout.ms``, and far shorter than any retention."""


def append_hanging_transaction(partition_directory: Path, base_offset: int) -> None:
    """Begin a transaction at the end of a log of one segment, whose broker does not run."""
    [log] = partition_directory.glob("*.log")
    batch = build_batch(
        [NewRecord(timestamp=time.time_ns() // 1_000_000 - AGE_MS, value=b"hanging")],
        base_offset=base_offset,
        partition_leader_epoch=0,
        producer_id=PRODUCER_ID,
        producer_epoch=PRODUCER_EPOCH,
        base_sequence=0,
        transactional=True,
    )
    log.write_bytes(log.read_bytes() + batch)
