"""Which pieces of work on one disk are slow, so that they leave threads to the others.

Work that waits for a disk holds its thread for as long as the disk takes. While some waits for a thread, the pieces
that have one are looked at every ``SLOW_SECONDS``. A piece that was there at the look before is *slow*: its owner is
noted, and gives its next ones to other threads; and until it has ended, a thread is added in its place, up to twice as
many as usual. Nothing is measured, and no task runs, as long as no work waits: then a slow one holds up nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Generic, TypeVar

import trio

from trio_broker.concurrency.barrier import start_once

SLOW_SECONDS = 0.02
"""Far above a sync or a read of a solid-state disk, and about one of a disk that turns, whose partitions may all be
slow: they have as many threads as the others."""

Work = TypeVar("Work", bound=Hashable)


class SlowWork(Generic[Work]):
    """See the head of the file. ``found`` is called with each piece that is slow, at every look."""

    def __init__(self, threads: int, *, set_threads: Callable[[int], None], found: Callable[[Work], None]) -> None:
        self._threads = threads
        self._set_threads = set_threads
        self._found = found
        # In the order in which they came, and begin.
        self._waiting_or_begun: dict[Work, None] = {}
        self._added_threads = 0
        self._is_watched = False
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Watch when it is necessary, until cancelled. Nothing is found to be slow before."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._watch_if_necessary()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def add(self, work: Work) -> None:
        """Note that ``work`` begins as soon as a thread is free."""
        self._waiting_or_begun[work] = None
        self._watch_if_necessary()

    def _watch_if_necessary(self) -> None:
        if len(self._waiting_or_begun) > self._threads and not self._is_watched and self._nursery is not None:
            self._is_watched = True
            start_once(self._nursery, "watch for slow work", self._watch)

    def remove(self, work: Work) -> None:
        """Note that ``work`` has ended, or been given up."""
        del self._waiting_or_begun[work]

    def resize(self, threads: int) -> None:
        """Change how many threads there are; what has begun goes on."""
        self._threads = threads
        self._set_threads(threads + self._added_threads)

    async def _watch(self) -> None:
        """Find out which pieces are slow, as long as others wait."""
        begun: set[Work] = set()
        try:
            while self._added_threads or len(self._waiting_or_begun) > self._threads:
                begun_before = begun
                begun = set(islice(self._waiting_or_begun, self._threads + self._added_threads))
                slow = begun & begun_before
                for work in slow:
                    self._found(work)
                self._added_threads = min(len(slow), self._threads)
                self._set_threads(self._threads + self._added_threads)
                await trio.sleep(SLOW_SECONDS)
        finally:
            self._is_watched = False
