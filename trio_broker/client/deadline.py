"""How long a command may take, and the pauses between its attempts.

Pauses double from a tenth of a second to a second, as those of Kafka's own clients (``retry.backoff.ms``,
``retry.backoff.max.ms``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import attrs

FIRST_PAUSE_SECONDS: Final = 0.1
"""Long enough for a broker to have news, short enough not to be felt."""

LONGEST_PAUSE_SECONDS: Final = 1.0
"""A broker that loads its groups is asked once a second; less often would only keep people waiting."""


@attrs.frozen
class Deadline:
    """A moment at which to give up. ``now`` and ``sleep`` are in seconds, and replaced by tests."""

    timeout_seconds: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    ends_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "ends_at", self.now() + self.timeout_seconds)

    @property
    def remaining_seconds(self) -> float:
        """What is left, never below zero."""
        return max(0.0, self.ends_at - self.now())

    @property
    def remaining_ms(self) -> int:
        """What is left, for requests that tell the broker how long it may take; at least one."""
        return max(1, int(self.remaining_seconds * 1000))

    def pause(self, seconds: float) -> bool:
        """Sleep and return True, or return False at once where the deadline would come first."""
        if seconds >= self.remaining_seconds:
            return False
        self.sleep(seconds)
        return True


def pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end."""
    seconds = FIRST_PAUSE_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
