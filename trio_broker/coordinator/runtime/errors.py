"""Errors of the coordinators' state machines, which never leave them."""

from __future__ import annotations


class ContradictoryRecords(Exception):
    """Records of one key that cannot all be true, such as two owners of one partition.

    They come from the log, so they are checked even where assertions are switched off (``python -O``).
    """
