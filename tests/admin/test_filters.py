"""Filters of records: what expressions mean, what is refused and where, and what a hostile one can cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from broker_admin.filters.errors import FilterSyntaxError
from broker_admin.filters.lexer import MAX_FILTER_LENGTH
from broker_admin.filters.operations import MAX_INT, MIN_INT, Activation
from broker_admin.filters.parser import MAX_DEPTH, parse
from broker_admin.filters.record_filter import RecordFilter, Verdict


@attrs.frozen
class Record:
    """A record, decoded."""

    key: Any = "c1-7"
    value: Any = attrs.field(factory=lambda: json.loads(ORDER))
    headers: dict[str, Any] = attrs.field(factory=lambda: {"trace": "7", "x-y": b"\xff"})
    offset: int = 42
    partition: int = 3
    timestamp: int = 1_700_000_000_000

    def texts(self, *, as_shown: bool) -> Iterator[str]:
        yield self.key
        yield json.dumps(self.value, ensure_ascii=False)


ORDER = """{"amount": 120, "price": 9.5, "paid": true, "note": null, "customer": {"name": "Zoë", "tags": ["a", "b"]},
            "lines": [{"sku": "x"}, {"sku": "y"}], "huge": 100000000000000000000000}"""

RECORD = Record()


def evaluate(text: str, record: Any = RECORD) -> Any:
    return parse(text)(Activation(record))


def verdict(text: str, record: Any = RECORD) -> Verdict:
    return RecordFilter.compile(text).verdict(record)


def failure(text: str, record: Any = RECORD) -> str:
    """Why ``text`` has no value for ``record``."""
    compiled = RecordFilter.compile(text)
    assert compiled.verdict(record) is Verdict.FAILED
    return compiled.first_failure


VALUES = {
    # literals
    "1": 1,
    "0x1F": 31,
    "1.5": 1.5,
    ".5": 0.5,
    "1e3": 1000.0,
    "-9223372036854775808": MIN_INT,
    "9223372036854775807": MAX_INT,
    "true": True,
    "null": None,
    "'a\"b'": 'a"b',
    r'"\n\t\\\x41\u0042\U00000043\104\""': '\n\t\\ABCD"',
    r"r'\n'": "\\n",
    r"R'\n'": "\\n",
    "'''one\ntwo 'quoted' '''": "one\ntwo 'quoted' ",
    '"""a"b"""': 'a"b',
    r"b'\xff\101é'": b"\xffA\xc3\xa9",
    "br'\\n'": b"\\n",
    "[1, 'a', [true],]": [1, "a", [True]],
    "[]": [],
    "1 // one": 1,
    # variables and members
    "key": "c1-7",
    "offset": 42,
    "partition": 3,
    "timestamp": 1_700_000_000_000,
    "headers['trace']": "7",
    "headers.trace": "7",
    'headers["x-y"]': b"\xff",
    "value.customer.name": "Zoë",
    "value.customer.tags[1]": "b",
    "value.customer.tags[1.0]": "b",
    "value['lines'][0].sku": "x",
    "value.note": None,
    "(value).amount": 120,
    # arithmetic
    "1 + 2 * 3": 7,
    "(1 + 2) * 3": 9,
    "7 - 2 - 1": 4,
    "7 / 2": 3,
    "-7 / 2": -3,
    "7 % -2": 1,
    "-7 % 2": -1,
    "--1": 1,
    "-value.amount": -120,
    "value.amount * 1.5": 180.0,
    "value.price + 1": 10.5,
    "1.0 / 0.0": math.inf,
    "-1.0 / 0.0": -math.inf,
    "'a' + 'b'": "ab",
    "b'a' + b'b'": b"ab",
    "[1] + [2]": [1, 2],
    # comparisons
    "1 == 1.0": True,
    "true == 1": False,
    "[true] == [1]": False,
    "'1' == 1": False,
    "null == null": True,
    "value.note == null": True,
    "1 < 1.5": True,
    "false < true": True,
    "'a' < 'b'": True,
    "b'a' <= b'a'": True,
    "value.huge > 1": True,
    "0.0 / 0.0 == 0.0 / 0.0": False,
    "value.customer == value.customer": True,
    "value.lines != value.customer.tags": True,
    # in
    "partition in [1, 3]": True,
    "1 in [true]": False,
    "'trace' in headers": True,
    "'a' in value.customer.tags": True,
    "1 in headers": False,
    # logic, errors aside
    "true || value.missing": True,
    "value.missing || true": True,
    "value.missing && false": False,
    "false && value.missing": False,
    "1 == 1 && 2 == 2 || value.missing": True,
    "!true": False,
    "!!value.paid": True,
    "value.paid ? 'yes' : value.missing": "yes",
    "false ? 1 : true ? 2 : 3": 2,
    # functions and methods
    "size('Zoë')": 3,
    "size(b'\\xc3\\xab')": 2,
    "value.customer.tags.size()": 2,
    "size(value.customer)": 2,
    "has(value.amount)": True,
    "has(value.missing)": False,
    "has(value.note)": True,
    "has(value.customer.name)": True,
    "key.startsWith('c1')": True,
    "key.endsWith('c1')": False,
    "key.contains('1-')": True,
    "key.matches('^c[0-9]-')": True,
    "key.matches('^-')": False,
    "value.customer.name.matches('Zo.$')": True,
    "int('-12')": -12,
    "int(3.9)": 3,
    "int(-3.9)": -3,
    "double('1.5')": 1.5,
    "string(12) + string(true) + string(b'x') + string(1.5)": "12truex1.5",
}


