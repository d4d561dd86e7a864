"""What the operations of a filter do with values, by type.

Values are CEL's, as Python has them: null, bool, int (64 bits), double, string, bytes, list, and map with string keys.
Types do not turn into others on their own; an operation that has nothing for the types it meets is an error, and
``==`` of two types is false. Two things are wider than CEL, because JSON has one kind of number: arithmetic takes an
int and a double together, in double, and so do comparisons (which CEL has too).

Each function takes the activation, from whose budget it pays for text and lists by their length, and the position in
the filter, for errors.

Source: the standard definitions of CEL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from broker_admin.filters.errors import BudgetSpent, EvaluationError

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, list or dict; ``type_name`` has the name that CEL gives to each."""

MAX_INT = 2**63 - 1
MIN_INT = -(2**63)

MAX_STEPS = 32 * 1024 * 1024
"""What one record may cost: characters, bytes and elements that operations look at. A value of 1 MiB can be searched
thirty times; an expression that joins it with itself ends here."""

MAX_NUMBER_CHARACTERS = 400
"""Of a text that ``int()`` and ``double()`` read: no double needs more."""

_TYPE_NAMES = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    dict: "map",
}

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_DECIMAL_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan", re.ASCII | re.IGNORECASE
)


class Activation:
    """One record under evaluation: where its variables are, and what is left of its budget."""

    __slots__ = ("steps_left", "variables")

    def __init__(self, variables: Any) -> None:
        self.variables = variables
        self.steps_left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Pay for ``steps``.

        Raises:
            BudgetSpent: that is more than is left.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            raise BudgetSpent(f"the record takes more than {MAX_STEPS} steps")


Operation: TypeAlias = Callable[[Activation, Value, Value, int], Value]


def type_name(value: Value) -> str:
    return _TYPE_NAMES[type(value)]


def no_overload(operator: str, left: Value, right: Value, position: int) -> EvaluationError:
    return EvaluationError(f"{type_name(left)} {operator} {type_name(right)} has no meaning", position)


def is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def checked_int(number: int, position: int) -> int:
    """``number``, if it fits in 64 bits."""
    if MIN_INT <= number <= MAX_INT:
        return number
    raise EvaluationError("a whole number does not fit in 64 bits", position)


def as_double(number: float, position: int) -> float:
    try:
        return float(number)
    except OverflowError:  # JSON's whole numbers have any size
        raise EvaluationError("a number does not fit in a double", position) from None


# ---- equality and order ----


def equal(activation: Activation, left: Value, right: Value, position: int) -> bool:
    """``==``: numbers by value, everything else within its type, lists and maps by what they hold."""
    activation.spend(1)
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(
            equal(activation, mine, others, position) for mine, others in zip(left, right, strict=True)
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            equal(activation, mine, right[name], position) for name, mine in left.items()
        )
    if isinstance(left, str | bytes):
        activation.spend(min(len(left), len(right)))
    return bool(left == right)


def different(activation: Activation, left: Value, right: Value, position: int) -> bool:
    return not equal(activation, left, right, position)


def ordering(operator: str, compare: Callable[[Any, Any], bool]) -> Operation:
    """The operation behind ``<``, ``<=``, ``>`` or ``>=``."""

    def run(activation: Activation, left: Value, right: Value, position: int) -> bool:
        if is_number(left) and is_number(right):
            return compare(left, right)
        if type(left) is type(right) and isinstance(left, str | bytes | bool):
            activation.spend(1 if isinstance(left, bool) else min(len(left), len(right)))
            return compare(left, right)
        raise no_overload(operator, left, right, position)

    return run


def contained(activation: Activation, element: Value, container: Value, position: int) -> bool:
    """``in``: an element of a list, or a key of a map."""
    if isinstance(container, list):
        return any(equal(activation, element, each, position) for each in container)
    if isinstance(container, dict):
        return isinstance(element, str) and element in container
    raise no_overload("in", element, container, position)


# ---- arithmetic ----


def add(activation: Activation, left: Value, right: Value, position: int) -> Value:
    """The sum of numbers; strings, bytes and lists one behind the other."""
    if is_number(left) and is_number(right):
        if type(left) is int and type(right) is int:
            return checked_int(left + right, position)
        return as_double(left, position) + as_double(right, position)
    if type(left) is type(right) and isinstance(left, str | bytes | list):
        activation.spend(len(left) + len(right))
        return left + right
    raise no_overload("+", left, right, position)


