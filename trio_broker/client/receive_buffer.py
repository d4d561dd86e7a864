"""The buffer that answers are received into.

The announced size of an answer is not trusted: memory is allocated as the bytes arrive, doubled each time it is full. A
caller that reads large answers one after the other keeps one buffer for all of them, so that it grows once and its
pages stay mapped; each answer then overwrites the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FIRST_BYTES: Final = 256 * 1024
"""How much is taken for the first bytes of an answer that says it is larger."""

STEP_BYTES: Final = 1024 * 1024
"""Large answers of nearly the same size are to fit into memory that one of them grew: it ends at a multiple of this."""


class ReceiveBuffer:
    """A piece of memory that grows with what comes, and is used again for the next answer."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def fill(self, count: int, receive_into: Callable[[memoryview], int]) -> memoryview:
        """Return a view of ``count`` bytes, which ``receive_into`` put there piece by piece.

        ``receive_into`` takes the rest of the memory and returns how many bytes it wrote at its start. The view is
        valid until the next call, which overwrites its bytes.

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
        # A new buffer rather than ``extend``: that raises BufferError while any view of the old one exists.
        larger = bytearray(min(wanted, max(FIRST_BYTES, 2 * len(self._memory))))
        larger[: len(self._memory)] = self._memory
        self._memory = larger
