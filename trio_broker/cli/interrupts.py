"""Ctrl-C as the normal end of a command that reads without end.

The first Ctrl-C raises ``KeyboardInterrupt`` only while the command waits. At any other time it is remembered until the
next wait, so that no record is printed in part, and the answer to every sent record is read. A second Ctrl-C raises at
once, so a command that hangs can still be ended.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """The handler of SIGINT. A context manager for the main thread, in which Python runs signal handlers."""

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
        """Let a Ctrl-C, including an earlier one, raise ``KeyboardInterrupt`` inside the block."""
        # First the flag and then the check: a Ctrl-C between them raises. In the other order it would only be
        # remembered, and the wait would begin in spite of it.
        self._is_waiting = True
        try:
            if self._seen:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_waiting = False
