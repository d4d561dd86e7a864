"""Work in several processes of this machine, for commands: a broker is one process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_processes(work: Callable[[Item], Result], items: Sequence[Item], processes: int) -> Iterator[Result]:
    """Yield the results of ``work`` on each item as they come, in any order; ``processes`` work at a time.

    Items, results and ``work`` are pickled. With one process, or one item, this process does the work.
    """
    if processes <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    # Forked, since a command has one thread: a spawned one would import everything again.
    with multiprocessing.get_context("fork").Pool(min(processes, len(items))) as pool:
        yield from pool.imap_unordered(work, items)
