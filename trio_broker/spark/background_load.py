"""Loads what takes seconds in a thread, while a worker's first tasks do without.

Code by numba takes half a second of CPU to load and several to compile, more than it saves where there are few rows. A
worker therefore begins to load once it has had, or is about to have, rows enough. Only workers of PySpark load in the
background. They end by ``os._exit``; in any other process a thread that compiles would still run while the interpreter
takes down what it uses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from trio_broker.spark.workarounds import worker_memory

T = TypeVar("T")


class BackgroundLoad(Generic[T]):
    """A value that is loaded once: with the first ``get``, in a worker with that which brings its rows to ``min_rows``.

    ``load`` raises nothing. It must not need an import that is not done yet and that the other threads of the process
    wait for.
    """

    def __init__(self, load: Callable[[], T], *, min_rows: int = 0) -> None:
        self._load = load
        self._rows_remaining = min_rows
        self._lock = threading.Lock()
        self._is_loading = False
        self._loaded: list[T] = []

    def get(self, rows: int = 0) -> T | None:
        """Return the value; in a worker, None until it is loaded. ``rows`` more are to be worked on with it."""
        if not self._loaded:
            self._begin(rows)
        return self._loaded[0] if self._loaded else None

    def _begin(self, rows: int) -> None:
        with self._lock:
            if self._loaded or self._is_loading:
                return
            if not worker_memory.is_worker():
                self._loaded.append(self._load())
                return
            self._rows_remaining -= rows
            if self._rows_remaining > 0:
                return
            self._is_loading = True
            worker_memory.load_begins(self)
            threading.Thread(target=self._run, name="load", daemon=True).start()

    def _run(self) -> None:
        try:
            self._loaded.append(self._load())
        finally:
            worker_memory.load_ends(self)
