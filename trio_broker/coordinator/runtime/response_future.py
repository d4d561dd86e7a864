"""The response of a request that a machine may answer in a later event.

A machine keeps the future of each request that has to wait, and names it in the result of the event that answers it,
perhaps another client's request. Setting the response wakes the task of the request, which then still waits until the
records that the response depends on are durable.

Source: the futures of Kafka's CoordinatorRuntime, which completes a write when its records are committed.
"""

from __future__ import annotations

from typing import Any

import trio

from kafka_wire.errors import KafkaError
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase

NO_REQUIRED_OFFSET = -1


class ResponseFuture:
    """Holds one response, set exactly once. Compared and hashed by identity."""

    __slots__ = ("_event", "is_done", "required_offset", "response")

    def __init__(self) -> None:
        self.is_done = False
        self.required_offset = NO_REQUIRED_OFFSET
        """The high watermark of the shard's partition from which on the response may be sent."""
        self.response: Any = None
        # Made only when a task has to wait: most responses are set within the request's own event.
        self._event: trio.Event | None = None

    def set_result(self, response: Any, required_offset: int = NO_REQUIRED_OFFSET) -> None:
        """Set the response, which may be sent once the high watermark reaches ``required_offset``."""
        assert not self.is_done, f"answered twice: {self.response}, {response}"
        self.response = response
        self.required_offset = required_offset
        self.is_done = True
        if self._event is not None:
            self._event.set()

    def set_error(self, error: KafkaError) -> None:
        """Let ``wait`` raise ``error``, for a request whose response is lost."""
        self.set_result(error)

    async def wait(self, release_handler: ReleaseHandler) -> Any:
        """Return the response; ``release_handler`` is called first if it is not set yet.

        Raises:
            KafkaError: that of ``set_error``.
        """
        if not self.is_done:
            release_handler(RequestPhase.PURGATORY)
            self._event = trio.Event()
            await self._event.wait()
        if isinstance(self.response, KafkaError):
            raise self.response
        return self.response
