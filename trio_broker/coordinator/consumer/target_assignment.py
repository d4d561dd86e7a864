"""The target assignment of a consumer group: what an assignor makes of its members and the topics that exist.

The target is computed for an epoch of the group, by the assignor that most members ask for. Only members whose target
changes get a new record.

The hash of the subscribed topics shows whether a target is for the topics as they are: it differs when one of them was
created, deleted, grown, or moved to other racks (KIP-1101). Kafka's own hash is another one. A broker that reads a hash
of the other kind computes the target once more, which moves no partition.

Source: Kafka's TargetAssignmentBuilder, and Utils.computeGroupHash for what goes into the hash.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Mapping, Sequence, Set

from kafka_wire.stored.groups import GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.consumer.assignors import ASSIGNORS, GroupSpec, MemberSubscriptionSpec
from trio_broker.coordinator.consumer.member import ConsumerMember, Target
from trio_broker.coordinator.consumer.records import target_record
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup

NO_TOPICS_HASH = 0
"""The hash of no topics, which is also that of records from Kafka before 4.1."""

MAX_KNOWN_SUBSCRIPTIONS = 8
"""Whose ids are kept: most groups have one. One of 20,000 topics takes two megabytes, and its names."""


def metadata_hash(topic_names: Set[str], image: MetadataImage) -> int:
    """A number that changes with the existence, the partitions and the racks of ``topic_names``."""
    digest = hashlib.blake2b(digest_size=8)
    racks = {broker_id: broker.rack for broker_id, broker in image.brokers.items() if broker.rack is not None}
    known = sorted(image.topics.keys() & topic_names)
    for name in known:
        topic = image.topics[name]
        digest.update(topic.topic_id)
        digest.update(struct.pack(">i", len(topic.partitions)))
        # Without racks, as mostly, a thousand partitions cost no more than one.
        for index, partition in sorted(topic.partitions.items()) if racks else ():
            digest.update(repr((index, sorted(racks.get(replica, "") for replica in partition.replicas))).encode())
    return int.from_bytes(digest.digest(), "big", signed=True) if known else NO_TOPICS_HASH


class TopicIds:
    """The ids of those topics that exist in ``image``, looked up once for each subscription."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._known: dict[frozenset[str], frozenset[bytes]] = {}

    def of(self, topic_names: frozenset[str]) -> frozenset[bytes]:
        """The ids of those of ``topic_names`` that exist."""
        topic_ids = self._known.get(topic_names)
        if topic_ids is None:
            topics = self.image.topics
            topic_ids = frozenset([topics[name].topic_id for name in topics.keys() & topic_names])
            if len(self._known) >= MAX_KNOWN_SUBSCRIPTIONS:
                self._known.clear()
            self._known[topic_names] = topic_ids
        return topic_ids

    def forget_subscriptions(self) -> None:
        """Keep no subscription any more: the names of one that has ended would stay in memory as long as the group."""
        self._known.clear()


def preferred_assignor(votes: Counter[str], configured: Sequence[str]) -> str:
    """The assignor that most members ask for, or the first configured one."""
    names = [name for name in sorted(votes) if name in configured and votes[name] > 0]
    return max(names, key=lambda name: votes[name], default=configured[0])


def computed_target(
    stored: StoredConsumerGroup, members: Mapping[str, ConsumerMember], assignor: str, topic_ids: TopicIds
) -> dict[str, dict[bytes, frozenset[int]]]:
    """The target of each of ``members``, which need not be in ``stored`` yet."""
    specs = []
    ids_by_topics: dict[frozenset[str], frozenset[bytes]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        names = stored.topics_of(member)
        if names not in ids_by_topics:
            ids_by_topics[names] = topic_ids.of(names)
        specs.append(
            MemberSubscriptionSpec(
                member_id=member_id,
                instance_id=member.instance_id,
                topic_ids=ids_by_topics[names],
                target=stored.target_of(member),
            )
        )
    topics = topic_ids.image.topics
    known = sorted(topics.keys() & set().union(*ids_by_topics))
    counts = {topics[name].topic_id: len(topics[name].partitions) for name in known}
    return ASSIGNORS[assignor](GroupSpec(members=tuple(specs), partition_counts=counts))


def changed_targets(stored: StoredConsumerGroup, target: Mapping[str, Target]) -> list[GroupRecord]:
    """A record for each member whose target changed."""
    return [
        target_record(stored.group_id, member_id, partitions)
        for member_id, partitions in target.items()
        if stored.targets.get(member_id) != partitions
    ]
