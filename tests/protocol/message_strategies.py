"""Hypothesis strategies for every message, made from the declarations.

``messages(kind, version)`` gives messages that this version can say: the fields it has take any value of their type,
null included where it may be null, and the fields of other versions stay at their defaults. ``check_versions`` holds a
claim against all versions of a message. Error codes are real ones
and times are near, because the codecs that serve as oracles turn them into enums and dates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import attrs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.primitives import UUID_BYTES, Fixed, Sized
from kafka_wire.schema import ArrayOf, Field, StructOf, WireType, default_instance, fields_of
from tests.property_examples import examples

MAX_ELEMENTS = 3
"""In a list; a struct has up to three levels of lists, and more of the same tests nothing new."""

MAX_TEXT = 12
MAX_BYTES = 200
"""More than 127, so that compact lengths of two bytes are met."""

ERROR_CODE_FIELD = "error_code"
"""How the names of error codes end: ``topic_config_error_code``, ``partition_error_code``."""

TIME_FIELDS = frozenset(
    {"log_append_time_ms", "retention_time_ms", "max_lifetime_ms", "renew_period_ms", "expiry_time_period_ms"}
)

DATE_FIELDS = frozenset({"issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "transaction_start_time_ms"})
"""Times in which kio reads no -1, whether or not Kafka leaves them open by one."""

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

REAL_ERROR_CODES = st.sampled_from([int(code) for code in ErrorCode if code <= ErrorCode.SHARE_SESSION_LIMIT_REACHED])
"""Those of Kafka 4.3: kio reads no later ones yet."""

NEAR_DATES = st.integers(0, 2**42)
"""Milliseconds up to the year 2109."""

NEAR_TIMES = st.just(-1) | NEAR_DATES

A_FIFTH = Fraction(1, 5)
"""Of the profile's examples, for each of nearly a hundred messages; fuzz/decoders.py goes on from there."""


EXAMPLES: dict[type[Any], list[Any]] = {}
"""Those that were made."""


def message_kinds() -> list[type[Any]]:
    """Every request and response class."""
    return [kind for request in all_requests().values() for kind in (request, request.RESPONSE)]


def check_versions(kind: type[Any], check: Callable[[int, Any], None], share: Fraction = A_FIFTH) -> None:
    """Call ``check(version, message)`` with examples of ``kind`` in every version it has.

    Each example is said in all versions, which is cheaper than to make others for each. All versions that fail with an
    example are reported together. The examples of the default run, which are the same each time, are made once for all
    claims; ``share`` is for a run that draws others for each.
    """

    def holds(message: Any) -> None:
        failures = []
        for version in range(kind.VERSIONS.low, kind.VERSIONS.high + 1):
            try:
                check(version, in_version(message, version))
            except Exception as failure:
                failure.add_note(f"{kind.__name__} version {version}")
                failures.append(failure)
        if failures:
            raise ExceptionGroup(f"{kind.__name__} fails in {len(failures)} versions with {message}", failures)

    if settings().derandomize:
        for message in examples_of(kind):
            holds(message)
    else:
        examples(share)(given(messages(kind))(holds))()


def examples_of(kind: type[Any]) -> Sequence[Any]:
    """The examples of ``kind`` for all claims of a run; nobody changes them."""
    if kind in EXAMPLES:
        return EXAMPLES[kind]
    found = EXAMPLES[kind] = []

    @examples(A_FIFTH)
    @given(messages(kind))
    def draw(message: Any) -> None:
        found.append(message)

    draw()
    return found


def messages(kind: type[Any], version: int | None = None) -> SearchStrategy[Any]:
    """Return a strategy for what ``kind`` can say in ``version``; without one, for what any version can say."""
    fields = fields_of(kind)
    present = {
        field.name: field_values(field, version) for field in fields if version is None or version in field.versions
    }
    absent = {field.name: st.builds(field.new_default) for field in fields if field.name not in present}
    return st.fixed_dictionaries({**present, **absent}).map(lambda values: kind(**values))


def in_version(value: Any, version: int) -> Any:
    """Return as much of a message, or of a value in it, as ``version`` can say."""
    if isinstance(value, list):
        return [in_version(element, version) for element in value]
    if not attrs.has(type(value)):
        return value
    return type(value)(**{field.name: field_in_version(value, field, version) for field in fields_of(type(value))})


def field_in_version(message: Any, field: Field, version: int) -> Any:
    if version not in field.versions:
        return field.new_default()
    value = getattr(message, field.name)
    if value is None and version not in field.nullable:
        return nothing_of(field.type, version)
    return in_version(value, version)


def nothing_of(kind: WireType, version: int) -> Any:
    """Return the smallest value of a type that may be null in some version, but not in this one."""
    match kind:
        case Sized(kafka_type):
            return "" if kafka_type == "string" else b""
        case ArrayOf():
            return []
        case StructOf(cls):
            return in_version(default_instance(cls), version)
        case _:
            raise AssertionError(f"{kind} is never null")


def field_values(field: Field, version: int | None) -> SearchStrategy[Any]:
    """Return a strategy for the values of one field."""
    if field.name.endswith(ERROR_CODE_FIELD):
        return REAL_ERROR_CODES
    if field.name in TIME_FIELDS:
        return NEAR_TIMES
    if field.name in DATE_FIELDS:
        return NEAR_DATES
    values = type_values(field.type, version)
    if field.tag is not None:
        # A tagged field at its default is not written at all: let that happen more often than by chance.
        values = st.builds(field.new_default) | values
    may_be_null = field.nullable if version is None else version in field.nullable
    return st.none() | values if may_be_null else values


def type_values(kind: WireType, version: int | None) -> SearchStrategy[Any]:
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
