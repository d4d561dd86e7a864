"""The help of every command is text as a terminal shows it: no markup of click or of docstrings, no wide lines."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from trio_broker.cli import main

WIDTH = 80
"""Of the terminal that click takes where there is none; only what it must not wrap may be wider, and nothing is."""


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that call ``command`` and every command under it."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from paths(found, (*path, name))


@pytest.mark.parametrize("path", list(paths(main)), ids=" ".join)
def test_a_help_has_no_markup_and_no_wide_lines(path: tuple[str, ...]):
    result = CliRunner().invoke(main, [*path, "--help"], prog_name="trio-broker")
    assert result.exit_code == 0
    assert not {markup for markup in ("\\b\n", "\\b ", "\b", "`", "\f") if markup in result.output}
    assert [line for line in result.output.splitlines() if len(line) > WIDTH] == []


def test_the_tokens_of_a_format_are_a_list():
    lines = CliRunner().invoke(main, ["consume", "--help"]).output.splitlines()
    assert "  FORMAT has these tokens:" in lines
    assert any(line.startswith("    %t  topic") for line in lines)
    assert any(r"\n, \r, \t, \0, \xNN" in line for line in lines)
