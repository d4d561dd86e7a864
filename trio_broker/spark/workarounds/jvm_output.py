"""What Spark's JVM writes on standard error, line by line, so that it does not run into a line that shows progress.

A JVM inherits standard error from the process that starts it, and so do the Python workers that it starts. While a
block starts it, descriptor 2 is a pipe, which a thread reads from then on, for as long as the JVM runs.

The first lines of a JVM say nothing to the user of a command: which log configuration it found, and which of its
modules are not final. They are dropped, unless the start fails. So are its last ones: when a session stops, the JVM
closes the connections to Python workers that wait for a task, and PySpark prints a traceback for each that finds its
connection closed before it is ended itself. Who asks for Spark's log sees all of them.

Source: pyspark.java_gateway, which gives the JVM the standard error of this process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from trio_broker.spark.workarounds.switch import are_workarounds_on

STANDARD_ERROR: Final = 2

MOST_KEPT_LINES: Final = 1000
"""Of a start, to be shown if it fails; more would be another kind of output than the reason."""

END_OF_START: Final = b"\0trio-broker: started"
"""The line that this process writes itself when the block ends: what the JVM wrote before comes before it."""

FAILURE_SECONDS: Final = 5.0
"""How long the end of a failed block waits until its lines are shown."""

_is_stopping: Final = threading.Event()


def drop_last_lines() -> None:
    """Show no more lines, because the session is about to be stopped. Those who see the first lines see these, too."""
    _is_stopping.set()


@contextmanager
def jvm_lines_shown_by(show: Callable[[str], None], *, from_the_start: bool) -> Iterator[None]:
    """Call ``show``, in a thread, with each line that a JVM writes which the block starts, also after the block.

    Lines of the block itself are shown if ``from_the_start`` or if the block fails, and dropped otherwise; those that
    come after ``drop_last_lines`` are shown if ``from_the_start``.
    """
    if not are_workarounds_on():
        yield
        return
    _is_stopping.clear()
    read_end, write_end = os.pipe()
    before = os.dup(STANDARD_ERROR)
    lines = _Lines(read_end, show, shows_all=from_the_start)
    thread = threading.Thread(target=lines.read, name="jvm-output", daemon=True)
    os.dup2(write_end, STANDARD_ERROR)
    thread.start()
    try:
        yield
    except Exception:
        lines.has_failed = True
        raise
    finally:
        os.dup2(before, STANDARD_ERROR)
        os.close(before)
        os.write(write_end, END_OF_START + b"\n")
        os.close(write_end)
        if lines.has_failed:
            lines.ended.wait(FAILURE_SECONDS)


class _Lines:
    """The lines of the pipe. ``ended`` is set when the lines of the block have been shown or dropped."""

    def __init__(self, descriptor: int, show: Callable[[str], None], *, shows_all: bool) -> None:
        self.has_failed = False
        self.ended = threading.Event()
        self._descriptor = descriptor
        self._show = show
        self._shows_all = shows_all
        self._is_started = shows_all
        self._kept: deque[str] = deque(maxlen=MOST_KEPT_LINES)

    def read(self) -> None:
        """Take lines until the JVM has ended."""
        with os.fdopen(self._descriptor, "rb") as pipe:
            for line in pipe:
                if line.endswith(END_OF_START + b"\n"):
                    self._end_start()
                elif not self._is_started:
                    self._kept.append(_text(line))
                elif self._shows_all or not _is_stopping.is_set():
                    self._show(_text(line))

    def _end_start(self) -> None:
        if self.has_failed:
            for text in self._kept:
                self._show(text)
        self._kept.clear()
        self._is_started = True
        self.ended.set()


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")
