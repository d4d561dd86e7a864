"""The metadata image: the state of the cluster after all records of the metadata log.

Only ``apply`` changes an image. It applies every record without validation, which came before the record was written.
An image may be read at any time on the event loop. Its values are frozen, its containers are not, so callers should
keep only names and ids across an await.

Source: Kafka's MetadataImage and MetadataDelta, PartitionRegistration.merge for the epochs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import attrs

from kafka_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NO_LEADER = -1
"""The leader of a partition that has none."""

LEADER_UNCHANGED = -2
"""The leader in a PartitionChangeRecord that is about something else."""


class ContradictoryMetadata(Exception):
    """Records of the metadata log that cannot all be true: no image shows the cluster."""


class ConfigResourceType(enum.IntEnum):
    """What a setting may belong to, numbered as on the wire and in ConfigRecord."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@attrs.frozen
class ConfigResource:
    """One holder of settings. The broker with the empty name stands for every broker."""

    type: ConfigResourceType
    name: str


CLUSTER_DEFAULT = ConfigResource(ConfigResourceType.BROKER, "")
"""The holder of the dynamic defaults of the cluster."""


@attrs.frozen
class PartitionImage:
    """Who has a partition and who leads it. Replicas stand in order of preference."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def changed_by(self, record: PartitionChangeRecord) -> PartitionImage:
        """Return the partition after ``record``; naming a leader raises the leader epoch even if it is the same one."""
        elected = record.leader != LEADER_UNCHANGED
        return PartitionImage(
            leader=record.leader if elected else self.leader,
            # One more for an election. The records leave both epochs out (PartitionRegistration.merge).
            leader_epoch=self.leader_epoch + elected,
            partition_epoch=self.partition_epoch + 1,
            replicas=self.replicas if record.replicas is None else tuple(record.replicas),
            isr=self.isr if record.isr is None else tuple(record.isr),
        )


@attrs.define
class TopicImage:
    """One topic: its partitions by index, and the settings it has of its own."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage]
    configs: Mapping[str, str]


@attrs.frozen
class EndpointImage:
    """An address at which a broker can be reached; ``security_protocol`` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int


@attrs.frozen
class BrokerImage:
    """A broker as it registered. ``broker_epoch`` is the offset of that record and fences its earlier lives."""

    broker_id: int
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[EndpointImage, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool


class MetadataImage:
    """The state of the cluster after the records so far."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.features: dict[str, int] = {}
        """Finalized levels. Level 0 is kept, unlike in Kafka: it tells a feature that was switched off, which has to
        stay so, from one that a newer broker finds without a level."""
        self.next_producer_id = 0
        """The first id that no broker was given yet."""
        self.partition_count = 0
        """Partitions of all topics."""
        self._configs: dict[ConfigResource, dict[str, str]] = {}

    def configs(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return what is set for ``resource`` itself."""
        return self._configs.get(resource, {})

    @property
    def configured_resources(self) -> list[ConfigResource]:
        """Everything that has settings of its own."""
        return [resource for resource, configs in self._configs.items() if configs]

    def apply(self, record: Any) -> None:
        """Fold one record into the image.

        Raises:
            NotImplementedError: the record is of a kind this broker never writes, so the image would not be the
                cluster's.
            ContradictoryMetadata: a partition is created a second time.
        """
        match record:
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                partitions = self.topics_by_id[record.topic_id].partitions
                partitions[record.partition_id] = partitions[record.partition_id].changed_by(record)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case RegisterBrokerRecord():
                self._register_broker(record)
            case BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.feature_level
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case NoOpRecord():
                pass
            case _:
                raise NotImplementedError(f"a {type(record).__name__} in the metadata log")

    def _add_topic(self, record: TopicRecord) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, record.name)
        # The topic shares the dictionary of its settings, so that a ConfigRecord after it shows in both places.
        topic = TopicImage(record.name, record.topic_id, {}, self._configs.setdefault(resource, {}))
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic

    def _add_partition(self, record: PartitionRecord) -> None:
        partitions = self.topics_by_id[record.topic_id].partitions
        # The record comes from the disk at a start, so this holds without assertions (``python -O``), too.
        if record.partition_id in partitions:
            raise ContradictoryMetadata(f"partition {record.partition_id} of a topic was created before: {record}")
        partitions[record.partition_id] = PartitionImage(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
        )
        self.partition_count += 1

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        self._configs.pop(ConfigResource(ConfigResourceType.TOPIC, topic.name), None)
        self.partition_count -= len(topic.partitions)

    def _set_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        configs = self._configs.setdefault(resource, {})
        if record.value is None:
            # An emptied dictionary stays where it is: the topic may share it.
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                EndpointImage(item.name, item.host, item.port, item.security_protocol) for item in record.end_points
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
        )

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        self.brokers[record.broker_id] = attrs.evolve(
            broker,
            fenced=broker.fenced if record.fenced == 0 else record.fenced > 0,
            # Kafka has no value for "no longer": only the next registration ends a controlled shutdown (KIP-841).
            in_controlled_shutdown=broker.in_controlled_shutdown or record.in_controlled_shutdown > 0,
        )
