"""Where a task waits: which call of Trio, and which line of ours made it.

A coroutine that waits knows the coroutine that it waits for, down to Trio's own. The innermost frame that does not
belong to Trio is the place; the function of Trio that it called is what the task waits for.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import attrs
import trio

MAX_FRAMES = 200
"""Deeper than any chain of awaits in the broker; the walk ends there whatever the coroutines say."""


@attrs.frozen
class TaskPlace:
    """``waits_for`` is empty for a task that does not wait, ``waits_in`` where the place is not known."""

    waits_for: str
    waits_in: str


def place_of(task: trio.lowlevel.Task) -> TaskPlace:
    """Where ``task`` stands now."""
    place, called = "", ""
    for frame in frames_of(task.coro):
        if is_of_trio(frame):
            called = called or frame.f_code.co_qualname
        else:
            place, called = describe(frame), ""
    return TaskPlace(called, place)


def frames_of(coroutine: Any) -> list[FrameType]:
    """The frames of a coroutine and of what it awaits, outermost first; none of generators that hide theirs."""
    frames: list[FrameType] = []
    for _ in range(MAX_FRAMES):
        if coroutine is None:
            break
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return frames


def is_of_trio(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name == "trio" or name.startswith("trio.")


def describe(frame: FrameType) -> str:
    """A frame as ``module:line function``."""
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno} {frame.f_code.co_qualname}"
