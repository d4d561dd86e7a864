"""Whatever a message can say in a version, it says again after the wire: every message, every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.primitives import Fixed
from kafka_wire.schema import fields_of
from kafka_wire.stored.metadata import METADATA_RECORDS, decode_metadata_record, encode_metadata_record
from tests.protocol.message_strategies import message_version_id, message_versions, messages

EXAMPLES = 8
"""For each of some 340 messages and versions; the fuzzer in fuzz/decoders.py goes on from there."""

quick = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)

NO_TAGS = b"\x00"
ONE_UNKNOWN_TAG = b"\x01" + b"\xe7\x07" + b"\x03new"
"""One tag, number 999, three bytes long."""

EVERY_MESSAGE = [pytest.param(*pair, id=message_version_id(*pair)) for pair in message_versions()]


def is_flexible(kind: Any, version: int) -> bool:
    return kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM


@pytest.mark.parametrize(("kind", "version"), EVERY_MESSAGE)
def test_a_message_survives_the_wire(kind: type[Any], version: int) -> None:
    @quick
    @given(messages(kind, version))
    def survives(message: Any) -> None:
        encoded = encode_bytes(message, version)
        decoded, end = decode(kind, version, encoded)
        assert end == len(encoded)
        assert decoded == message

    survives()


@pytest.mark.parametrize(("kind", "version"), EVERY_MESSAGE)
def test_a_message_is_found_in_the_middle_of_a_buffer_and_leaves_the_rest(kind: type[Any], version: int) -> None:
    """The body of a request follows its header, and librdkafka leaves three bytes after it."""

    @settings(quick, max_examples=2)
    @given(messages(kind, version), st.binary(max_size=9), st.binary(max_size=9))
    def found(message: Any, before: bytes, after: bytes) -> None:
        encoded = encode_bytes(message, version)
        decoded, end = decode(kind, version, memoryview(before + encoded + after), len(before))
        assert end == len(before) + len(encoded)
        assert decoded == message

    found()


@pytest.mark.parametrize(("kind", "version"), EVERY_MESSAGE)
def test_a_field_of_another_version_is_dropped_or_refused_as_declared(kind: type[Any], version: int) -> None:
    """An ignorable field is left out of a version that lacks it; any other must be at its default there."""
    absent = [
        field
        for field in fields_of(kind)
        if version not in field.versions and field.factory is None and isinstance(field.default, int | str | bytes)
    ]

    @settings(quick, max_examples=2)
    @given(messages(kind, version))
    def dropped_or_refused(message: Any) -> None:
        expected = encode_bytes(message, version)
        for field in absent:
            setattr(message, field.name, another_value(field.default))
            if field.ignorable:
                assert encode_bytes(message, version) == expected
            else:
                with pytest.raises(ValueError, match=field.name):
                    encode_bytes(message, version)
            setattr(message, field.name, field.default)

    dropped_or_refused()


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


@pytest.mark.parametrize(("kind", "version"), EVERY_MESSAGE)
def test_null_is_refused_where_the_version_has_none(kind: type[Any], version: int) -> None:
    """Booleans aside: whatever is not true is false, None included."""
    present = [field for field in fields_of(kind) if version in field.versions and version not in field.nullable]
    never_null = [field for field in present if field.type != Fixed("bool", "?")]

    @settings(quick, max_examples=1)
    @given(messages(kind, version))
    def refused(message: Any) -> None:
        for field in never_null:
            value = getattr(message, field.name)
            setattr(message, field.name, None)
            with pytest.raises(ValueError, match=kind.__name__):
                encode_bytes(message, version)
            setattr(message, field.name, value)

    refused()


@pytest.mark.parametrize(("kind", "version"), [case for case in EVERY_MESSAGE if is_flexible(*case.values)])
def test_a_tag_from_the_future_is_skipped(kind: type[Any], version: int) -> None:
    @settings(quick, max_examples=2)
    @given(messages(kind, version))
    def skipped(message: Any) -> None:
        for field in fields_of(kind):
            if field.tag is not None:
                setattr(message, field.name, field.new_default())
        encoded = encode_bytes(message, version)
        assert encoded.endswith(NO_TAGS)
        decoded, end = decode(kind, version, encoded.removesuffix(NO_TAGS) + ONE_UNKNOWN_TAG)
        assert end == len(encoded) - len(NO_TAGS) + len(ONE_UNKNOWN_TAG)
        assert decoded == message

    skipped()


@pytest.mark.parametrize("kind", METADATA_RECORDS, ids=lambda kind: kind.__name__)
def test_a_metadata_record_survives_the_log(kind: type[Any]) -> None:
    @quick
    @given(
        st.integers(kind.VERSIONS.low, kind.VERSIONS.high).flatmap(lambda v: st.tuples(st.just(v), messages(kind, v)))
    )
    def survives(case: tuple[int, Any]) -> None:
        version, record = case
        assert decode_metadata_record(encode_metadata_record(record, version)) == record

    survives()
