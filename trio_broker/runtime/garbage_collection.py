"""The garbage collector of a process that is a broker.

Python's collector searches all objects that have grown old whenever a quarter as many have followed: with thousands of
partitions and groups most of a second, in which nothing else runs, and mostly for nothing, since reference counts free
what requests leave. So what a full collection has left is excluded from the next ones (``gc.freeze``), which then only
search what has come since (``THRESHOLDS``). Excluded objects are freed by their reference counts as ever.

A cycle that dies after it was excluded stays in memory until ``collect_everything``, an hour at most. Connections,
requests and groups make none: 1,500 connections with refused requests among them, and topics created and deleted, leave
a hundred such objects.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

from trio_broker.concurrency.scheduled_task import ScheduledTask

log = logging.getLogger(__name__)

THRESHOLDS = (2_000, 1, 0)
"""Allocations beyond deallocations before the youngest generation is searched, and how often older ones follow. A full
collection searches some 8,000 objects then, in a millisecond; a large request has dozens of them, and with ten times as
many objects each a small request beside it would wait for milliseconds."""

FULL_COLLECTION_INTERVAL_MS = 3_600_000

OLDEST_GENERATION = 2


def collect_in_small_steps() -> Callable[[], None]:
    """Exclude all that there is from collections, and all that full collections leave from now on; return what ends
    that.

    For a process that is a broker and nothing else, which is why ``Broker`` itself does not do it.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(exclude_survivors)

    def end() -> None:
        gc.callbacks.remove(exclude_survivors)
        gc.set_threshold(*before)
        gc.unfreeze()

    return end


def exclude_survivors(phase: str, information: dict[str, int]) -> None:
    """To be among ``gc.callbacks``."""
    if phase == "stop" and information["generation"] == OLDEST_GENERATION:
        gc.freeze()


async def collect_everything() -> None:
    """Search everything once. Nothing else runs meanwhile, for a tenth of a second if there are a million objects."""
    gc.unfreeze()
    log.debug("%d objects in cycles were found", gc.collect())


FULL_COLLECTION = ScheduledTask("full garbage collection", lambda: FULL_COLLECTION_INTERVAL_MS, collect_everything)
