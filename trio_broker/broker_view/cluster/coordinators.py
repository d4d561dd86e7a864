"""Which broker coordinates a key. A pure function."""

from __future__ import annotations

from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage
from trio_broker.coordinator.runtime.coordinator_runtime import partition_for


def coordinator_of(image: MetadataImage, internal_topic: str, key: str) -> int | None:
    """The leader of that partition of ``internal_topic`` which has ``key``, None where there is none."""
    topic = image.topics.get(internal_topic)
    if topic is None:
        return None
    state = topic.partitions.get(partition_for(key, len(topic.partitions)))
    return None if state is None or state.leader == NO_LEADER else state.leader
