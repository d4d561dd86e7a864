"""Hypothesis strategies for every message, made from the declarations.

``messages(kind, version)`` gives messages that this version can say: the fields it has take any value of their type,
null included where it may be null, and the fields of other versions stay at their defaults. Error codes are real ones
and times are near, because the codecs that serve as oracles turn them into enums and dates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.primitives import UUID_BYTES, Fixed, Sized
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, fields_of

MAX_ELEMENTS = 3
"""In a list; a struct has up to three levels of lists, and more of the same tests nothing new."""

MAX_TEXT = 12
MAX_BYTES = 200
"""More than 127, so that compact lengths of two bytes are met."""

ERROR_CODE_FIELDS = frozenset({"error_code", "topic_config_error_code"})

TIME_FIELDS = frozenset({"log_append_time_ms", "retention_time_ms"})

DATE_FIELDS = frozenset({"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"})
"""Times that are never left open by a -1."""

FIXED_VALUES: dict[str, SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=UUID_BYTES, max_size=UUID_BYTES),
}

SIZED_VALUES: dict[str, SearchStrategy[Any]] = {
    "string": st.text(max_size=MAX_TEXT),
    "bytes": st.binary(max_size=MAX_BYTES),
    "records": st.binary(max_size=MAX_BYTES),
}

REAL_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode])
NEAR_DATES = st.integers(0, 2**42)
"""Milliseconds up to the year 2109."""

NEAR_TIMES = st.just(-1) | NEAR_DATES


def message_versions() -> Iterator[tuple[type[Any], int]]:
    """Yield every request and response class with each of its versions."""
    for request in all_requests().values():
        for kind in (request, request.RESPONSE):
            for version in range(kind.VERSIONS.low, kind.VERSIONS.high + 1):
                yield kind, version


def message_version_id(kind: type[Any], version: int) -> str:
    """Return the name a test has for a message in a version."""
    return f"{kind.__name__}-v{version}"


def messages(kind: type[Any], version: int) -> SearchStrategy[Any]:
    """Return a strategy for what ``kind`` can say in ``version``."""
    present = {field.name: field_values(field, version) for field in fields_of(kind) if version in field.versions}
    absent = {field.name: st.builds(field.new_default) for field in fields_of(kind) if version not in field.versions}
    return st.fixed_dictionaries({**present, **absent}).map(lambda values: kind(**values))


def field_values(field: Field, version: int) -> SearchStrategy[Any]:
    """Return a strategy for the values of one field."""
    if field.name in ERROR_CODE_FIELDS:
        return REAL_ERROR_CODES
    if field.name in TIME_FIELDS:
        return NEAR_TIMES
    if field.name in DATE_FIELDS:
        return NEAR_DATES
    values = type_values(field.type, version)
    if field.tag is not None:
        # A tagged field at its default is not written at all: let that happen more often than by chance.
        values = st.builds(field.new_default) | values
    return st.none() | values if version in field.nullable else values


def type_values(kind: WireType, version: int) -> SearchStrategy[Any]:
    """Return a strategy for the values of one wire type."""
    match kind:
        case Fixed(kafka_type):
            return FIXED_VALUES[kafka_type]
        case Sized(kafka_type):
            return SIZED_VALUES[kafka_type]
        case ArrayOf(element):
            return st.lists(type_values(element, version), max_size=MAX_ELEMENTS)
        case StructOf(cls):
            return messages(cls, version)
