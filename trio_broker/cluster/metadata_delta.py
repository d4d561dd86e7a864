"""The changes of one batch of records, as names of topics and config resources, for the subscribers of the controller.

Source: the idea of Kafka's MetadataDelta, which its MetadataPublishers are handed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kafka_wire.stored.metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage


@attrs.frozen
class DeletedTopic:
    """A deleted topic, which is no longer in the image."""

    name: str
    topic_id: bytes


@attrs.frozen(kw_only=True)
class MetadataDelta:
    """The names of what changed; the new values are in the image."""

    changed_topics: tuple[str, ...] = ()
    """Topics that are new, or have new partitions, leaders or epochs."""
    deleted_topics: tuple[DeletedTopic, ...] = ()
    changed_configs: tuple[ConfigResource, ...] = ()
    """Holders whose settings changed; a topic that was deleted is not among them."""


def delta_of(image: MetadataImage, records: Sequence[Any]) -> MetadataDelta:
    """Return what ``records`` will change in ``image``, which must not have folded them yet."""
    created: dict[bytes, str] = {}
    # Dictionaries, because they keep the order in which things changed.
    changed: dict[str, None] = {}
    deleted: dict[str, DeletedTopic] = {}
    configs: dict[ConfigResource, None] = {}
    for record in records:
        match record:
            case TopicRecord():
                created[record.topic_id] = record.name
                changed[record.name] = None
            case PartitionRecord() | PartitionChangeRecord():
                changed[_name(image, created, record.topic_id)] = None
            case RemoveTopicRecord():
                name = _name(image, created, record.topic_id)
                # What the batch itself created, changed or set is gone with the topic: no subscriber could look it up.
                changed.pop(name, None)
                configs.pop(ConfigResource(ConfigResourceType.TOPIC, name), None)
                deleted[name] = DeletedTopic(name, record.topic_id)
            case ConfigRecord():
                configs[ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)] = None
    return MetadataDelta(
        changed_topics=tuple(changed),
        deleted_topics=tuple(deleted.values()),
        changed_configs=tuple(configs),
    )


def _name(image: MetadataImage, created: Mapping[bytes, str], topic_id: bytes) -> str:
    """Return the name of a topic that was there before, or that the batch itself creates."""
    return created[topic_id] if topic_id in created else image.topics_by_id[topic_id].name
