"""Ctrl-C as the normal end of a command: of one that reads without end, and of one that waits for Spark.

``Interrupts`` is for a command that reads without end. The first Ctrl-C raises ``KeyboardInterrupt`` only while the
command waits. At any other time it is remembered until the next wait, so that no record is printed in part, and the
answer to every sent record is read. A second Ctrl-C raises at once, so a command that hangs can still be ended.

``ending_after_ctrl_c`` bounds the time that a command waits, after Ctrl-C, for the end of what it has begun elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Final

from trio_broker.spark.workarounds.jvm_output import STANDARD_ERROR

END_SECONDS: Final = 10.0
"""From Ctrl-C to the end of the process at the latest. Spark ends its jobs and a session in two seconds; the client of
Spark Connect tries for minutes to reach a server that does not answer."""


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


@contextlib.contextmanager
def ending_after_ctrl_c(text: str, code: int, seconds: float = END_SECONDS) -> Iterator[None]:
    """End the process with ``text`` and exit code ``code``, ``seconds`` after a Ctrl-C in the block, if it still runs.

    Ctrl-C does what it did before, too: it raises ``KeyboardInterrupt``, which libraries may catch. The end is that of
    a killed process, so what the command does must survive one. Only the main thread may call it.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        # Ctrl-C is ignored, as in a shell's background.
        yield
        return
    # A signal handler may run while its thread holds any lock: it starts no thread, and this queue's put is reentrant.
    seen: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def take(number: int, frame: FrameType | None) -> None:
        seen.put(True)
        before(number, frame)

    def watch() -> None:
        if seen.get():
            time.sleep(seconds)
            # Not by ``sys.stderr``, whose lock the thread that hangs may hold. On a terminal, below the progress.
            line_break = "\n" if os.isatty(STANDARD_ERROR) else ""
            os.write(STANDARD_ERROR, f"{line_break}{text}\n".encode())
            os._exit(code)

    threading.Thread(target=watch, name="end-after-ctrl-c", daemon=True).start()
    signal.signal(signal.SIGINT, take)
    try:
        yield
    finally:
        # Spark on this machine sets a handler of its own when it starts.
        if signal.getsignal(signal.SIGINT) is take:
            signal.signal(signal.SIGINT, before)
        seen.put(False)
