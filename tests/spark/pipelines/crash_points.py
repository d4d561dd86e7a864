"""A process that dies at a chosen moment, without dying: from that moment on nothing it does to a disk happens.

Moments are the calls that change what a later process finds: renames, syncs, new directories, removals, and the commits
of Delta and Iceberg. A crash comes before the call; right behind it is the same as before the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pyarrow.parquet as pq
import trio


class Killed(BaseException):
    """What no error handling takes for an error."""


def is_of_a_broker() -> bool:
    """Whether this is a thread of an event loop or of its workers: of a broker in this process, which goes on."""
    if trio.lowlevel.in_trio_run():
        return True
    try:
        trio.from_thread.check_cancelled()
    except RuntimeError:
        return False
    except trio.Cancelled:
        pass
    return True


@attrs.define
class Crash:
    """``at`` counts the moments that are still survived; None survives all. ``names`` are those that came."""

    at: int | None
    names: list[str] = attrs.field(factory=list)

    @property
    def moments(self) -> int:
        """How many moments came."""
        return len(self.names)

    def around(self, *names: str) -> list[int]:
        """The moments before, right behind, and next to calls of these functions."""
        found = {number + near for number, name in enumerate(self.names) if name in names for near in (0, 1, 2)}
        return sorted(found)

    def tick(self, name: str) -> None:
        """Come to a moment."""
        if self.at is not None and self.moments >= self.at:
            raise Killed
        self.names.append(name)

    def before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with a moment before it."""

        def wrapped(*arguments: Any, **settings: Any) -> Any:
            if not is_of_a_broker():
                self.tick(name)
            return function(*arguments, **settings)

        return wrapped


@contextmanager
def crashing(at: int | None, *further: tuple[Any, str]) -> Iterator[Crash]:
    """Die at a moment: ``further`` are more functions to die before, as objects and names of their attributes."""
    crash = Crash(at)
    functions = [
        (os, "rename"),
        (os, "replace"),
        (os, "fsync"),
        (os, "mkdir"),
        (os, "unlink"),
        (Path, "touch"),
        *further,
    ]
    patches = [patch.object(owner, name, crash.before(name, getattr(owner, name))) for owner, name in functions]
    # A process that is killed drops nothing; a file that is dropped here would be closed, and die once more.
    patches.append(patch.object(pq.ParquetWriter, "__del__", lambda writer: None))
    for each in patches:
        each.start()
    try:
        yield crash
    except Killed:
        pass
    finally:
        for each in patches:
            each.stop()
