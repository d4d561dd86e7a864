"""The range of offsets of one partition's log, and the answer where a time has no offset in it."""

from __future__ import annotations

from typing import Final

import attrs

UNKNOWN_OFFSET: Final = -1
"""ListOffsets' answer if no record is as young as the timestamp."""


@attrs.frozen
class LogRange:
    """The log start offset, and the offset after the last visible record."""

    earliest: int
    latest: int
