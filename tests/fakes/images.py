"""Metadata images without a log."""

from __future__ import annotations

from typing import Any

import attrs

from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage


def image_after(image: MetadataImage, *records: Any) -> MetadataImage:
    """The image that ``records`` lead to from ``image``."""
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(offset=image.offset + len(records), epoch=image.epoch)


def image_of(*records: Any) -> MetadataImage:
    """The image of a log that has only ``records``."""
    return image_after(MetadataImage(), *records)


def image_with(image: MetadataImage, topic: str, partition: PartitionImage) -> MetadataImage:
    """``image`` with only this partition, of index 0, in a topic that it has."""
    changed = attrs.evolve(image.topics[topic], partitions={0: partition})
    return attrs.evolve(
        image,
        topics={**image.topics, topic: changed},
        topics_by_id={**image.topics_by_id, changed.topic_id: changed},
    )
