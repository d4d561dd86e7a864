"""Chooses the partition of each row.

The row's own ``partition`` comes first. Else its key decides, by the hash of Kafka's Java clients, so that all clients
put the records of a key into the same partition. Rows with neither stick to one partition until it got ``batch_size``
bytes, then to the next, which makes whole batches (KIP-480).

The result is a function of the rows and of the task they are in: a repeated task gives each row the same partition
again. Row ids rely on that (``row_ids``); Kafka's own producer instead avoids partitions that are slow or have no
leader.

Source: Kafka's Utils.murmur2 and BuiltInPartitioner; KIP-480.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from trio_broker.common.murmur2 import MULTIPLIER, POSITIVE, SEED, SHIFT, WORD_BYTES
from trio_broker.spark.producer.row_columns import NO_PARTITION, BytesColumn, Int64Array, RowColumns


def hash_keys(keys: BytesColumn, rows: Int64Array) -> Int64Array:
    """Return the hash of the key of each of ``rows``, none of which is null: all keys at once, a word at a time."""
    starts, lengths = keys.starts[rows], keys.lengths[rows]
    data = np.frombuffer(keys.data, np.uint8)
    values = (SEED ^ lengths).astype(np.uint32)
    multiplier = np.uint32(MULTIPLIER)
    # Longest first, so that the keys with a word left are always the first ones.
    order = np.argsort(-lengths, kind="stable")
    words = lengths[order] // WORD_BYTES
    for index in range(int(words[0]) if len(words) else 0):
        left = order[: int(np.searchsorted(-words, -index, side="left"))]
        word = _little_endian(data, starts[left] + WORD_BYTES * index, WORD_BYTES) * multiplier
        values[left] = values[left] * multiplier ^ (word ^ word >> np.uint32(SHIFT)) * multiplier
    for tail in range(1, WORD_BYTES):
        some = np.flatnonzero(lengths % WORD_BYTES == tail)
        rest = _little_endian(data, starts[some] + lengths[some] - tail, tail)
        values[some] = (values[some] ^ rest) * multiplier
    values = (values ^ values >> np.uint32(13)) * multiplier
    return (values ^ values >> np.uint32(15)).astype(np.int64)


def _little_endian(data: npt.NDArray[np.uint8], positions: Int64Array, size: int) -> npt.NDArray[np.uint32]:
    word = np.zeros(len(positions), np.uint32)
    for index in range(size):
        word |= data[positions + index].astype(np.uint32) << np.uint32(8 * index)
    return word


@attrs.define
class StickyPartitioner:
    """The partition of a topic's next row without key and partition; ``spread_bytes`` were assigned so far."""

    first_partition: int
    spread_bytes: int = 0

    def next_partitions(self, sizes: Int64Array, partition_count: int, batch_size: int) -> Int64Array:
        """Return the partition of each of the next rows, which have these ``sizes``."""
        after = self.spread_bytes + np.cumsum(sizes)
        turns = (after - sizes) // batch_size
        if len(after):
            self.spread_bytes = int(after[-1])
        partitions: Int64Array = (self.first_partition + turns) % partition_count
        return partitions


def assign_partitions(
    columns: RowColumns,
    rows: Int64Array,
    partition_count: int,
    sticky: StickyPartitioner,
    batch_size: int,
    hashing: Hashing,
) -> Int64Array:
    """Return the partition of each of ``rows``, which are all of one topic with ``partition_count`` partitions.

    A partition that a row names itself is returned as it is, even if it does not exist.
    """
    partitions = columns.partitions[rows]
    open_ones = partitions == NO_PARTITION
    if not open_ones.any():
        return partitions
    keyed = open_ones & (columns.key.lengths[rows] >= 0) if hashing is not ignore_keys else np.zeros(len(rows), bool)
    if keyed.any():
        partitions[keyed] = (hashing(columns.key, rows[keyed]) & POSITIVE) % partition_count
    free = open_ones & ~keyed
    if free.any():
        partitions[free] = sticky.next_partitions(columns.record_bytes[rows[free]], partition_count, batch_size)
    return partitions


Hashing = Callable[[BytesColumn, Int64Array], Int64Array]
"""Returns the hashes of the keys of some rows: ``hash_keys``, its machine code in ``jit_encoder``, or
``ignore_keys``."""


def ignore_keys(keys: BytesColumn, rows: Int64Array) -> Int64Array:
    """Stands in for a hash where keys do not decide. Never called."""
    raise AssertionError("keys are ignored")
