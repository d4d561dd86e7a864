"""When the records of a partition were appended: few samples, dense where it is recent, sparse where it is long ago.

A lag in seconds needs the time at which the first record that a consumer has not read was appended. Timestamps in the
records do not tell (producers choose them), and remembering every append would take as much memory as a log has
batches. So an append is noted at most every ``SAMPLE_EVERY_MS``, and when the room for samples is used up, those that
lie close together for their age are merged: what remains is a row of spans, each as long as a small part of its age.

Promise: ``appended_at`` never gives a time after the true one, and is early by no more than ``SAMPLE_EVERY_MS`` or
``MAX_ERROR_FRACTION`` of the record's age, whichever is more. ``MAX_SAMPLES`` are enough for that for a year or more of
constant appends; beyond, the error of the oldest doubles. A clock that is set back voids it for what was before.

Only appends of this process are known; what was in the log at the start has to be asked for its own timestamps.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

SAMPLE_EVERY_MS = 100
"""As exactly as people look at a lag."""

MAX_ERROR_FRACTION = 0.1
"""Of a record's age: a lag of an hour may be reported as up to six minutes more, three on average."""

MAX_SAMPLES = 384
"""16 bytes each, so 6 KiB. Spans of a twentieth to a tenth of their age are some 200 for a week and 260 for a year."""

MAX_KEPT_SAMPLES = MAX_SAMPLES * 7 // 8
"""What merging may leave, so that it is not done again at once: it takes some 50 µs."""

NEVER_MS = -(2**63)


class AppendTimes:
    """The samples of one partition. ``next_sample_ms`` is when the next append is worth one."""

    __slots__ = ("_offsets", "_times_ms", "last_sample_ms", "next_sample_ms")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._times_ms = array("q")
        self.last_sample_ms = NEVER_MS
        self.next_sample_ms = NEVER_MS

    def __len__(self) -> int:
        return len(self._offsets)

    def sample(self, first_offset: int, now_ms: int) -> None:
        """Note that what begins at ``first_offset`` is appended now.

        To be called by the appending task when it is time: at ``next_sample_ms`` or later, or before
        ``last_sample_ms``, when the clock was set back.
        """
        if len(self._offsets) == MAX_SAMPLES:
            self._merge(now_ms)
        self._offsets.append(first_offset)
        self._times_ms.append(now_ms)
        self.last_sample_ms = now_ms
        self.next_sample_ms = now_ms + SAMPLE_EVERY_MS

    def appended_at(self, offset: int) -> int | None:
        """Return about when the record at ``offset`` was appended (wall clock, ms); None if that was before us."""
        index = bisect_right(self._offsets, offset) - 1
        return self._times_ms[index] if index >= 0 else None

    def _merge(self, now_ms: int) -> None:
        """Give up each sample whose records may as well count to the one kept before it: it ends soon after that."""
        offsets, times_ms = self._offsets, self._times_ms
        kept = [0]
        kept_ms = times_ms[0]
        last = len(times_ms) - 1
        for index in range(1, last):
            end_ms = times_ms[index + 1]
            if end_ms - kept_ms > (now_ms - end_ms) * MAX_ERROR_FRACTION:
                kept.append(index)
                kept_ms = times_ms[index]
        if len(kept) > MAX_KEPT_SAMPLES:
            kept = kept[::2]
        kept.append(last)
        self._offsets = array("q", [offsets[index] for index in kept])
        self._times_ms = array("q", [times_ms[index] for index in kept])
