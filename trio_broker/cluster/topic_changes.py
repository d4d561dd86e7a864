"""What all changes of a topic's partitions go by: the live brokers, and the settings of the topic.

Source: Kafka's ReplicationControlManager (LeaderAcceptor, getTopicEffectiveMinIsr).
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from trio_broker.cluster.metadata_image import MetadataImage, TopicImage
from trio_broker.cluster.partition_change_builder import Election, IsAcceptableLeader, PartitionChangeBuilder
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.resource_config import topic_config

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
"""The setting that says how many in sync a write needs, and with it who is eligible to lead."""


@attrs.frozen
class TopicChanges:
    """Makes changes of the partitions of ``topic``."""

    topic: TopicImage
    is_acceptable_leader: IsAcceptableLeader
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    eligible_leader_replicas_enabled: bool

    @property
    def online_election(self) -> Election:
        """The election that keeps a partition served: any live replica may be elected where the topic allows it."""
        return Election.UNCLEAN if self.unclean_leader_election_enable else Election.ONLINE

    def change(self, index: int, **targets: Any) -> PartitionChangeRecord | None:
        """Return the change of one partition to ``targets``, the fields of ``PartitionChangeBuilder``."""
        return PartitionChangeBuilder(
            partition=self.topic.partitions[index],
            topic_id=self.topic.topic_id,
            index=index,
            is_acceptable_leader=self.is_acceptable_leader,
            min_insync_replicas=self.min_insync_replicas,
            eligible_leader_replicas_enabled=self.eligible_leader_replicas_enabled,
            **({"election": self.online_election} | targets),
        ).build()


@attrs.frozen
class ClusterChanges:
    """The ``TopicChanges`` of each topic, made once: to resolve a topic's settings takes longer than a change does.

    With ``is_acceptable_leader`` other brokers may lead than those that ``image`` says can.
    """

    image: MetadataImage
    config: BrokerConfig
    is_acceptable_leader: IsAcceptableLeader | None = None
    _made: dict[bytes, TopicChanges] = attrs.field(factory=dict, init=False)

    def of(self, topic: TopicImage) -> TopicChanges:
        """What the changes of ``topic`` go by."""
        if (changes := self._made.get(topic.topic_id)) is None:
            # Most topics have no settings of their own.
            settings = topic_config(topic.configs, self.config, topic.name) if topic.configs else self.config.log
            changes = self._made[topic.topic_id] = TopicChanges(
                topic,
                self.is_acceptable_leader or self.image.can_lead,
                settings.min_insync_replicas,
                settings.unclean_leader_election_enable,
                self.image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0,
            )
        return changes
