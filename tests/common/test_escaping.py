"""Text of other programs that would steer a terminal, mislead on a page, or run in a spreadsheet."""

from __future__ import annotations

import pytest

from trio_broker.common.escaping import escape_control, escape_formula, escape_unprintable


@pytest.mark.parametrize(
    ("text", "in_terminal", "on_page"),
    [
        ("группа ö 組", "группа ö 組", "группа ö 組"),
        ("two\nlines", r"two\nlines", r"two\u{a}lines"),
        ("\x1b[2Jcleared", r"\x1b[2Jcleared", r"\u{1b}[2Jcleared"),
        ("right\u202eto left", r"right\u202eto left", r"right\u{202e}to left"),
        ("half \ud800", r"half \ud800", r"half \u{d800}"),
    ],
)
def test_what_cannot_be_printed_is_an_escape(text: str, in_terminal: str, on_page: str):
    assert escape_control(text) == in_terminal
    assert escape_unprintable(text) == on_page


def test_what_is_kept_is_no_escape():
    assert escape_control("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"
    assert escape_unprintable("a\n\tb\r", keep="\n\t") == "a\n\tb\\u{d}"


@pytest.mark.parametrize("beginning", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_that_begins_like_a_formula_begins_with_an_apostrophe(beginning: str):
    assert escape_formula(f"{beginning}1+1") == f"'{beginning}1+1"
    assert escape_formula(f"1{beginning}1") == f"1{beginning}1"
