"""An end of work beside it: a task that waits for an event."""

from __future__ import annotations

import trio


async def cancel_once(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel ``scope`` when ``event`` has come."""
    await event.wait()
    scope.cancel()