@pytest.mark.parametrize("text", VALUES)
def test_value_of_an_expression(text: str) -> None:
    value = evaluate(text)
    assert value == VALUES[text]
    assert type(value) is type(VALUES[text])


ERRORS = {
    "value.missing": "there is no field missing (character 7)",
    "value.amount.cents": "int has no field cents (character 14)",
    "value.customer['x']": "there is no field x (character 15)",
    "value.lines[2]": "an index beyond the end of a list (character 12)",
    "value.lines[-1]": "an index beyond the end of a list (character 12)",
    "value.lines[0.5]": "list[double] has no meaning (character 12)",
    "1 / 0": "division by zero (character 3)",
    "1 % 0": "division by zero (character 3)",
    "1.5 % 2.0": "double % double has no meaning (character 5)",
    "9223372036854775807 + 1": "a whole number does not fit in 64 bits (character 21)",
    "-9223372036854775808 / -1": "a whole number does not fit in 64 bits (character 22)",
    "value.huge * value.huge": "a whole number does not fit in 64 bits (character 12)",
    "key < 1": "string < int has no meaning (character 5)",
    "'a' + 1": "string + int has no meaning (character 5)",
    "-'a'": "-string has no meaning (character 1)",
    "!1": "! takes a bool, not int (character 1)",
    "1 && true": "&& takes a bool, not int (character 1)",
    "true && 1": "&& takes a bool, not int (character 9)",
    "1 ? 2 : 3": "? takes a bool, not int (character 3)",
    "value.missing || false": "there is no field missing (character 7)",
    "has(key.length)": "string has no fields (character 1)",
    "size(1)": "int has no size (character 1)",
    "offset.startsWith('4')": "int.startsWith(string) has no meaning (character 8)",
    "offset.matches('4')": "int.matches(string) has no meaning (character 8)",
    "1 in 2": "int in int has no meaning (character 3)",
    "int('12a')": "this string is no whole number (character 1)",
    "int(1e300)": "a whole number does not fit in 64 bits (character 1)",
    "double('zwei')": "this string is no number (character 1)",
    "string(b'\\xff')": "these bytes are no UTF-8 (character 1)",
    "value": "a filter says true or false, not map",
}


@pytest.mark.parametrize("text", ERRORS)
def test_what_has_no_value_is_counted_with_its_reason(text: str) -> None:
    assert failure(text) == ERRORS[text]


