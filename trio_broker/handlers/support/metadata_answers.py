"""Large Metadata answers, kept as bytes for as long as they are true.

Clients ask for the metadata of all topics again and again, and all of them at once after a change. To describe and
write thousands of partitions takes milliseconds; to send the same bytes once more, a copy.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import trio

from trio_broker.cluster.metadata_image import MetadataImage

MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of all answers together: ten for 20,000 partitions, the most of one node, in different versions."""


class MetadataAnswers:
    """The bodies of answers about one image, by what tells one request from another. All are dropped with the image."""

    def __init__(self) -> None:
        self.being_made: dict[Hashable, trio.Event] = {}
        """By the same keys, the answers that a request makes at present: set when it has."""
        self._image: MetadataImage | None = None
        self._bodies: dict[Hashable, bytes] = {}
        self._kept_bytes = 0

    def get(self, image: MetadataImage, key: Hashable) -> bytes | None:
        """The answer that was kept, if it was made from this very image."""
        return self._bodies.get(key) if image is self._image else None

    def keep(self, image: MetadataImage, key: Hashable, body: bytes) -> None:
        """Keep an answer made from ``image``, the present one, if there is room."""
        if image is not self._image:
            self._image = image
            self._bodies.clear()
            self._kept_bytes = 0
        if key not in self._bodies and self._kept_bytes + len(body) <= MAX_KEPT_BYTES:
            self._bodies[key] = body
            self._kept_bytes += len(body)
