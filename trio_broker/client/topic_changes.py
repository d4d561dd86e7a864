"""Changes of topics: creating and deleting them, and adding partitions.

Source: Kafka's CreateTopics, CreatePartitions and DeleteTopics APIs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import BROKER_DEFAULT, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.primitives import NO_UUID
from trio_broker.client.errors import Refused, check, only
from trio_broker.client.kafka_client import KafkaClient

TOPIC_STATES_FROM = 6
"""The version of DeleteTopics from which on topics are structures of a name or an id (KIP-516)."""


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