REFUSALS = {
    "": ("a value was expected, not the end", 0),
    "value.amount > ": ("a value was expected, not the end", 15),
    "amount > 1": ("there is no 'amount'; there are key, value, headers, offset, partition, timestamp", 0),
    "value.amount = 1": ("'=' is no part of an expression; equality is ==", 13),
    "true & false": ("'&' is no part of an expression; and is &&", 5),
    "1 2": ("an operator was expected, not '2'", 2),
    "(1": ("a parenthesis needs ')', not the end", 2),
    "[1 2]": ("a list needs ',', not '2'", 3),
    "value[1": ("an index needs ']', not the end", 7),
    "true ? 1": ("a condition with '?' needs ':', not the end", 8),
    "'a": ("the string has no closing '", 0),
    "'a\nb'": ("the string has no closing '", 0),
    r"'\q'": (r"\q is no escape; a backslash is \\", 1),
    r"b'\u0041'": (r"\u is no escape; a backslash is \\", 2),
    r"'\ud800'": (r"\ud800 is no character", 1),
    "9223372036854775808": ("9223372036854775808 does not fit in 64 bits", 0),
    "1u": ("a number ends at 'u'", 1),
    "in": ("a value was expected, not 'in'", 0),
    "value.": ("'.' needs the name of a field; others go by [\"name\"]", 6),
    "key.trim()": ("there is no method 'trim'; there are startsWith, endsWith, contains, matches, size", 4),
    "eval('1')": ("there is no function 'eval'; there are has, size, int, double, string", 0),
    "has(value)": ("has() takes a field, such as has(value.amount)", 0),
    "has((value.a))": ("has() takes a field, such as has(value.amount)", 0),
    "size()": ("size() takes one argument, not 0", 0),
    "key.startsWith('a', 'b')": ("startsWith() takes one argument, not 2", 4),
    "key.matches(key)": ("matches() takes a pattern in quotes", 12),
    "key.matches('(')": ("the pattern is none of RE2's: missing ): (", 12),
    "!-1": ("'!' and '-' do not go together without parentheses", 1),
    "__class__": ("there is no '__class__'; there are key, value, headers, offset, partition, timestamp", 0),
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_is_no_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FilterSyntaxError) as refusal:
        parse(text)
    assert (refusal.value.reason, refusal.value.position) == REFUSALS[text]


def test_attributes_of_python_are_out_of_reach() -> None:
    assert failure("value.__class__ == 1") == "there is no field __class__ (character 7)"
    assert failure("key.__len__ == 1") == "string has no field __len__ (character 5)"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1),
        "[" * 2000 + "]" * 2000,
        "value" + ".a" * 2000,
        "value" + "[0]" * 1300,
        "true ? 1 : " * 300 + "1",
        "size(" * 600 + "1" + ")" * 600,
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"nested at most|at most 4096 characters"):
        parse(text)


@pytest.mark.parametrize("operator", ["+", "*", "-", "==", "&&", "||"])
def test_long_chains_are_no_nesting(operator: str) -> None:
    operand = "true" if operator in ("&&", "||") else "1"
    parse(f" {operator} ".join([operand] * (MAX_FILTER_LENGTH // 8)))(Activation(RECORD))


def test_signs_in_a_row_are_no_nesting() -> None:
    assert evaluate("!" * 4000 + "true") is True
    assert evaluate("-" * 4000 + "1") == 1


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*$", "(.*)*x", "(a*)*b"])
def test_catastrophic_patterns_take_linear_time(pattern: str) -> None:
    """A backtracking engine would not come back in a lifetime."""
    record = Record(value="a" * 200_000 + "!")
    assert verdict(f"value.matches('{pattern}')", record) is not Verdict.FAILED


@pytest.mark.parametrize("pattern", ["x" * 1001, "(?:a{1000}){1000}", r"\\pL" * 5, "((a{100}){100}){100}"])
def test_large_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(FilterSyntaxError):
        parse(f"key.matches('{pattern}')")


def test_a_record_that_costs_too_much_is_given_up() -> None:
    """A megabyte joined with itself some hundred times would be hundreds of megabytes."""
    record = Record(value="x" * 1_000_000)
    text = "size(" + " + ".join(["value"] * 500) + ") > 0"
    assert "takes more than" in failure(text, record)
    assert "takes more than" in failure(f"({text}) || true", record)


def test_a_deeply_nested_record_is_no_match() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert failure("value == value", Record(value=deep)) == "the record is nested too deeply"


def test_half_a_surrogate_pair_from_json_is_text() -> None:
    record = Record(value=json.loads('{"a": "x\\ud800"}'))
    assert verdict("value.a.matches('^x')", record) is Verdict.MATCHES
    assert verdict("value.a.startsWith('x')", record) is Verdict.MATCHES


def test_failures_are_counted_and_the_first_is_kept() -> None:
    compiled = RecordFilter.compile("value.amount > 100")
    records = [Record(), Record(value="text"), Record(value={}), Record(value={"amount": 5})]
    verdicts = [compiled.verdict(record) for record in records]
    assert verdicts == [Verdict.MATCHES, Verdict.FAILED, Verdict.FAILED, Verdict.DIFFERS]
    assert (compiled.failures, compiled.first_failure) == (2, "string has no field amount (character 7)")
