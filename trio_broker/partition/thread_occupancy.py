"""How many of some threads were busy, for how long, and how much waited for one of them.

The threads only note when something began and ended, in a deque, which takes no lock. The event loop orders the notes
and adds up the time between them, so every nanosecond counts once. A note that arrives after the time it is about was
added up, because its thread was interrupted in between, counts from then on: an error of microseconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from operator import itemgetter

import attrs

Note = tuple[int, int, int]
"""When it was, and by how much the busy threads and the waiting pieces of work changed."""


@attrs.frozen
class ThreadOccupancyStatistics:
    """Counters only grow.

    ``busy_ns`` says for how long exactly so many threads were busy, by their number; ``all_busy_ns`` for how long all
    of them were, however many there were to be. ``waiting_ns`` is a sum over what waited.
    """

    busy: int
    waiting: int
    busy_ns: Mapping[int, int]
    all_busy_ns: int
    waiting_ns: int

    @property
    def thread_ns(self) -> int:
        """The busy time of each thread, summed up."""
        return sum(threads * nanoseconds for threads, nanoseconds in self.busy_ns.items())


class ThreadOccupancy:
    """The ``note_`` methods may be called in any thread, the others on the event loop."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque()
        self._counted_ns: int | None = None
        self._busy = 0
        self._waiting = 0
        self._busy_ns: defaultdict[int, int] = defaultdict(int)
        self._all_busy_ns = 0
        self._waiting_ns = 0

    def note_queued(self, at_ns: int) -> None:
        """A piece of work waits for a thread from now on."""
        self._notes.append((at_ns, 0, 1))

    def note_begun(self, at_ns: int) -> None:
        """A thread has taken what waited."""
        self._notes.append((at_ns, 1, -1))

    def note_ended(self, at_ns: int) -> None:
        """A thread has finished."""
        self._notes.append((at_ns, -1, 0))

    def advance_to(self, now_ns: int, threads: float) -> None:
        """Add up the time until ``now_ns``, during which there were to be ``threads`` threads."""
        notes = [self._notes.popleft() for _ in range(len(self._notes))]
        for at_ns, busy, waiting in sorted(notes, key=itemgetter(0)):
            self._add_up_to(at_ns, threads)
            self._busy += busy
            self._waiting += waiting
        self._add_up_to(now_ns, threads)

    def _add_up_to(self, at_ns: int, threads: float) -> None:
        if self._counted_ns is None:
            self._counted_ns = at_ns
        elapsed_ns = at_ns - self._counted_ns
        if elapsed_ns <= 0:
            return
        self._counted_ns = at_ns
        self._busy_ns[self._busy] += elapsed_ns
        self._waiting_ns += self._waiting * elapsed_ns
        if self._busy >= threads:
            self._all_busy_ns += elapsed_ns

    def statistics(self) -> ThreadOccupancyStatistics:
        return ThreadOccupancyStatistics(
            self._busy, self._waiting, dict(self._busy_ns), self._all_busy_ns, self._waiting_ns
        )
