"""The metadata cache: the image that this broker answers from.

Only the ``MetadataPublisher`` replaces the image; every other part reads it.

Source: Kafka's MetadataCache, as KRaftMetadataCache has it.
"""

from __future__ import annotations

import attrs
import trio

from trio_broker.cluster.metadata_image import MetadataImage


@attrs.define(eq=False)
class MetadataCache:
    """The newest image."""

    image: MetadataImage
    _replaced: trio.Event = attrs.field(factory=trio.Event, init=False)

    def set_image(self, image: MetadataImage) -> None:
        """Take the next image."""
        self.image = image
        self._replaced.set()
        self._replaced = trio.Event()

    async def wait_for(self, offset: int) -> None:
        """Wait until the image contains the record at ``offset``."""
        while self.image.offset < offset:
            await self._replaced.wait()

    async def wait_after(self, image: MetadataImage) -> None:
        """Wait until there is another image than ``image``."""
        while self.image is image:
            await self._replaced.wait()
