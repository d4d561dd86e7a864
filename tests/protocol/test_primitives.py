"""kafka_wire.primitives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_wire.errors import WireError
from kafka_wire.primitives import (
    MAX_TAGS,
    parse_uuid,
    read_tag,
    read_tag_count,
    read_unsigned_varint,
    skip_tags,
    unsigned_varint,
    uuid_text,
)


@given(st.integers(0, 2**32 - 1))
@example(127)
@example(128)
@example(2**14 - 1)
@example(2**14)
@example(2**32 - 1)
def test_an_unsigned_varint_reads_as_it_was_written(value: int) -> None:
    encoded = unsigned_varint(value)
    assert len(encoded) == max(1, -(-value.bit_length() // 7))
    assert read_unsigned_varint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\x80\x80", b"\xff\xff\xff\xff"])
def test_a_varint_that_is_cut_off_is_refused(encoded: bytes) -> None:
    with pytest.raises(WireError, match="past the end"):
        read_unsigned_varint(encoded, 0)


def test_a_varint_of_more_bytes_than_a_number_needs_is_refused() -> None:
    with pytest.raises(WireError, match="longer than 5 bytes"):
        read_unsigned_varint(b"\x80" * 5 + b"\1", 0)


def test_a_varint_that_overflows_is_refused() -> None:
    with pytest.raises(WireError, match="32 bits"):
        read_unsigned_varint(b"\xff\xff\xff\xff\x1f", 0)


def test_numbers_that_do_not_fit_are_not_written() -> None:
    for value in (-1, 2**32):
        with pytest.raises(ValueError, match="does not fit"):
            unsigned_varint(value)


def test_unknown_tags_are_skipped() -> None:
    assert skip_tags(b"", 0, 0) == 0
    assert skip_tags(b"\x00\x02ab\x05\x00!", 0, 2) == 6


@pytest.mark.parametrize("tags", [b"\x01\x00\x01\x00", b"\x05\x00\x01\x00"])
def test_tags_that_do_not_ascend_are_refused(tags: bytes) -> None:
    with pytest.raises(WireError, match="comes after"):
        skip_tags(tags, 0, 2)


def test_a_struct_has_a_bounded_number_of_tags() -> None:
    assert read_tag_count(unsigned_varint(MAX_TAGS), 0) == (MAX_TAGS, 1)
    with pytest.raises(WireError, match="101 tagged fields; a struct may have 100"):
        read_tag_count(unsigned_varint(MAX_TAGS + 1), 0)


def test_a_tag_that_reaches_past_the_end_is_refused() -> None:
    with pytest.raises(WireError, match="past the end"):
        read_tag(b"\x07\x02a", 0, -1)


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_reads_as_it_is_shown(uuid: bytes) -> None:
    text = uuid_text(uuid)
    assert len(text) == 22
    assert parse_uuid(text) == uuid


def test_the_metadata_topics_id_looks_as_in_kafka() -> None:
    assert uuid_text(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "AAAAAAAAAAAAAAAAAAAA!Q", "A" * 24, "ä" * 22])
def test_text_that_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"uuid|ASCII"):
        parse_uuid(text)
