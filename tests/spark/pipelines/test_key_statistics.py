"""Distinct keys are counted exactly, then estimated, and parts of a partition join in any order."""

from __future__ import annotations

import itertools
import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.spark.pipelines.stats.key_set import KeyCollector, KeySet, hashes_of

keys = st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=40)


def collected(*arrays: list[bytes | None], kept: int = 1 << 20) -> KeySet:
    collector = KeyCollector(kept)
    for array in arrays:
        collector.add(pa.array(array, pa.binary()))
    return collector.result()


@given(keys, keys)
def test_a_set_counts_what_python_s_own_counts(first: list[bytes | None], second: list[bytes | None]):
    assert collected(first, second).count == len({*first, *second} - {None})


@given(st.lists(keys, min_size=3, max_size=3), st.sampled_from([3, 8, 1000]))
def test_parts_join_in_any_order(parts: list[list[bytes | None]], kept: int):
    sets = [collected(part, kept=kept) for part in parts]
    wholes = {
        (tuple(whole.hashes.tolist()), whole.is_cut)
        for order in itertools.permutations(sets)
        for whole in (
            order[0].union(order[1], kept=kept).union(order[2], kept=kept),
            order[0].union(order[1].union(order[2], kept=kept), kept=kept),
        )
    }
    assert len(wholes) == 1
    whole = collected(*parts, kept=kept)
    assert wholes == {(tuple(whole.hashes.tolist()), whole.is_cut)}


@given(keys)
def test_a_slice_of_an_array_has_the_hashes_of_its_own_keys(array: list[bytes | None]):
    whole = pa.array(array, pa.binary())
    assert hashes_of(whole[2:7]).tolist() == hashes_of(pa.array(array[2:7], pa.binary())).tolist()


def test_keys_that_differ_by_zeros_at_their_end_are_different():
    assert collected([b"", b"\0", b"\0\0", b"a", b"a\0", b"12345678", b"12345678\0"]).count == 7


def test_beyond_what_is_kept_the_count_is_a_close_estimate():
    found = collected([struct.pack(">q", number) for number in range(100_000)], kept=4096)
    assert found.is_cut
    assert len(found.hashes) == 4096
    assert abs(found.count - 100_000) < 5_000
