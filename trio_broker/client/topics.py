"""Topics: listing, describing and changing them.

Source: Kafka's Metadata, CreateTopics, CreatePartitions and DeleteTopics APIs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from kafka_wire.primitives import NO_UUID
from trio_broker.client.errors import Refused, all_found, check, only
from trio_broker.client.kafka_client import KafkaClient

ASKS_WITHOUT_CREATING_FROM = 4
"""The version of Metadata from which on a request can forbid the creation of a missing topic."""

TOPIC_STATES_FROM = 6
"""The version of DeleteTopics from which on topics are structures of a name or an id (KIP-516)."""

BROKER_DEFAULT = -1
"""As a number of partitions or a replication factor: the broker's configured default (KIP-464)."""


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
            described[name] = Refused(f"topic {name!r}", 3)
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


def create_topic(
    client: KafkaClient,
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    validate_only: bool,
) -> None:
    """Create a topic; with ``validate_only``, only check it. Both counts may be ``BROKER_DEFAULT``."""
    topic = _creatable(name, partitions, replication_factor, configs)
    # After a lost answer a second attempt would report a topic that it created itself as TOPIC_ALREADY_EXISTS.
    client.attempt(lambda: _create(client, topic, validate_only=validate_only), repeatable=validate_only)


def ensure_topic(
    client: KafkaClient,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str],
) -> None:
    """Create a topic unless it exists, also after an answer that was lost."""
    topic = _creatable(name, partitions, replication_factor, configs)
    try:
        client.attempt(lambda: _create(client, topic, validate_only=False))
    except Refused as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _creatable(name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def _create(client: KafkaClient, topic: CreatableTopic, *, validate_only: bool) -> None:
    request = CreateTopicsRequest(topics=[topic], timeout_ms=client.deadline.remaining_ms, validate_only=validate_only)
    subject = f"topic {topic.name!r}"
    result = only(client.ask(client.controller(), request).topics, subject)
    check(subject, result.error_code, result.error_message)


def add_partitions(client: KafkaClient, name: str, *, count: int, validate_only: bool) -> None:
    """Increase the number of a topic's partitions to ``count``; with ``validate_only``, only check it."""

    def ask() -> None:
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=client.deadline.remaining_ms,
            validate_only=validate_only,
        )
        result = only(client.ask(client.controller(), request).results, f"topic {name!r}")
        check(f"topic {name!r}", result.error_code, result.error_message)

    # After a lost answer a second attempt would find ``count`` partitions already, and report INVALID_PARTITIONS.
    client.attempt(ask, repeatable=validate_only)


def delete_topic(client: KafkaClient, name: str) -> None:
    """Delete a topic with all of its records."""

    def ask() -> None:
        controller = client.controller()
        version = controller.version_for(DeleteTopicsRequest)
        names: dict[str, Sequence[object]] = {"topic_names": [name]}
        if version >= TOPIC_STATES_FROM:
            names = {"topics": [DeleteTopicState(name=name, topic_id=NO_UUID)]}
        request = DeleteTopicsRequest(timeout_ms=client.deadline.remaining_ms, **names)  # type: ignore[arg-type]
        result = only(controller.ask(request, client.deadline, version).responses, f"topic {name!r}")
        check(f"topic {name!r}", result.error_code, result.error_message)

    # After a lost answer a second attempt would report a topic that it deleted itself as UNKNOWN_TOPIC_OR_PARTITION.
    client.attempt(ask, repeatable=False)


def _metadata(client: KafkaClient, names: Sequence[str] | None) -> list[MetadataResponseTopic]:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response = client.ask(client.any_broker(), request, at_least=ASKS_WITHOUT_CREATING_FROM)
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
