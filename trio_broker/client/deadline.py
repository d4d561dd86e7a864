"""The deadline of a command, and the pauses between its attempts.

Pauses double from a tenth of a second to a second, as those of Kafka's own clients (``retry.backoff.ms``,
``retry.backoff.max.ms``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import attrs

FIRST_PAUSE_SECONDS: Final = 0.1
"""Long enough for a broker to finish an election, short enough not to be noticed."""

LONGEST_PAUSE_SECONDS: Final = 1.0
"""A broker that loads its groups is asked once a second; a longer pause would only delay the command."""

SHORTEST_PAUSE_SECONDS: Final = 0.01
"""The pause where the setting is 0, so that a broker that refuses at once is not asked in a busy loop."""


@attrs.frozen
class Deadline:
    """The time at which to give up. ``now`` and ``sleep`` are in seconds, and replaced by tests."""

    timeout_seconds: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    ends_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # The class is frozen, so its own assignment would raise; the field never changes after this.
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


def pauses(
    first_seconds: float = FIRST_PAUSE_SECONDS, longest_seconds: float = LONGEST_PAUSE_SECONDS
) -> Iterator[float]:
    """Yield the seconds to wait before each further attempt, without end."""
    seconds = first_seconds
    while True:
        yield min(seconds, longest_seconds)
        seconds = min(2 * seconds, longest_seconds)


class RetryDeadline:
    """How long to go on without any progress: a deadline that begins anew with each step, and pauses that grow.

    ``now`` and ``sleep`` are in seconds, and replaced by tests.
    """

    def __init__(
        self,
        seconds: float,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.seconds = seconds
        self._first_pause_seconds = max(SHORTEST_PAUSE_SECONDS, first_pause_seconds)
        self._longest_pause_seconds = max(SHORTEST_PAUSE_SECONDS, longest_pause_seconds)
        self._now = now
        self._sleep = sleep
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress, or there will be from now on."""
        self._deadline = self.within(self.seconds)
        self._pauses = pauses(self._first_pause_seconds, self._longest_pause_seconds)

    def pause(self) -> bool:
        """Sleep, each time longer, and return True; or return False at once where patience would end first."""
        return self._deadline.pause(next(self._pauses))

    def left_for(self, seconds: float) -> Deadline:
        """Return the deadline of a question that may take ``seconds``, unless patience ends before."""
        return self.within(min(seconds, self._deadline.remaining_seconds))

    def within(self, seconds: float) -> Deadline:
        """Return a deadline by the same clock."""
        return Deadline(seconds, now=self._now, sleep=self._sleep)
