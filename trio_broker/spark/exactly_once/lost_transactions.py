"""What is done about transactions that ended after the decision for them and before their commit."""

from __future__ import annotations

from enum import Enum


class LostTransactions(Enum):
    """``rewrite`` commits in their place what the same tasks of the repetition wrote.

    It is right only where every attempt of a task has the same rows, of which the number is compared. ``skip`` goes on
    without these rows.
    """

    FAIL = "fail"
    REWRITE = "rewrite"
    SKIP = "skip"
