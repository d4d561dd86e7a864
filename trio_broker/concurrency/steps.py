"""Work that is done at once, up to where it has to wait.

A coroutine belongs to one task from its first line on, and to give a request to a task costs more than most requests
do. So what lies on the path of the frequent ones is a generator instead: it yields what it waits for, a function whose
awaitable gives the result, and the caller decides in which task that is awaited. A request that never waits needs
none.

What is yielded is awaited in a later turn of the event loop: other tasks run in between. So steps that have looked at
something and wait for it to change either register for the change before they yield, or what they yield looks again.

    def append(…) -> Steps[AppendInfo]:
        batch = yield partial(workers.run, work)      # instead of: await workers.run(work)
        info = yield from other_steps(…)              # instead of: await other(…)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Wait: TypeAlias = Callable[[], Awaitable[Any]]
"""What steps wait for: called and awaited by their runner, in a task of its choice."""

Steps: TypeAlias = Generator[Wait, Any, T]


async def run_steps(steps: Steps[T], wait: Wait | None = None) -> T:
    """Go on with ``steps`` until their result; with ``wait``, which they have yielded, or from their beginning."""
    try:
        if wait is None:
            wait = next(steps)
        while True:
            try:
                result = await wait()
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(result)
    except StopIteration as end:
        finished: T = end.value
        return finished
    finally:
        steps.close()
