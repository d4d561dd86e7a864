"""Metadata images without a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kafka_wire.stored.metadata import PartitionRecord, RegisterBrokerRecord
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


def partition_record(topic_id: bytes, index: int = 0, replicas: Sequence[int] = (1,), **fields: Any) -> PartitionRecord:
    """A new partition, led by its first replica and with all of them in sync; ``fields`` are other fields of it."""
    given: dict[str, Any] = {
        "isr": list(replicas),
        "removing_replicas": [],
        "adding_replicas": [],
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
    }
    return PartitionRecord(topic_id=topic_id, partition_id=index, replicas=list(replicas), **given | fields)


def broker_record(broker_id: int = 1, **fields: Any) -> RegisterBrokerRecord:
    """A broker that registers and serves; ``fields`` are other fields of the record."""
    given = {"incarnation_id": bytes(16), "broker_epoch": 0, "end_points": [], "features": [], "rack": None}
    return RegisterBrokerRecord(broker_id=broker_id, **{**given, "fenced": False, **fields})


def image_with(image: MetadataImage, topic: str, partition: PartitionImage) -> MetadataImage:
    """``image`` with only this partition, of index 0, in a topic that it has."""
    changed = attrs.evolve(image.topics[topic], partitions={0: partition})
    return attrs.evolve(
        image,
        topics={**image.topics, topic: changed},
        topics_by_id={**image.topics_by_id, changed.topic_id: changed},
    )
