"""Keeps what a worker has loaded out of the garbage collections that PySpark makes after every task.

PySpark keeps its workers, and calls ``gc.collect()`` between two tasks (pyspark.daemon). With numba, numpy and pyarrow
loaded it looks at some 85,000 objects, most of them functions and classes that stay for as long as the process. That
takes 40 ms of CPU each time, as long as a small task. ``gc.freeze()`` takes the objects that there are out of all later
collections, which then take microseconds. The processes that plan queries and commit micro-batches are kept, and
collect, in the same way.

It is done at the end of the first task of each kind, when everything that such tasks import is loaded, and again if
modules were imported since; always after a collection, so that no garbage is kept. While something is loaded in the
background (``background_load``) it is put off, since what a compiler works with would be kept for good. What later
tasks make is collected as before. The process that plans a stream lives for one query, and freezes what PySpark has
loaded before anything of ours is: a collection in the middle of imports would look at all of it.

Only these processes do so: a driver is the user's own one, whose memory is not ours to arrange.

Source: pyspark.daemon; Python's gc.freeze.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from trio_broker.spark.workarounds.switch import are_workarounds_on

DAEMON: Final = "pyspark.daemon"
"""The module that forks PySpark's workers, and is the main module of each of them."""

STREAM_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The main module of the process that plans the micro-batches of one query."""

_frozen: Final[dict[str, int]] = {}
"""For each kind of task, how many modules were loaded when this process last froze what there was."""

_loads: Final[set[object]] = set()
"""What is being loaded in the background."""


@contextmanager
def keeping_loaded(kind: str) -> Iterator[None]:
    """Freeze what is loaded at the end of the block, if it is the first task of its kind in a worker of PySpark, or the
    first since modules were imported; before the block in a process that plans a stream."""
    if not are_workarounds_on():
        yield
        return
    if main_module() == STREAM_PLANNER:
        gc.freeze()
    try:
        yield
    finally:
        if _frozen.get(kind) != len(sys.modules) and not _loads and is_worker():
            _frozen[kind] = len(sys.modules)
            gc.collect()
            gc.freeze()


def load_begins(load: object) -> None:
    """Freeze nothing until the load has ended."""
    _loads.add(load)


def load_ends(load: object) -> None:
    """Allow freezing again."""
    _loads.discard(load)


def is_worker() -> bool:
    """Whether this process was forked by PySpark's daemon, to run tasks."""
    return main_module() == DAEMON


def main_module() -> str | None:
    """Return the name of the module that this process was started with (``python -m``)."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec.name if spec is not None else None
