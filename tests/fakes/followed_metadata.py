"""Metadata that a broker follows without a controller: what other brokers have decided, and this one reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_wire.stored.metadata import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord
from tests.fakes.images import broker_record
from trio_broker.cluster.broker_metadata_publisher import BrokerMetadataPublisher
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_publisher import MetadataSubscriber
from trio_broker.handlers.support.services import BrokerServices


async def follow(services: BrokerServices, *records: Any, further: Sequence[MetadataSubscriber] = ()) -> None:
    """Let the parts of the broker follow ``records``, which its own log does not have; then ``further`` parts."""
    cache = services.metadata_cache
    delta = MetadataDelta(cache.image)
    for record in records:
        delta.replay(record)
    # At the same offset, where the controller of the broker goes on.
    image = delta.apply(offset=cache.image.offset, epoch=cache.image.epoch)
    cache.set_image(image)
    partitions = BrokerMetadataPublisher(services.replicas, services.config)
    subscribers: list[MetadataSubscriber] = [partitions, services.groups, services.transactions, *further]
    for subscriber in subscribers:
        await subscriber.apply_metadata(delta, image)


def registered(
    broker_id: int, port: int, *, host: str = "", listener: str = "PLAINTEXT", **fields: Any
) -> RegisterBrokerRecord:
    """The record by which a broker registers, with one listener; ``fields`` are other fields of it."""
    endpoint = BrokerEndpoint(name=listener, host=host or f"broker-{broker_id}.test", port=port, security_protocol=0)
    return broker_record(broker_id, end_points=[endpoint], **fields)


def elected(services: BrokerServices, topic: str, leader: int, partition: int = 0) -> PartitionChangeRecord:
    """The record by which ``leader`` leads a partition from the next epoch on."""
    topic_id = services.metadata_cache.image.topics[topic].topic_id
    return PartitionChangeRecord(topic_id=topic_id, partition_id=partition, leader=leader)
