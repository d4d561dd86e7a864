"""The metadata image: the state of the cluster after the records of the metadata log up to an offset.

An image is a value and never changes, so it may be kept across an await. ``MetadataDelta`` makes the next one, which
shares what the records do not change.

Source: Kafka's MetadataImage, PartitionRegistration.merge for the epochs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from kafka_wire.stored.metadata import PartitionChangeRecord

NO_LEADER = -1
"""The leader of a partition that has none."""

LEADER_UNCHANGED = -2
"""The leader in a PartitionChangeRecord that is about something else."""


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

    @classmethod
    def of_broker(cls, node_id: int) -> ConfigResource:
        """The holder of the settings of one broker."""
        return cls(ConfigResourceType.BROKER, str(node_id))


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


@attrs.frozen
class TopicImage:
    """One topic: its partitions by index, and the settings it has of its own."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]
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
    log_dirs: tuple[bytes, ...] = ()
    """The ids of its data directories."""


@attrs.frozen(kw_only=True, eq=False)
class MetadataImage:
    """The state of the cluster after the record at ``offset``, which was written in ``epoch`` of the metadata log.

    Its containers are ordinary dictionaries, typed as what nobody may change.
    """

    offset: int = -1
    epoch: int = 0
    topics: Mapping[str, TopicImage] = attrs.field(factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = attrs.field(factory=dict)
    brokers: Mapping[int, BrokerImage] = attrs.field(factory=dict)
    features: Mapping[str, int] = attrs.field(factory=dict)
    """Finalized levels. Level 0 is kept, unlike in Kafka: it tells a feature that was switched off, which has to stay
    so, from one that a newer broker finds without a level."""
    configs_by_resource: Mapping[ConfigResource, Mapping[str, str]] = attrs.field(factory=dict)
    """Only resources that have settings of their own."""
    next_producer_id: int = 0
    """The first id that no broker was given yet."""
    partition_count: int = 0
    """Partitions of all topics."""

    def configs(self, resource: ConfigResource) -> Mapping[str, str]:
        """Return what is set for ``resource`` itself."""
        return self.configs_by_resource.get(resource, {})
