"""The axis of time that the pictures of the pages have, from left to right."""

from __future__ import annotations

import attrs

LONG_SPAN_MS = 600_000
"""An axis of less shows seconds."""

DAY_MS = 86_400_000


@attrs.frozen
class TimeAxis:
    """From ``start_ms`` to ``end_ms``."""

    start_ms: int
    end_ms: int

    @property
    def middle_ms(self) -> int:
        return (self.start_ms + self.end_ms) // 2

    @property
    def is_long(self) -> bool:
        """Whether its labels need no seconds."""
        return self.end_ms - self.start_ms >= LONG_SPAN_MS

    @property
    def has_dates(self) -> bool:
        """Whether a time of day does not say which day."""
        return self.end_ms - self.start_ms > DAY_MS

    def percent(self, at_ms: int) -> float:
        """How far from the left ``at_ms`` is."""
        return 100 * (at_ms - self.start_ms) / (self.end_ms - self.start_ms)
