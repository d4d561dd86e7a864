"""The partitions that requests name: those of this broker, and the leaders of the others (KIP-951).

Source: Kafka's ReplicaManager.getPartitionOrError and KafkaApis.getCurrentLeader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_UUID
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from trio_broker.handlers.support.broker_nodes import BrokerNode, broker_node
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition

EndpointT = TypeVar("EndpointT")

NOT_HERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""What is said of a partition that this broker does not have, whether or not another one does."""


def partition_here(services: BrokerServices, topic: str, index: int) -> Partition:
    """A partition that this broker has.

    Raises:
        KafkaError: ``NOT_LEADER_OR_FOLLOWER`` if only others have it; ``UNKNOWN_TOPIC_OR_PARTITION``, or why its log
            could not be opened.
    """
    try:
        return services.replicas.topic(topic).partition(index)
    except KafkaError as error:
        if error.code in NOT_HERE and services.metadata_cache.image.partition(topic, index) is not None:
            text = f"partition {topic}-{index} is not on this broker"
            raise KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
        raise


def find_in_image(image: MetadataImage, topic: str, topic_id: bytes, index: int) -> PartitionImage | None:
    """A partition of the cluster, by the topic's id, or by its name if there is no id."""
    if topic_id == NO_UUID:
        return image.partition(topic, index)
    found = image.topics_by_id.get(topic_id)
    return None if found is None else found.partitions.get(index)


class PartitionAnswer(Protocol):
    """What a response says of one partition."""

    error_code: int
    current_leader: Any


@attrs.define
class CurrentLeaders:
    """The leaders of the partitions that a request has asked the wrong broker for, which a response names with their
    addresses, so that the client needs no Metadata.

    ``refusals`` are those of a partition that another broker may lead. Responses have names since ``since_version``.
    """

    context: Context
    refusals: frozenset[ErrorCode]
    since_version: int
    nodes: dict[int, BrokerNode] = attrs.Factory(dict)
    """The brokers that lead any of them, as far as the client can reach them."""

    def name_in(self, answer: PartitionAnswer, topic: str, topic_id: bytes, index: int) -> None:
        """Say who leads a partition beside its refusal, which becomes ``NOT_LEADER_OR_FOLLOWER`` where the cluster has
        the partition and this broker has not."""
        if answer.error_code not in self.refusals:
            return
        partition = find_in_image(self.context.services.metadata_cache.image, topic, topic_id, index)
        if partition is None:
            return
        if answer.error_code in NOT_HERE:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.context.version >= self.since_version:
            leader = partition.leader
            answer.current_leader = attrs.evolve(
                answer.current_leader, leader_id=leader, leader_epoch=partition.leader_epoch
            )
            if leader != NO_LEADER and leader not in self.nodes and (node := broker_node(self.context, leader)):
                self.nodes[leader] = node

    def endpoints(self, endpoint: Callable[..., EndpointT]) -> list[EndpointT]:
        """The addresses of the leaders that were named, each made by ``endpoint``."""
        return [
            endpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in self.nodes.values()
        ]
