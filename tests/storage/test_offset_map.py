"""The newest offset of each key, in 24 bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.storage.offset_map import KEYLESS, NO_OFFSET, SLOT_BYTES, OffsetMap, largest_prime_up_to

KEYS = st.binary(max_size=3)


def a_map(max_bytes: int = 1 << 16, *, load_factor: float = 0.9, expected_keys: int = 1000) -> OffsetMap:
    return OffsetMap(max_bytes, secret=bytes(16), load_factor=load_factor, expected_keys=expected_keys)


@given(puts=st.lists(st.lists(st.none() | KEYS, max_size=20), max_size=10), asked=st.lists(KEYS))
def test_it_says_what_a_dictionary_says(puts: list[list[bytes | None]], asked: list[bytes]) -> None:
    offset_map, known, offset = a_map(), {}, 0
    for keys in puts:
        offsets = list(range(offset, offset + len(keys)))
        assert offset_map.put_all(keys, offsets)
        known.update({key: at for key, at in zip(keys, offsets, strict=True) if key is not None})
        offset += len(keys)
    every = [*asked, *known]
    assert offset_map.newest_offsets(every) == [known.get(key, NO_OFFSET) for key in every]
    assert offset_map.keys == len(known)
    assert offset_map.latest_offset == max(known.values(), default=NO_OFFSET)
    offset_map.close()


def test_a_record_without_a_key_is_older_than_any_offset_says() -> None:
    assert a_map().newest_offsets([None]) == [KEYLESS]


def test_the_empty_key_is_a_key_and_offset_0_an_offset() -> None:
    offset_map = a_map()
    offset_map.put_all([b""], [0])
    assert offset_map.newest_offsets([b"", b"other"]) == [0, NO_OFFSET]


def test_a_full_map_takes_nothing_more_and_says_how_far_it_came() -> None:
    offset_map = a_map(SLOT_BYTES * 11, load_factor=0.9)
    assert offset_map.slots == 11
    assert offset_map.max_keys == 9
    assert not offset_map.put_all([b"%d" % number for number in range(20)], list(range(100, 120)))
    assert offset_map.latest_offset == 108
    assert not offset_map.put_all([b"0"], [200]), "not even a key it knows: the ones behind it would be missing"
    assert offset_map.newest_offsets([b"0", b"8", b"9"]) == [100, 108, NO_OFFSET]


def test_a_map_that_is_full_to_the_last_slot_still_finds_and_misses() -> None:
    offset_map = a_map(SLOT_BYTES * 101, load_factor=0.95)
    keys = [b"%d" % number for number in range(offset_map.max_keys)]
    assert offset_map.put_all(keys, list(range(len(keys))))
    assert offset_map.newest_offsets(keys) == list(range(len(keys)))
    assert set(offset_map.newest_offsets([b"x%d" % number for number in range(1000)])) == {NO_OFFSET}


def test_the_table_stays_within_its_memory() -> None:
    for max_bytes in (SLOT_BYTES * 5, 1000, 1 << 20):
        assert a_map(max_bytes, expected_keys=10**9).size_bytes <= max_bytes


def test_few_keys_get_a_small_table() -> None:
    offset_map = a_map(128 << 20, expected_keys=1000)
    assert offset_map.max_keys >= 1000
    assert offset_map.size_bytes < 100_000


def test_offsets_beyond_32_bits_are_kept() -> None:
    offset_map = a_map()
    offset_map.put_all([b"a"], [2**62])
    assert offset_map.newest_offsets([b"a"]) == [2**62]


def test_what_has_no_keys_is_in_the_map_all_the_same() -> None:
    offset_map = a_map()
    offset_map.advance_to(17)
    assert (offset_map.latest_offset, offset_map.keys) == (17, 0)


def test_two_maps_hash_with_secrets_of_their_own() -> None:
    """So nobody can make keys beforehand that fall together."""
    one, other = (OffsetMap(1 << 16, secret=secret, load_factor=0.9, expected_keys=1000) for secret in (b"1", b"2"))
    for offset_map in (one, other):
        offset_map.put_all([b"key"], [1])
    assert bytes(one._view) != bytes(other._view)


@pytest.mark.parametrize(
    ("number", "prime"), [(2, 2), (3, 3), (4, 3), (5, 5), (24, 23), (25, 23), (5_592_405, 5_592_373)]
)
def test_the_number_of_slots_is_prime(number: int, prime: int) -> None:
    assert largest_prime_up_to(number) == prime
