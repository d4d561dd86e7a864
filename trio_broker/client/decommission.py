"""Having a broker leave its cluster, and what it has left. The setting is trio-broker's own; a Kafka refuses it.

Source: docs/decisions/0094-a-decommission-is-a-setting.md.
"""

from __future__ import annotations

import attrs

from kafka_wire.config_resources import ConfigOperation, ConfigResourceType
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from trio_broker.client.cluster import registered_brokers
from trio_broker.client.errors import check, only
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topics import list_topics
from trio_broker.common.setting_names import DECOMMISSION


@attrs.frozen
class HeldTopic:
    """What a broker has of a topic: its partitions, how many of them it leads, and how many are on their way from
    it."""

    name: str
    partitions: int
    leaders: int
    moving: int


def decommission(client: KafkaClient, broker_id: int, *, cancel: bool, validate_only: bool) -> None:
    """Begin the decommission of a broker, or cancel it; with ``validate_only``, only check that it may.

    Raises:
        Refused: the broker is not registered, or too few would be left.
    """
    config = AlterableConfig(
        name=DECOMMISSION,
        config_operation=ConfigOperation.DELETE if cancel else ConfigOperation.SET,
        value=None if cancel else "true",
    )
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configs=[config]
    )

    def ask() -> None:
        # Any broker: the one that leaves may be dead.
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        result = only(client.ask(client.controller(), request).responses, f"broker {broker_id}")
        check(f"broker {broker_id}", result.error_code, result.error_message)

    client.attempt(ask)


def is_registered(client: KafkaClient, broker_id: int) -> bool:
    """Whether a broker is part of the cluster, dead or alive."""
    described = client.attempt(lambda: registered_brokers(client))
    return any(each.broker_id == broker_id for each in described.brokers)


def held_topics(client: KafkaClient, broker_id: int) -> list[HeldTopic]:
    """Return the topics of which a broker has partitions, by name."""
    moving = client.attempt(lambda: _moving(client, broker_id))
    held = []
    for topic in list_topics(client):
        partitions = [each for each in topic.partitions if broker_id in each.replicas]
        if partitions:
            leaders = sum(each.leader_id == broker_id for each in partitions)
            held.append(HeldTopic(topic.name, len(partitions), leaders, moving.get(topic.name, 0)))
    return held


def _moving(client: KafkaClient, broker_id: int) -> dict[str, int]:
    """How many partitions of each topic are on their way from a broker."""
    response = client.ask(client.controller(), ListPartitionReassignmentsRequest())
    check("ListPartitionReassignments", response.error_code, response.error_message)
    return {
        topic.name: sum(broker_id in each.removing_replicas for each in topic.partitions) for topic in response.topics
    }
