"""Large Metadata answers, kept as bytes for as long as they are true.

Clients ask for the metadata of all topics again and again, and all of them at once after a change. To describe and
write thousands of partitions takes milliseconds; to send the same bytes once more, a copy.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import trio

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of all answers together: ten for 20,000 partitions, the most of one node, in different versions."""


class MetadataAnswers:
    """The bodies of answers, by what tells one request from another, and with the part of the image that they describe:
    all topics, or one. An answer holds for as long as the present image has that very part."""

    def __init__(self) -> None:
        self.being_made: dict[Hashable, trio.Event] = {}
        """By the same keys, the answers that a request makes at present: set when it has."""
        self._kept: dict[Hashable, tuple[object, bytes]] = {}
        self._kept_bytes = 0

    def get(self, part: object, key: Hashable) -> bytes | None:
        """The answer that was kept, if it was made from this very part of an image."""
        kept = self._kept.get(key)
        return kept[1] if kept is not None and kept[0] is part else None

    def keep(self, part: object, key: Hashable, body: bytes) -> None:
        """Keep an answer made from ``part`` of the present image, in the place of those that were made first."""
        if len(body) > MAX_KEPT_BYTES:
            return
        self._drop(key)
        while self._kept_bytes + len(body) > MAX_KEPT_BYTES:
            self._drop(next(iter(self._kept)))
        self._kept[key] = part, body
        self._kept_bytes += len(body)

    def _drop(self, key: Hashable) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._kept_bytes -= len(kept[1])
