"""Replicas: electing preferred leaders, moving partitions, and taking a broker out of the cluster.

Source: Kafka's ElectLeaders, AlterPartitionReassignments and UnregisterBroker APIs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafka_wire.messages.unregister_broker import UnregisterBrokerRequest
from trio_broker.client.errors import Refused, check
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.topic_partition import TopicPartition, by_topic

PREFERRED: Final = 0
"""The type of an election of the preferred leader."""


def elect_preferred(client: KafkaClient, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Refused | None]:
    """Have the preferred leader of each partition elected; return what was refused, None where nothing was."""
    named = [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()]

    def ask() -> dict[TopicPartition, Refused | None]:
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=named, timeout_ms=client.deadline.remaining_ms
        )
        response = client.ask(client.controller(), request)
        check("ElectLeaders", response.error_code)
        return {
            (place := TopicPartition(topic.topic, each.partition_id)): outcome(
                place, each.error_code, each.error_message
            )
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    return client.attempt(ask)


def reassign(
    client: KafkaClient, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Refused | None]:
    """Move each partition to the brokers named, the preferred leader first, or with None end the move under way."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for place, replicas in targets.items():
        wanted = ReassignablePartition(
            partition_index=place.partition, replicas=None if replicas is None else list(replicas)
        )
        topics.setdefault(place.topic, []).append(wanted)
    named = [ReassignableTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()]

    def ask() -> dict[TopicPartition, Refused | None]:
        request = AlterPartitionReassignmentsRequest(topics=named, timeout_ms=client.deadline.remaining_ms)
        response = client.ask(client.controller(), request)
        check("AlterPartitionReassignments", response.error_code, response.error_message)
        return {
            (place := TopicPartition(topic.name, each.partition_index)): outcome(
                place, each.error_code, each.error_message
            )
            for topic in response.responses
            for each in topic.partitions
        }

    return client.attempt(ask)


def unregister_broker(client: KafkaClient, broker_id: int) -> None:
    """Take a broker that is gone for good out of the cluster."""

    def ask() -> None:
        response = client.ask(client.controller(), UnregisterBrokerRequest(broker_id=broker_id))
        check(f"broker {broker_id}", response.error_code, response.error_message)

    # After a lost answer a second attempt would report that there is no such broker.
    client.attempt(ask, repeatable=False)


def outcome(place: TopicPartition, code: int, message: str | None) -> Refused | None:
    """The refusal of one partition; one that is as it is wanted is none."""
    if code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
        return None
    return Refused(str(place), code, message)
