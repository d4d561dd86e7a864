"""``did you mean …?``: the known name that a misspelt one resembles most."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CLOSE: Final = 0.75
"""How alike, out of 1, the wrong name of an option or a column and the right one must be for a hint to name that."""


def did_you_mean(given: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return ``; did you mean NAME?`` with the known name nearest to ``given``, or nothing where none is near.

    ``prefix`` is what stands before both.
    """
    # Imported here: only an error message needs it.
    from difflib import get_close_matches

    nearest = get_close_matches(given, known, n=1)
    return f"; did you mean {prefix}{nearest[0]}?" if nearest else ""
