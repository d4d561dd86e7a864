"""Consent to a change of a cluster that cannot be undone: the change is shown, and made only if the user agrees.

These changes are: deletions of topics, records, groups and committed offsets, more partitions, resets of offsets,
removals of access control entries, which nobody may remember, and aborts of transactions.
On a terminal the command asks. Without a terminal, as in a script, it changes nothing and fails, unless ``--execute``
(or ``--yes``) is given. ``--dry-run`` shows the change, asks no question and succeeds. A change that can be reverted,
of a setting or by a new topic, is made at once.
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

DRY_RUN_NOTE: Final = "dry run: nothing was changed; --execute makes the change"


class Consent(enum.Enum):
    """Whether a change that cannot be undone is asked about, made, or only shown."""

    ASK = enum.auto()
    GIVEN = enum.auto()
    DRY_RUN = enum.auto()


def needs_consent(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options ``--execute`` and ``--dry-run``, as the argument ``consent``."""

    @click.option(
        "--execute",
        "--yes",
        "execute",
        is_flag=True,
        help="Make the change, which cannot be undone, without asking. Otherwise the command asks on a terminal, and"
        " without a terminal changes nothing.",
    )
    @click.option("--dry-run", is_flag=True, help="Only show the change.")
    @functools.wraps(command)
    def run(*arguments: Any, execute: bool, dry_run: bool, **options: Any) -> None:
        if execute and dry_run:
            raise click.UsageError("--execute and --dry-run exclude each other")
        consent = Consent.GIVEN if execute else Consent.DRY_RUN if dry_run else Consent.ASK
        command(*arguments, consent=consent, **options)

    return run


def dry_run_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--dry-run`` as ``dry_run``, if its change can be reverted and it therefore does not ask."""
    help_text = "Only let the broker check the change. Otherwise it is made without a question: it can be reverted."
    return click.option("--dry-run", is_flag=True, help=help_text)(command)


def is_agreed(consent: Consent, question: str) -> bool:
    """Whether to make a change that was shown; asks if the options do not decide it.

    The command ends here if the user says no, or if there is no terminal to ask on.
    """
    if consent is Consent.DRY_RUN:
        note(DRY_RUN_NOTE)
    if consent is not Consent.ASK:
        return consent is Consent.GIVEN
    if not is_interactive():
        fail("nothing was changed: there is no terminal to ask on; --execute makes the change without asking")
    # The question is printed on standard error: standard output may be a file, and has only the result.
    if not click.confirm(question, err=True):
        fail("nothing was changed")
    return True


def is_interactive() -> bool:
    """Whether standard input is a terminal, so that a user can answer a question."""
    return sys.stdin.isatty()