def subtract(activation: Activation, left: Value, right: Value, position: int) -> Value:
    return arithmetic("-", left, right, position, lambda a, b: a - b, lambda a, b: a - b)


def multiply(activation: Activation, left: Value, right: Value, position: int) -> Value:
    return arithmetic("*", left, right, position, lambda a, b: a * b, lambda a, b: a * b)


def divide(activation: Activation, left: Value, right: Value, position: int) -> Value:
    """Towards zero for two ints; a double divided by zero is infinite, or no number."""
    return arithmetic("/", left, right, position, truncated_quotient, double_quotient)


def remainder(activation: Activation, left: Value, right: Value, position: int) -> Value:
    """Of two ints only, with the sign of the first."""
    if type(left) is not int or type(right) is not int:
        raise no_overload("%", left, right, position)
    return arithmetic("%", left, right, position, lambda a, b: a - b * truncated_quotient(a, b), double_quotient)


def arithmetic(
    operator: str,
    left: Value,
    right: Value,
    position: int,
    of_ints: Callable[[int, int], int],
    of_doubles: Callable[[float, float], float],
) -> Value:
    if not (is_number(left) and is_number(right)):
        raise no_overload(operator, left, right, position)
    if type(left) is float or type(right) is float:
        return of_doubles(as_double(left, position), as_double(right, position))
    # JSON's whole numbers have any size, and long multiplication takes its time.
    checked_int(left, position), checked_int(right, position)
    try:
        return checked_int(of_ints(left, right), position)
    except ZeroDivisionError:
        raise EvaluationError("division by zero", position) from None


def truncated_quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def double_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def negated(value: Value, position: int) -> Value:
    if not is_number(value):
        raise EvaluationError(f"-{type_name(value)} has no meaning", position)
    return -value if type(value) is float else checked_int(-value, position)


# ---- fields, elements, sizes ----


def selected(value: Value, field: str, position: int) -> Value:
    """``value.field``."""
    if not isinstance(value, dict):
        raise EvaluationError(f"{type_name(value)} has no field {field}", position)
    try:
        return value[field]
    except KeyError:
        raise EvaluationError(f"there is no field {field}", position) from None


def has_field(value: Value, field: str, position: int) -> bool:
    """``has(value.field)``."""
    if not isinstance(value, dict):
        raise EvaluationError(f"{type_name(value)} has no fields", position)
    return field in value


def element(value: Value, index: Value, position: int) -> Value:
    """``value[index]``: an element of a list by its number from 0, or of a map by its key."""
    if isinstance(value, list) and is_number(index) and index == index // 1:
        if 0 <= index < len(value):
            return value[int(index)]
        raise EvaluationError("an index beyond the end of a list", position)
    if isinstance(value, dict) and isinstance(index, str):
        return selected(value, index, position)
    raise EvaluationError(f"{type_name(value)}[{type_name(index)}] has no meaning", position)


def size(value: Value, position: int) -> int:
    """Characters of a string, bytes, elements of a list or a map."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise EvaluationError(f"{type_name(value)} has no size", position)


# ---- conversions ----


def to_int(value: Value, position: int) -> int:
    """A number without its fraction, or the number that a text shows."""
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        return checked_int(int(value), position)
    if type(value) is float and math.isfinite(value):
        return checked_int(int(value), position)
    if type(value) is int:
        return value
    raise EvaluationError(f"this {type_name(value)} is no whole number", position)


def to_double(value: Value, position: int) -> float:
    if isinstance(value, str) and len(value) <= MAX_NUMBER_CHARACTERS and _DECIMAL_NUMBER.fullmatch(value):
        return float(value)
    if is_number(value):
        return as_double(value, position)
    raise EvaluationError(f"this {type_name(value)} is no number", position)


def to_string(value: Value, position: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("these bytes are no UTF-8", position) from None
    if type(value) is float:
        return repr(value)
    if type(value) is int:
        return str(checked_int(value, position))
    raise EvaluationError(f"string() takes no {type_name(value)}", position)
