"""The output of commands: tables or JSON, both from the same rows.

Names of groups and clients are chosen by other programs and may contain any character. A terminal would execute control
characters, so they are printed as escapes, in tables and in errors.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import click

from trio_broker.common.escaping import escape_control

Row: TypeAlias = Mapping[str, Any]
"""One row of a table, and one object in JSON: its values by their names in JSON."""

MISSING: Final = "-"
GAP: Final = "  "


def let_everything_be_printed() -> None:
    """Print a character that the terminal's encoding lacks as an escape."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The default, ``strict``, raises, so one name outside the encoding would end a table in the middle.
        sys.stdout.reconfigure(errors="backslashreplace")


def print_json(document: Any) -> None:
    """Print a document on standard output, in ASCII, which every parser and terminal understands."""
    click.echo(json.dumps(document, indent=2))


def print_table(columns: Mapping[str, str], rows: Sequence[Row], *, err: bool = False) -> None:
    """Print rows under headings; ``columns`` has the name in the rows for each heading. Numbers are aligned to the
    right.

    With ``err`` the table is printed on standard error: it is then not the result, but belongs to a question.
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
    """Print names and values on one line."""
    click.echo(GAP.join(f"{name}: {cell(value)}" for name, value in facts.items()))


def note(text: str) -> None:
    """Print a message that is not the result, on standard error."""
    click.echo(escape_control(text), err=True)


def cell(value: Any) -> str:
    """Return the text of a value in a table."""
    if value is None or value in ("", [], ()):
        return MISSING
    # Before numbers and text: a bool is an int, too.
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(map(cell, value))
    return escape_control(str(value))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))
