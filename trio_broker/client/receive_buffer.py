"""The buffer into which answers are received.

The announced size of an answer is not trusted: memory is allocated as the bytes arrive, and doubled each time it is
full. A caller that reads many large answers uses one buffer for all of them. The buffer then grows once and its pages
stay mapped, and each answer overwrites the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_BYTES: Final = 256 * 1024
"""The first allocation for an answer that announces more: most answers fit, and a false announcement costs little."""

STEP_BYTES: Final = 1024 * 1024
"""Large buffers are rounded up to a multiple of this, so that the next answer of about the same size fits as well."""


class ReceiveBuffer:
    """Memory that grows with the received bytes and is used again for the next answer."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def fill(self, count: int, receive_into: Callable[[memoryview], int]) -> memoryview:
        """Call ``receive_into`` until ``count`` bytes have arrived, and return a view of them.

        ``receive_into`` gets the part of the memory that is still to be filled, and returns how many bytes it has
        written at the start of that part. The returned view is valid until the next call, which overwrites its bytes.

        Raises:
            Exception: as ``receive_into``.
        """
        received = 0
        while received < count:
            if received == len(self._memory):
                self._grow(count)
            received += receive_into(memoryview(self._memory)[received:count])
        return memoryview(self._memory)[:count]

    def _grow(self, count: int) -> None:
        wanted = count if count <= FIRST_BYTES else -(-count // STEP_BYTES) * STEP_BYTES
        # A new bytearray: ``extend`` raises BufferError while a view of the old one exists, and callers keep views.
        larger = bytearray(min(wanted, max(FIRST_BYTES, 2 * len(self._memory))))
        larger[: len(self._memory)] = self._memory
        self._memory = larger
