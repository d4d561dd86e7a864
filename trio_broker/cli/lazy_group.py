"""A group of commands that imports a command's module when the command is called.

``trio-broker version`` should not pay for an HTTP server, nor a list of topics for an event loop.

Source: click's guide, "Lazily Loading Subcommands".
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """``lives_in`` says for each command where it is, as ``module:attribute``; help lists them in that order."""

    def __init__(self, *args: Any, lives_in: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lives_in = dict(lives_in)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lives_in)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lives_in:
            return None
        module, _, attribute = self._lives_in[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), command
        return command
