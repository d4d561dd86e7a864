"""Filters against a second evaluator, which walks over trees and knows nothing of the first.

A random tree is written as text with no more parentheses than precedence demands, parsed, and evaluated; the tree is
evaluated by the rules of CEL's language definition, in the plainest words of Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import assume, given
from hypothesis import strategies as st

from broker_admin.filters.errors import EvaluationError, FilterSyntaxError
from broker_admin.filters.operations import Activation
from broker_admin.filters.parser import parse
from broker_admin.filters.record_filter import RecordFilter


class NoValue(Exception):
    """The expression has no value for the record."""


@attrs.frozen
class Record:
    value: Any
    key: Any = "key"
    headers: dict[str, Any] = attrs.field(factory=lambda: {"a": "b"})
    offset: int = 5
    partition: int = 0
    timestamp: int = 1000

    def texts(self, *, as_shown: bool) -> Iterator[str]:
        raise NotImplementedError("expressions alone are compared")


# ---- trees ----

NAMES = st.sampled_from(["a", "b", "c"])

LITERALS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("abé'\"\\\n\0", max_size=4),
    st.binary(max_size=3),
)

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text("ab", max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)

BINARY = {
    "||": 1, "&&": 2,
    "==": 3, "!=": 3, "<": 3, "<=": 3, ">": 3, ">=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
"""Binary operators and how tightly each binds; all of them from the left."""

UNARY, MEMBER, PRIMARY = 6, 7, 8


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.just("binary"), st.sampled_from(sorted(BINARY)), inner, inner),
        st.tuples(st.just("unary"), st.sampled_from(["!", "-"]), inner),
        st.tuples(st.just("choice"), inner, inner, inner),
        st.tuples(st.just("field"), inner, NAMES),
        st.tuples(st.just("has"), inner, NAMES),
        st.tuples(st.just("index"), inner, inner),
        st.tuples(st.just("list"), st.lists(inner, max_size=3)),
        st.tuples(st.just("size"), inner),
        st.tuples(st.just("method"), st.sampled_from(["startsWith", "endsWith", "contains"]), inner, inner),
    )


TREES = st.recursive(
    st.one_of(
        st.tuples(st.just("literal"), LITERALS),
        st.tuples(st.just("name"), st.sampled_from(["value", "key", "headers", "offset"])),
        st.tuples(st.just("field"), st.just(("name", "value")), NAMES),
    ),
    larger,
    max_leaves=12,
)


# ---- a tree as text ----


def written(tree: Any) -> tuple[str, int]:
    """The tree as text, and how tightly its outermost operator binds."""
    match tree:
        case ("literal", value):
            return literal(value), PRIMARY if not is_negative(value) else UNARY
        case ("name", name):
            return name, PRIMARY
        case ("binary", sign, left, right):
            level = BINARY[sign]
            return f"{at_least(left, level)} {sign} {at_least(right, level + 1)}", level
        case ("unary", sign, operand):
            # In parentheses: ``-1`` is a literal, and ``!-a`` is none of CEL's expressions.
            return f"{sign}({written(operand)[0]})", UNARY
        case ("choice", condition, then, otherwise):
            return f"{at_least(condition, 1)} ? {written(then)[0]} : {written(otherwise)[0]}", 0
        case ("field", operand, name):
            return f"{at_least(operand, MEMBER)}.{name}", MEMBER
        case ("has", operand, name):
            return f"has({at_least(operand, MEMBER)}.{name})", PRIMARY
        case ("index", operand, index):
            return f"{at_least(operand, MEMBER)}[{written(index)[0]}]", MEMBER
        case ("list", elements):
            return f"[{', '.join(written(each)[0] for each in elements)}]", PRIMARY
        case ("size", operand):
            return f"size({written(operand)[0]})", PRIMARY
        case ("method", name, operand, argument):
            return f"{at_least(operand, MEMBER)}.{name}({written(argument)[0]})", MEMBER
    raise AssertionError(tree)


def at_least(tree: Any, level: int) -> str:
    text, tightness = written(tree)
    return text if tightness >= level else f"({text})"


def is_negative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.copysign(1, value) < 0


def literal(value: Any) -> str:
    match value:
        case None:
            return "null"
        case True | False:
            return str(value).lower()
        case bytes():
            return "b'" + "".join(f"\\x{octet:02x}" for octet in value) + "'"
        case str():
            return '"' + "".join(f"\\U{ord(each):08x}" if each in '"\\\n' else each for each in value) + '"'
        case float():
            text = repr(value)
            return text if "." in text or "e" in text else f"{text}.0"
    return str(value)


# ---- the tree's value ----


def value_of(tree: Any, record: Record) -> Any:
    match tree:
        case ("literal", value):
            return value
        case ("name", name):
            return getattr(record, name)
        case ("binary", ("||" | "&&") as sign, left, right):
            return connected(sign == "||", [bool_or_none(left, record), bool_or_none(right, record)])
        case ("binary", sign, left, right):
            return combined(sign, value_of(left, record), value_of(right, record))
        case ("unary", "!", operand):
            return not require(value_of(operand, record), bool)
        case ("unary", "-", operand):
            return in_range(-require(value_of(operand, record), int, float))
        case ("choice", condition, then, otherwise):
            return value_of(then if require(value_of(condition, record), bool) else otherwise, record)
        case ("field", operand, name):
            return found(require(value_of(operand, record), dict), name)
        case ("has", operand, name):
            return name in require(value_of(operand, record), dict)
        case ("index", operand, index):
            container = require(value_of(operand, record), list, dict)
            at = value_of(index, record)
            if isinstance(container, dict):
                return found(container, require(at, str))
            at = require(at, int, float)
            if at not in range(len(container)):
                raise NoValue
            return container[int(at)]
        case ("list", elements):
            return [value_of(each, record) for each in elements]
        case ("size", operand):
            return len(require(value_of(operand, record), str, bytes, list, dict))
        case ("method", name, operand, argument):
            text, part = value_of(operand, record), value_of(argument, record)
            require(text, str), require(part, str)
            return {"startsWith": text.startswith, "endsWith": text.endswith, "contains": text.__contains__}[name](part)
    raise AssertionError(tree)


def require(value: Any, *types: type) -> Any:
    """``value``, if it is of one of these types; a bool is no int."""
    if type(value) not in types:
        raise NoValue
    return value


def in_range(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise NoValue
    return value


def found(container: dict[str, Any], name: str) -> Any:
    if name not in container:
        raise NoValue
    return container[name]


def bool_or_none(tree: Any, record: Record) -> bool | None:
    try:
        return bool(require(value_of(tree, record), bool))
    except NoValue:
        return None


def connected(decisive: bool, values: list[bool | None]) -> bool:
    if decisive in values:
        return decisive
    if None in values:
        raise NoValue
    return not decisive


def combined(sign: str, left: Any, right: Any) -> Any:
    if sign in ("==", "!="):
        return same(left, right) is (sign == "==")
    if sign == "in":
        container = require(right, list, dict)
        return any(same(left, each) for each in container)
    kinds = {type(left), type(right)}
    are_numbers = kinds <= {int, float}
    if sign in ("<", "<=", ">", ">="):
        if not are_numbers and (len(kinds) > 1 or not kinds <= {bool, str, bytes}):
            raise NoValue
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
    if sign == "+" and len(kinds) == 1 and kinds <= {str, bytes, list}:
        return left + right
    if not are_numbers:
        raise NoValue
    if kinds == {int}:
        return whole(sign, in_range(left) if sign != "+" else left, in_range(right) if sign != "+" else right)
    if sign == "%":
        raise NoValue
    try:
        left, right = float(left), float(right)
    except OverflowError:
        raise NoValue from None
    if sign == "/" and right == 0:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.inf if (left > 0) == (math.copysign(1, right) > 0) else -math.inf
    return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "/": lambda: left / right}[
        sign
    ]()


def whole(sign: str, left: int, right: int) -> int:
    if sign in "/%":
        if right == 0:
            raise NoValue
        quotient = in_range(abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
        result: int = quotient if sign == "/" else left - quotient * right
        return result
    return int(in_range({"+": left + right, "-": left - right, "*": left * right}[sign]))


def same(left: Any, right: Any) -> bool:
    if {type(left), type(right)} <= {int, float}:
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return set(left) == set(right) and all(same(left[name], right[name]) for name in left)
    return bool(left == right)


# ---- the claims ----


@given(TREES, JSON)
def test_the_compiled_expression_has_the_value_of_its_tree(tree: Any, value: Any) -> None:
    record = Record(value)
    text, _ = written(tree)
    try:
        evaluate = parse(text)
    except FilterSyntaxError as error:
        assume(not error.reason.startswith("expressions are nested"))
        raise
    try:
        expected = value_of(tree, record)
    except NoValue:
        expected = NoValue
    try:
        actual = evaluate(Activation(record))
    except EvaluationError:
        actual = NoValue
    assert repr(actual) == repr(expected), text


@given(st.text("value.key()[]!&|=<>+-*/%?:'\"\\bru0x1e9, inhasme", max_size=60))
def test_any_text_is_compiled_or_refused_with_a_place_in_it(text: str) -> None:
    places = []
    try:
        RecordFilter.compile(text).verdict(Record({"a": 1}))
    except FilterSyntaxError as error:
        places.append(error.position)
    assert all(0 <= place <= len(text) for place in places)
