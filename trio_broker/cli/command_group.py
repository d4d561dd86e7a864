"""Groups of commands that suggest the right word for a wrong one, and that import a command when it is called.

``trio-broker version`` should not import an HTTP server, nor ``topics list`` an event loop. A ``LazyGroup`` therefore
has only the name of each command's module.

Source: click's guide, "Lazily Loading Subcommands".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import click

from trio_broker.cli.hints import hint
from trio_broker.common.did_you_mean import did_you_mean


class CommandGroup(click.Group):
    """A group whose errors suggest the command or option that was probably meant.

    ``aliases`` are additional names of commands, which the help does not list.
    """

    def __init__(self, *args: Any, aliases: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._aliases = dict(aliases or {})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        name = self._aliases.get(name, name)
        # Not for options, which ``explained`` covers, and not while a shell completes a word that is not finished yet.
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            instead = hint(called(ctx), name) or did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"No such command {name!r}{instead}", ctx)
        return super().resolve_command(ctx, [name, *rest])

    # Click raises NoSuchOption in both: for an option of the group itself here, and for one of a command in ``invoke``.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with explained():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with explained():
            return super().invoke(ctx)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Add a suggestion to the error about an option that does not exist."""
    try:
        yield
    except click.NoSuchOption as error:
        instead = hint(called(error.ctx), error.option_name)
        if not instead and error.possibilities:
            instead = f"; did you mean {error.possibilities[0]}?"
        raise click.UsageError(f"No such option {error.option_name}{instead}", error.ctx) from None


def called(ctx: click.Context | None) -> list[str]:
    """Return the words after ``trio-broker`` on the command line that name the command."""
    words: list[str] = []
    while ctx is not None and ctx.parent is not None:
        words.insert(0, ctx.command.name or "")
        ctx = ctx.parent
    return words


class LazyGroup(CommandGroup):
    """``lives_in`` has the place of each command, as ``module:attribute``, in the order of the help."""

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
