from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_pythons_murmur2

from trio_broker.common.murmur2 import murmur2
from trio_broker.spark.producer.partitioner import StickyPartitioner, assign_partitions, hash_keys, ignore_keys
from trio_broker.spark.producer.record_encoder import NumbaEngine
from trio_broker.spark.producer.row_columns import RowColumns, read_columns

BATCH_SIZE = 1000

KAFKAS_OWN_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


def columns_of(keys: Sequence[bytes | None], partitions: list[int | None] | None = None, size: int = 10) -> RowColumns:
    more = {} if partitions is None else {"partition": pa.array(partitions, pa.int32())}
    batch = pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array([bytes(size)] * len(keys), pa.binary()), **more}
    )
    return read_columns(batch, topic="orders", now_ms=0)


def all_rows(columns: RowColumns) -> np.ndarray:
    return np.arange(len(columns))


@pytest.mark.parametrize(("key", "expected"), KAFKAS_OWN_VECTORS)
def test_hashes_are_those_of_kafkas_own_tests(key: bytes, expected: int):
    columns = columns_of([key])

    assert murmur2(key) == expected & 0xFFFF_FFFF
    assert hash_keys(columns.key, all_rows(columns)).tolist() == [expected & 0xFFFF_FFFF]
    assert NumbaEngine().hash_keys(columns.key, all_rows(columns)).tolist() == [expected & 0xFFFF_FFFF]


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 5))
def test_all_ways_to_hash_agree_with_kafka_python(keys: list[bytes], skipped: int):
    columns = columns_of([*keys, *keys])
    rows = all_rows(columns)[skipped % len(keys) :]
    expected = [kafka_pythons_murmur2((keys + keys)[row]) & 0xFFFF_FFFF for row in rows]

    assert [murmur2((keys + keys)[row]) for row in rows] == expected
    assert hash_keys(columns.key, rows).tolist() == expected
    assert NumbaEngine().hash_keys(columns.key, rows).tolist() == expected


@given(st.lists(st.binary(max_size=12), min_size=1), st.integers(1, 50))
def test_a_key_goes_where_kafkas_own_producers_send_it(keys: list[bytes], count: int):
    columns = columns_of(keys)

    chosen = assign_partitions(columns, all_rows(columns), count, StickyPartitioner(0), BATCH_SIZE, hash_keys)

    partitions = list(range(count))
    assert chosen.tolist() == [DefaultPartitioner()(key, partitions, partitions) for key in keys]


def test_the_rows_own_partition_beats_its_key():
    columns = columns_of([b"a", b"a", None], [7, None, 7])

    chosen = assign_partitions(columns, all_rows(columns), 10, StickyPartitioner(0), BATCH_SIZE, hash_keys)

    assert chosen.tolist() == [7, (murmur2(b"a") & 0x7FFF_FFFF) % 10, 7]


def test_rows_without_key_fill_one_partition_after_the_other():
    sticky = StickyPartitioner(first_partition=2)
    chosen: list[int] = []
    for _ in range(10):
        columns = columns_of([None] * 10, size=97)  # a hundred and one bytes and a bit
        chosen += assign_partitions(columns, all_rows(columns), 4, sticky, BATCH_SIZE, hash_keys).tolist()

    runs = [chosen[0]] + [now for before, now in itertools.pairwise(chosen) if before != now]
    assert runs == [2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0][: len(runs)]
    assert len(runs) == 11


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), min_size=1), st.integers(1, 5))
def test_how_rows_are_cut_into_arrow_batches_does_not_matter(keys: list[bytes | None], step: int):
    """A repeated task may get its rows in other pieces, and each must go to the same partition."""
    whole, cut = StickyPartitioner(3), StickyPartitioner(3)
    columns = columns_of(keys, size=300)
    expected = assign_partitions(columns, all_rows(columns), 7, whole, BATCH_SIZE, hash_keys).tolist()

    chosen: list[int] = []
    for start in range(0, len(keys), step):
        columns = columns_of(keys[start : start + step], size=300)
        chosen += assign_partitions(columns, all_rows(columns), 7, cut, BATCH_SIZE, hash_keys).tolist()

    assert chosen == expected


def test_keys_can_be_ignored():
    columns = columns_of([b"a", b"b", None])

    assert assign_partitions(columns, all_rows(columns), 9, StickyPartitioner(5), BATCH_SIZE, ignore_keys).tolist() == [
        5,
        5,
        5,
    ]
