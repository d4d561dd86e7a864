"""A part of a broker that follows the metadata and does nothing else."""

from __future__ import annotations

import attrs

from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage


@attrs.define(eq=False)
class RecordingSubscriber:
    """Keeps what it is notified of."""

    deltas: list[MetadataDelta] = attrs.field(factory=list)
    images: list[MetadataImage] = attrs.field(factory=list)

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.deltas.append(delta)
        self.images.append(image)
