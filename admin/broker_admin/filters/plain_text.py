"""Text that is no expression: records contain it in key or value.

Most searches are for a word: a name, a number, an id. So a filter is an expression only where it clearly is one: a
field of the record with something done to it (``value.amount``, ``key == …``, ``… in headers``), a method or function
of filters, or a comparison, ``&&`` or ``||`` with spaces around it. All else is text: a word alone even if it names a
field (``key``), a number, ``true``, a date, arithmetic (``a+b``), XML. Text in quotes is always text, without them.

What is looked for, and in what, is compared without regard to case (``str.casefold``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from broker_admin.filters.errors import FilterSyntaxError
from broker_admin.filters.lexer import TokenKind, tokens_of
from broker_admin.filters.operations import Activation
from broker_admin.filters.parser import FUNCTIONS, STRING_METHODS, VARIABLES

_FIELD = rf"\b(?:{'|'.join(VARIABLES)})\b"
_METHODS = "|".join([*STRING_METHODS, "matches", "size"])

_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")

_MARKUP = re.compile(r"\s*<")
"""No expression begins like this."""

_EXPRESSION = re.compile(
    rf"""
      {_FIELD} \s* (?: \.(?!\s) | \[ | [=!<>]= )      # value.amount, headers["trace"], key == …
    | ^ \s* {_FIELD} \s* =                            # a slip, of which the error says that equality is ==
    | {_FIELD} \s* [<>] \s* [-\d"(]                   # offset > 5, but not <key>
    | {_FIELD} \s+ in \s* \[
    | ["\d] \s* (?: in \s+ | [=!<>]=? \s* ) {_FIELD}  # "a" in headers, 5 < offset
    | ["\w)\]] [=!<>]= ["\d-]                         # size("a")==1
    | \. (?: {_METHODS} ) \(
    | \b (?: has | {"|".join(FUNCTIONS)} ) \( \s* (?: {_FIELD} | " )
    | \S \s+ (?: [=!<>]= | [<>] | && | \|\| ) \s+ \S  # a misspelt field, too
    """,
    re.VERBOSE,
)

_JSON_MARKS = re.compile(r"[\s,:{}\[\]]")
"""Where JSON as it is shown may differ from JSON as it was written: the space around them."""

IN_QUOTES = "in quotes it is searched for as text"


def is_expression(text: str) -> bool:
    """Whether a filter is clearly meant as an expression."""
    if _MARKUP.match(text) or quoted_text(text) is not None:
        return False
    return _EXPRESSION.search(_STRING.sub('""', text)) is not None


def quoted_text(text: str) -> str | None:
    """What stands in the quotes, if ``text`` is nothing but a string in quotes."""
    if text.strip()[:1] not in ("'", '"'):
        return None
    try:
        tokens = tokens_of(text)
    except FilterSyntaxError:
        return None
    is_string = len(tokens) == 2 and tokens[0].kind is TokenKind.LITERAL and isinstance(tokens[0].value, str)
    return str(tokens[0].value) if is_string else None


def wanted_text(text: str) -> str:
    """The text that is looked for where ``text`` is no expression."""
    quoted = quoted_text(text)
    return text.strip() if quoted is None else quoted


def containment(wanted: str) -> Callable[[Activation], bool]:
    """The closure that says whether a record contains ``wanted`` in key or value."""
    folded = wanted.casefold()
    has_marks = _JSON_MARKS.search(wanted) is not None

    def evaluate(activation: Activation) -> bool:
        for text in activation.variables.texts(as_shown=has_marks):
            activation.spend(len(text))
            if folded in text.casefold():
                return True
        return False

    return evaluate
