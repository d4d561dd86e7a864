"""What is unread on one connection, over the looks at it: since when requests wait, and how long the next one will."""

from __future__ import annotations

import attrs

BACKLOG_SECONDS = 5.0
"""How long requests wait at every look before that is a backlog: longer than a burst."""

RECENT_WEIGHT = 0.2
"""Of the last look in the rate: a mean over some five of them, so that one slow request does not make it."""


@attrs.define(eq=False)
class UnreadBytes:
    """What was unread at the latest look, at ``looked_at`` of the monotonic clock.

    ``waiting_since`` is the first of the looks in a row at which requests waited behind another one, and
    ``bytes_per_second`` what was taken since then. Of all that came, ``bytes_in``, ``taken_bytes`` were given to
    handlers.
    """

    count: int = 0
    looked_at: float = 0.0
    waiting_since: float | None = None
    bytes_in: int = 0
    taken_bytes: int = 0
    bytes_per_second: float | None = None

    @property
    def is_backlog(self) -> bool:
        """Whether requests have waited at every look for so long that it is no burst."""
        return self.waiting_since is not None and self.looked_at - self.waiting_since >= BACKLOG_SECONDS

    @property
    def wait_seconds(self) -> float | None:
        """How long a request that comes now will wait, at the rate at which they were taken lately; None where none is
        taken, or there is no backlog.

        A client waits longer if its own kernel holds back more, which the window of TCP does not let through.
        """
        return self.count / self.bytes_per_second if self.is_backlog and self.bytes_per_second else None

    def note(self, now: float, count: int, *, waits: bool | None, bytes_in: int, taken_bytes: int) -> None:
        """Remember a look, at which ``count`` bytes were unread; ``waits`` says whether they are requests behind
        another one, None if that is not known."""
        if waits is False:
            self.waiting_since = None
        elif waits and self.waiting_since is None:
            self.waiting_since, self.bytes_per_second = now, None
        elif self.waiting_since is not None and now > self.looked_at:
            latest = (taken_bytes - self.taken_bytes) / (now - self.looked_at)
            mean = latest if self.bytes_per_second is None else self.bytes_per_second
            self.bytes_per_second = mean + RECENT_WEIGHT * (latest - mean)
        self.count, self.looked_at, self.bytes_in, self.taken_bytes = count, now, bytes_in, taken_bytes
