"""Text of other programs, written so that it does no harm where it is shown.

Ids of clients, groups and members, records, and reasons in errors are whatever a client sent: control characters,
letters that run from right to left, formulas. Each function is for one place where such a text is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FORMULA_BEGINNINGS: Final = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets take a cell that begins so for a formula; a tab or a line end before one is passed over."""

LINE_ENDS_AND_TABS: Final = "\n\t"


def escape_control(text: str, keep: str = "") -> str:
    r"""Return a text for a terminal or a log, which control characters such as ``\x1b`` would steer.

    These and other unprintable characters are escapes as in Python's strings, but those in ``keep``.
    """
    return _escaped(text, keep, lambda each: each.encode("unicode_escape").decode())


def escape_unprintable(text: str, keep: str = "") -> str:
    r"""Return a text for a page, where unprintable characters would be invisible or turn the letters around them.

    They are escapes such as ``\u{0}``, but those in ``keep``, so that ``a\u{0}b`` is not taken for ``ab``. Markup is
    left as it is: templates escape it.
    """
    return _escaped(text, keep, lambda each: f"\\u{{{ord(each):x}}}")


def escape_formula(text: str) -> str:
    """Return a text for a cell of a spreadsheet, which would execute one that begins like a formula."""
    return f"'{text}" if text.startswith(FORMULA_BEGINNINGS) else text


def _escaped(text: str, keep: str, escape: Callable[[str], str]) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else escape(each) for each in text)
