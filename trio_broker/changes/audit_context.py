"""Which client the running task works for, so that a change is recorded with its origin wherever it is made.

A request passes through many functions before it changes something. The dispatcher of Kafka's requests and the admin
server set the caller once per request; nothing between them and the change has to pass it on. A task without a caller
works for the broker itself.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from trio_broker.changes.change import ChangeChannel, ChangeOrigin


class Caller(Protocol):
    """A request that may change something."""

    @property
    def change_origin(self) -> ChangeOrigin:
        """What is recorded of it with a change; computed only then, since few requests change anything."""
        ...


THE_BROKER: Caller = ChangeOrigin(ChangeChannel.BROKER)

CALLER: ContextVar[Caller] = ContextVar("caller", default=THE_BROKER)
