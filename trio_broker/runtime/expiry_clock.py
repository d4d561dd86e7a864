"""The time by which data expire: the wall clock, but for jumps forward.

A wall clock that is set forward makes everything look old at once. Whatever is deleted by its age goes by this clock
instead, which goes on as before for a while: retention, compaction, committed offsets, transactional ids and producer
ids. Who set the clock wrongly has that long to set it back, and nothing is lost.

A jump is a gain on the monotonic clock, so none is seen across a restart.
"""

from __future__ import annotations

import logging

import attrs

from trio_broker.runtime.clock import Clock

log = logging.getLogger(__name__)

MAX_CLOCK_STEP_MS = 600_000
"""A wall clock that gained more than this on the monotonic one between two readings was set, or is wrong. Below it,
data expire at most ten minutes early."""

CLOCK_JUMP_HOLD_MS = 600_000
"""How long a jump forward is not followed: two rounds of retention, in which an operator sees the warning."""


@attrs.define
class ExpiryClock:
    """Reads ``clock``. Not for threads: it is read in the event loop only."""

    clock: Clock
    _ahead_ms: int = attrs.field(init=False)
    """By how much the time that is returned is ahead of the monotonic clock."""
    _jumped_to_ms: int = attrs.field(init=False)
    """By how much the wall clock was ahead when a jump was last seen; the same as ``_ahead_ms`` without one."""
    _follow_at_ms: int = attrs.field(default=0, init=False)
    """When that jump is followed, by the monotonic clock."""

    def __attrs_post_init__(self) -> None:
        self._ahead_ms = self._jumped_to_ms = self.clock.now_ms() - self._monotonic_ms()

    def _monotonic_ms(self) -> int:
        return round(self.clock.monotonic() * 1000)

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; behind the wall clock for ``CLOCK_JUMP_HOLD_MS`` after it was set forward,
        unless it is set back meanwhile."""
        now_ms, monotonic_ms = self.clock.now_ms(), self._monotonic_ms()
        ahead_ms = now_ms - monotonic_ms
        if ahead_ms - self._ahead_ms <= MAX_CLOCK_STEP_MS:
            self._ahead_ms = self._jumped_to_ms = ahead_ms
        elif ahead_ms - self._jumped_to_ms > MAX_CLOCK_STEP_MS:
            self._jumped_to_ms = ahead_ms
            self._follow_at_ms = monotonic_ms + CLOCK_JUMP_HOLD_MS
            log.warning(
                "the clock was set forward by %d s: nothing expires by it for %d s, unless it is set back",
                (ahead_ms - self._ahead_ms) // 1000,
                CLOCK_JUMP_HOLD_MS // 1000,
            )
        elif monotonic_ms >= self._follow_at_ms:
            self._ahead_ms = self._jumped_to_ms = ahead_ms
        return monotonic_ms + self._ahead_ms
