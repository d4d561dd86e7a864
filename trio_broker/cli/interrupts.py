"""Ctrl-C as the ordinary end of a command that reads on and on.

The first one raises ``KeyboardInterrupt`` where the command only waits, and is remembered elsewhere, so that no record
is half printed or sent without its answer being read. A second one raises wherever the command is.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Use it as a context manager, in the main thread, around the whole command."""

    def __init__(self) -> None:
        self._seen = False
        self._is_waiting = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._seen or self._is_waiting:
            self._seen = True
            raise KeyboardInterrupt
        self._seen = True

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a Ctrl-C, also one that came before, raise ``KeyboardInterrupt`` inside the block."""
        # In this order: a Ctrl-C between the two would be remembered, and not looked for before the wait is over.
        self._is_waiting = True
        try:
            if self._seen:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_waiting = False
