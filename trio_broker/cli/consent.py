"""The one rule of all commands that change a cluster: what cannot be undone is shown first, and done only with consent.

That is: topics and records deleted, partitions added, groups and their offsets deleted, offsets reset. On a terminal
such a command asks. Where nobody can answer, as in a script, it changes nothing and fails, unless ``--execute`` (or
``--yes``) is given. ``--dry-run`` shows what would be done, asks nobody and succeeds. What can be changed back, a
setting or a new topic, is done at once.
"""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from trio_broker.cli.failure import fail
from trio_broker.cli.output import note

DRY_RUN_NOTE: Final = "dry run: nothing was changed; --execute does it"


class Consent(enum.Enum):
    """What the options say about a change that cannot be undone."""

    ASK = enum.auto()
    GIVEN = enum.auto()
    DRY_RUN = enum.auto()


def needs_consent(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--execute`` and ``--dry-run``, and what they say as ``consent``."""

    @click.option(
        "--execute",
        "--yes",
        "execute",
        is_flag=True,
        help="Do it without asking. Otherwise the command asks on a terminal, and changes nothing elsewhere: it cannot"
        " be undone.",
    )
    @click.option("--dry-run", is_flag=True, help="Only show what would be done.")
    @functools.wraps(command)
    def run(*arguments: Any, execute: bool, dry_run: bool, **options: Any) -> None:
        if execute and dry_run:
            raise click.UsageError("--execute and --dry-run exclude each other")
        consent = Consent.GIVEN if execute else Consent.DRY_RUN if dry_run else Consent.ASK
        command(*arguments, consent=consent, **options)

    return run


def dry_run_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose change can be undone, and which therefore does not ask, ``--dry-run`` as ``dry_run``."""
    help_text = "Only let the broker check. Without it the change is made at once: it can be changed back."
    return click.option("--dry-run", is_flag=True, help=help_text)(command)


def is_agreed(consent: Consent, question: str) -> bool:
    """Return whether to make a change that was shown, after asking where that is needed.

    Ends the command where nobody agrees, or nobody is there to ask.
    """
    if consent is Consent.DRY_RUN:
        note(DRY_RUN_NOTE)
    if consent is not Consent.ASK:
        return consent is Consent.GIVEN
    if not somebody_is_there():
        fail("nothing was changed: nobody is there to ask; --execute does it without asking")
    # On standard error: standard output may be a file, and holds the result only.
    if not click.confirm(question, err=True):
        fail("nothing was changed")
    return True


def somebody_is_there() -> bool:
    """Whether a question would reach a person."""
    return sys.stdin.isatty()
