"""Which records a reader wants to see, as Fetch and ListOffsets say it (KIP-98).

Source: Kafka's IsolationLevel.
"""

from __future__ import annotations

import enum


class IsolationLevel(enum.IntEnum):
    """``READ_UNCOMMITTED`` reaches up to the high watermark. ``READ_COMMITTED`` ends at the last stable offset, and
    leaves out what belongs to aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, *, read_committed: bool) -> IsolationLevel:
        """Return the level of a reader of committed records only, or of all."""
        return cls.READ_COMMITTED if read_committed else cls.READ_UNCOMMITTED
