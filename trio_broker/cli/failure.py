"""How a command says that something failed: one line on standard error, and an exit code other than 0."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from trio_broker.cli.output import visible


def fail(reason: str) -> NoReturn:
    """End the command with one clear line."""
    complain(reason)
    sys.exit(1)


def complain(reason: str) -> None:
    """Say what failed, and go on."""
    click.echo(f"trio-broker: {visible(reason)}", err=True)


class Failures:
    """What failed of several things, each told at once, so that the others are still done."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, reason: object) -> None:
        """Tell of one."""
        complain(str(reason))
        self.count += 1

    def exit(self) -> None:
        """End the command with exit code 1 if anything failed."""
        if self.count:
            sys.exit(1)
