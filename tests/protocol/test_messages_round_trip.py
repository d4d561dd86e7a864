"""Whatever a message can say in a version, it says again after the wire: every message, every version."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.primitives import Fixed
from kafka_wire.schema import fields_of
from kafka_wire.stored.metadata import METADATA_RECORDS, decode_metadata_record, encode_metadata_record
from tests.property_examples import examples
from tests.protocol.message_strategies import check_versions, message_kinds, messages

NO_TAGS = b"\x00"
ONE_UNKNOWN_TAG = b"\x01" + b"\xe7\x07" + b"\x03new"
"""One tag, number 999, three bytes long."""

A_FEW = Fraction(1, 20)
"""Of the examples, for what depends on the declaration more than on the values."""

every_message = pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)


@every_message
def test_a_message_survives_the_wire(kind: type[Any]) -> None:
    def survives(version: int, message: Any) -> None:
        encoded = encode_bytes(message, version)
        decoded, end = decode(kind, version, encoded)
        assert end == len(encoded)
        assert decoded == message

    check_versions(kind, survives)


@every_message
def test_a_message_is_found_in_the_middle_of_a_buffer_and_leaves_the_rest(kind: type[Any]) -> None:
    """The body of a request follows its header, and librdkafka sends more bytes than a body has."""

    def found(version: int, message: Any) -> None:
        encoded = encode_bytes(message, version)
        for before, after in (b"", b"\x01"), (b"\xff\x00", b""), (bytes(9), b"\xff" * 9):
            decoded, end = decode(kind, version, memoryview(before + encoded + after), len(before))
            assert end == len(before) + len(encoded)
            assert decoded == message

    check_versions(kind, found, share=A_FEW)


@every_message
def test_a_field_of_another_version_is_dropped_or_refused_as_declared(kind: type[Any]) -> None:
    """An ignorable field is left out of a version that lacks it; any other must be at its default there."""
    changeable = [
        field for field in fields_of(kind) if field.factory is None and isinstance(field.default, int | str | bytes)
    ]

    def dropped_or_refused(version: int, message: Any) -> None:
        expected = encode_bytes(message, version)
        for field in changeable:
            if version in field.versions:
                continue
            setattr(message, field.name, another_value(field.default))
            if field.ignorable:
                assert encode_bytes(message, version) == expected
            else:
                with pytest.raises(ValueError, match=field.name):
                    encode_bytes(message, version)
            setattr(message, field.name, field.default)

    check_versions(kind, dropped_or_refused, share=A_FEW)


def another_value(value: Any) -> Any:
    """Return a value of the same type that is not ``value``."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1 if value < 0 else value - 1
        case str():
            return value + "x"
        case _:
            return bytes(range(16))


@every_message
def test_null_is_refused_where_the_version_has_none(kind: type[Any]) -> None:
    """Booleans aside: whatever is not true is false, None included."""

    def refused(version: int, message: Any) -> None:
        for field in fields_of(kind):
            if version not in field.versions or version in field.nullable or field.type == Fixed("bool", "?"):
                continue
            value = getattr(message, field.name)
            setattr(message, field.name, None)
            with pytest.raises(ValueError, match=kind.__name__):
                encode_bytes(message, version)
            setattr(message, field.name, value)

    check_versions(kind, refused, share=A_FEW)


@every_message
def test_a_tag_from_the_future_is_skipped(kind: type[Any]) -> None:
    def skipped(version: int, message: Any) -> None:
        if kind.FLEXIBLE_FROM is None or version < kind.FLEXIBLE_FROM:
            return
        for field in fields_of(kind):
            if field.tag is not None:
                setattr(message, field.name, field.new_default())
        encoded = encode_bytes(message, version)
        assert encoded.endswith(NO_TAGS)
        decoded, end = decode(kind, version, encoded.removesuffix(NO_TAGS) + ONE_UNKNOWN_TAG)
        assert end == len(encoded) - len(NO_TAGS) + len(ONE_UNKNOWN_TAG)
        assert decoded == message

    check_versions(kind, skipped, share=A_FEW)


@pytest.mark.parametrize("kind", METADATA_RECORDS, ids=lambda kind: kind.__name__)
def test_a_metadata_record_survives_the_log(kind: type[Any]) -> None:
    @examples(A_FEW)
    @given(
        st.integers(kind.VERSIONS.low, kind.VERSIONS.high).flatmap(lambda v: st.tuples(st.just(v), messages(kind, v)))
    )
    def survives(case: tuple[int, Any]) -> None:
        version, record = case
        assert decode_metadata_record(encode_metadata_record(record, version)) == record

    survives()
