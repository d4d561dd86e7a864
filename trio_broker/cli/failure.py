"""The failure of a command: one line on standard error for each reason, and exit code 1."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from trio_broker.common.escaping import escape_control


def fail(reason: str) -> NoReturn:
    """Print the reason and end the command with exit code 1."""
    print_error(reason)
    sys.exit(1)


def print_error(reason: str) -> None:
    """Print the reason of a failure, without ending the command."""
    click.echo(f"trio-broker: {escape_control(reason)}", err=True)


class Failures:
    """The failures of a command about several things: each is printed at once, and the command goes on to the next."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, reason: object) -> None:
        """Print and count a failure."""
        print_error(str(reason))
        self.count += 1

    def exit(self) -> None:
        """End the command with exit code 1 if anything failed."""
        if self.count:
            sys.exit(1)
