"""Keeps what a worker has loaded out of the garbage collections that PySpark makes after every task.

PySpark keeps its workers, and calls ``gc.collect()`` between two tasks (pyspark.daemon). With numba, numpy and pyarrow
loaded it looks at some 85,000 objects, most of them functions and classes that stay for as long as the process. That
takes 40 ms of CPU each time, as long as a small task. ``gc.freeze()`` takes the objects that there are out of all later
collections, which then take microseconds.

It is done at the end of the first task of each kind, when everything that such tasks import is loaded, and after a
collection, so that no garbage is kept. What later tasks make is collected as before. Only workers do so: a driver is
the user's own process, whose memory is not ours to arrange.

Source: pyspark.daemon; Python's gc.freeze.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DAEMON: Final = "pyspark.daemon"
"""The module that forks PySpark's workers, and is the main module of each of them."""

_frozen: Final[set[str]] = set()
"""The kinds of tasks that this process has run."""


@contextmanager
def keeping_loaded(kind: str) -> Iterator[None]:
    """Freeze what is loaded at the end of the block, if it is the first task of its kind in a worker of PySpark."""
    try:
        yield
    finally:
        if kind not in _frozen and is_worker():
            _frozen.add(kind)
            gc.collect()
            gc.freeze()


def is_worker() -> bool:
    """Whether this process was forked by PySpark's daemon, to run tasks."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == DAEMON
