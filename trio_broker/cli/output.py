"""The output of commands: tables or JSON, both from the same rows.

Names of groups and clients come from other machines and may hold any character. Control characters, which a terminal
would execute, are printed as escapes, in tables as well as in errors.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import click

Row: TypeAlias = Mapping[str, Any]
"""One thing, with the names that JSON has for its properties."""

MISSING: Final = "-"
GAP: Final = "  "


def let_everything_be_printed() -> None:
    """Let a terminal that lacks a letter show an escape in its place, rather than end the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # With the default ``strict``, one name outside the terminal's encoding ends a table in its middle.
        sys.stdout.reconfigure(errors="backslashreplace")


def print_json(document: Any) -> None:
    """Print a document on standard output, in ASCII, which every parser and terminal takes."""
    click.echo(json.dumps(document, indent=2))


def print_table(columns: Mapping[str, str], rows: Sequence[Row], *, err: bool = False) -> None:
    """Print rows under headings; ``columns`` has the property of each heading. Columns of numbers go to the right.

    With ``err`` the table goes to standard error: it is not the result, but what is asked about.
    """
    cells = [[cell(row.get(name)) for name in columns.values()] for row in rows]
    to_the_right = [all(_is_number(row.get(name)) for row in rows) for name in columns.values()]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in (list(columns), *cells):
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, to_the_right, strict=True)
        )
        click.echo(GAP.join(padded).rstrip(), err=err)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print what belongs to one thing on a line."""
    click.echo(GAP.join(f"{name}: {cell(value)}" for name, value in facts.items()))


def note(text: str) -> None:
    """Tell a person something that is not the result, on standard error."""
    click.echo(visible(text), err=True)


def cell(value: Any) -> str:
    """Return a value as people read it."""
    if value is None or value in ("", [], ()):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value))
    return visible(str(value))


def visible(text: str) -> str:
    """Return a text on one line, with escapes for what is not to be seen or would steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))
