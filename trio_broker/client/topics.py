"""Topics: listing and describing them. ``topic_changes`` changes them.

Source: Kafka's Metadata API.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import (
    AUTO_CREATION_SINCE_VERSION,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from trio_broker.client.errors import Refused, all_found, check
from trio_broker.client.kafka_client import KafkaClient


@attrs.frozen
class PartitionDescription:
    """One partition; ``leader_id`` is -1 without a leader, ``leader_epoch`` -1 if the broker is too old for it."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@attrs.frozen
class TopicDescription:
    """One topic; ``topic_id`` is all zeros if the broker is too old for topic ids."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the partition that has the most; a reassignment may make them differ."""
        return max((len(partition.replicas) for partition in self.partitions), default=0)


def list_topics(client: KafkaClient) -> list[TopicDescription]:
    """Return every topic of the cluster by name."""
    return _sorted(client.attempt(lambda: _metadata(client, None)))


def find_topics(client: KafkaClient, names: Iterable[str]) -> dict[str, TopicDescription | Refused]:
    """Return each of the named topics, or the error that describing it gave; a missing topic is not created."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    found = {topic.name or "": topic for topic in client.attempt(lambda: _metadata(client, wanted))}
    described: dict[str, TopicDescription | Refused] = {}
    for name in wanted:
        topic = found.get(name)
        if topic is None:
            described[name] = Refused(f"topic {name!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif topic.error_code:
            described[name] = Refused(f"topic {name!r}", topic.error_code)
        else:
            described[name] = _description(topic)
    return described


def describe_topics(client: KafkaClient, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Return the named topics.

    Raises:
        Refused: one of them cannot be described.
    """
    return all_found(find_topics(client, names))


def _metadata(client: KafkaClient, names: Sequence[str] | None) -> list[MetadataResponseTopic]:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.ask(client.any_broker(), request, at_least=AUTO_CREATION_SINCE_VERSION)
    check("Metadata", response.error_code)
    client.learn_brokers(response)
    return response.topics


def _sorted(topics: Iterable[MetadataResponseTopic]) -> list[TopicDescription]:
    return sorted(map(_description, topics), key=lambda topic: topic.name)


def _description(topic: MetadataResponseTopic) -> TopicDescription:
    partitions = (
        PartitionDescription(
            index=each.partition_index,
            leader_id=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            in_sync_replicas=tuple(each.isr_nodes),
            offline_replicas=tuple(each.offline_replicas),
        )
        for each in topic.partitions
    )
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda partition: partition.index)),
    )
