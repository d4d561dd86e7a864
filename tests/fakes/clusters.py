"""Images of clusters of several brokers, without a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kafka_wire.stored.metadata import FeatureLevelRecord, TopicRecord
from tests.fakes.images import broker_record, image_after, image_of, partition_record
from trio_broker.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage

TOPIC_ID = bytes(15) + b"\x41"


def cluster_image(
    brokers: Iterable[int], partitions: Sequence[Mapping[str, Any]] = (), *, elr: bool = True, **fields: Any
) -> MetadataImage:
    """A cluster of these brokers, each in the epoch ten times its id, with a topic ``t`` of these partitions, given by
    the fields of their records. ``fields`` are of all brokers' records."""
    records: list[Any] = [broker_record(each, **{"broker_epoch": 10 * each, **fields}) for each in brokers]
    if elr:
        records.append(FeatureLevelRecord(name=ELIGIBLE_LEADER_REPLICAS_VERSION, feature_level=1))
    if partitions:
        records.append(TopicRecord(name="t", topic_id=TOPIC_ID))
    records += [partition_record(TOPIC_ID, index, **partition) for index, partition in enumerate(partitions)]
    return image_of(*records)


def partition_of(image: MetadataImage, index: int = 0) -> PartitionImage:
    """A partition of the topic ``t``."""
    return image.topics["t"].partitions[index]


def summary(image: MetadataImage, index: int = 0) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Who leads a partition of ``t``, who is in sync, and who is eligible."""
    partition = partition_of(image, index)
    return partition.leader, partition.isr, partition.eligible_leader_replicas


def caught_up(image: MetadataImage) -> MetadataImage:
    """The image once all replicas are in sync, reassignments complete, and the preferred replicas lead."""
    topics = {
        name: attrs.evolve(
            topic,
            partitions={
                index: attrs.evolve(
                    each,
                    replicas=each.target_replicas,
                    isr=each.target_replicas,
                    adding_replicas=(),
                    removing_replicas=(),
                    leader=each.target_replicas[0],
                )
                for index, each in topic.partitions.items()
            },
        )
        for name, topic in image.topics.items()
    }
    return attrs.evolve(image, topics=topics, topics_by_id={each.topic_id: each for each in topics.values()})


def after(image: MetadataImage, *decisions: Any) -> MetadataImage:
    """The image that the records of ``decisions`` lead to."""
    return image_after(image, *(record for decision in decisions for record in decision.records))
