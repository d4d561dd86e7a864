"""The metadata delta: what records change in an image, and the way to the next image.

``replay`` takes the records in order and checks nothing, which came before they were written. It copies what they
change once, however many they are: of an image with ten thousand topics, a batch that changes one of them copies the
dictionaries of topics and no topic but that one, and the replay of a whole log builds the first image in place.

Source: Kafka's MetadataDelta, TopicsDelta and TopicDelta.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Mapping
from itertools import chain
from typing import Any, TypeVar

import attrs

from kafka_wire.primitives import uuid_text
from kafka_wire.stored.metadata import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from trio_broker.cluster.keyed_records import keyed_change
from trio_broker.cluster.metadata_image import (
    BrokerImage,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from trio_broker.concurrency.yield_budget import at_once

K = TypeVar("K")
V = TypeVar("V")


class ContradictoryMetadata(Exception):
    """Records of the metadata log that cannot all be true: no image shows the cluster."""


@attrs.define
class TopicDelta:
    """A topic that is new, without ``before``, or has changed partitions.

    ``partitions`` are all that it has now, and ``changed`` those of them that records were about.
    """

    name: str
    topic_id: bytes
    before: TopicImage | None
    partitions: dict[int, PartitionImage]
    changed: dict[int, PartitionImage] = attrs.Factory(dict)

    def put(self, index: int, partition: PartitionImage) -> None:
        self.partitions[index] = self.changed[index] = partition

    @property
    def has_other_assignment(self) -> bool:
        """Whether it is new, or has partitions that are new or have moved to other brokers."""
        if self.before is None:
            return True
        before = self.before.partitions
        return any(
            (old := before.get(index)) is None or old.replicas != new.replicas for index, new in self.changed.items()
        )


class MetadataDelta:
    """What the records replayed so far change in ``image``."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._deleted: dict[bytes, TopicImage] = {}
        self._gone: set[str] = set()
        self._topics: dict[bytes, TopicDelta] = {}
        self._created: set[str] = set()
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._brokers: dict[int, BrokerImage | None] = {}
        self._features: dict[str, int] = {}
        self._keyed: dict[type[Any], dict[Hashable, Any]] = {}
        self._next_producer_id = image.next_producer_id
        self._partition_count = image.partition_count

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> Generator[None, None, MetadataDelta]:
        """What differs from ``before`` in ``after``, whose records are not known one by one. Yields between topics.

        No record can be added to it.
        """
        delta = cls(before)
        for topic_id, topic in before.topics_by_id.items():
            yield
            if topic_id not in after.topics_by_id:
                delta._deleted[topic_id] = topic
                if topic.name not in after.topics:
                    delta._gone.add(topic.name)
        for topic_id, topic in after.topics_by_id.items():
            yield
            known = before.topics_by_id.get(topic_id)
            if known is None or known.partitions != topic.partitions:
                assert isinstance(topic.partitions, dict), type(topic.partitions)
                old = {} if known is None else known.partitions
                changed = {index: each for index, each in topic.partitions.items() if old.get(index) != each}
                delta._topics[topic_id] = TopicDelta(topic.name, topic_id, known, topic.partitions, changed)
        for resource in {**before.configs_by_resource, **after.configs_by_resource}:
            yield
            if before.configs(resource) != after.configs(resource):
                delta._configs[resource] = dict(after.configs(resource))
        return delta

    # --- what changes ---

    @property
    def deleted_topics(self) -> tuple[TopicImage, ...]:
        """Topics as they were. A name may be among the changed topics again, with another id."""
        return tuple(self._deleted.values())

    @property
    def changed_topics(self) -> tuple[str, ...]:
        """Topics that are new, or have new partitions, leaders or epochs."""
        return tuple(topic.name for topic in self._topics.values())

    @property
    def has_other_assignments(self) -> bool:
        """Whether there are other topics or partitions than before, or some on other brokers."""
        return bool(self._deleted) or any(topic.has_other_assignment for topic in self._topics.values())

    def changed_partitions(self, topic_id: bytes) -> Mapping[int, PartitionImage]:
        """The partitions of a topic that are new, or have a new leader or epoch, by index."""
        topic = self._topics.get(topic_id)
        return {} if topic is None else topic.changed

    @property
    def changed_configs(self) -> tuple[ConfigResource, ...]:
        """Holders whose settings changed; a topic that was deleted is not among them."""
        return tuple(
            resource
            for resource in self._configs
            if resource.type is not ConfigResourceType.TOPIC or resource.name not in self._gone
        )

    # --- records ---

    def replay(self, record: Any) -> None:
        """Add what one record changes.

        Raises:
            NotImplementedError: the record is of a kind this broker never writes, so the image would not be the
                cluster's.
            ContradictoryMetadata: a topic or partition is created a second time, or a topic, partition or broker is
                changed that is not there.
        """
        match record:
            case TopicRecord():
                self._add_topic(record)
            case PartitionRecord():
                self._add_partition(record)
            case PartitionChangeRecord():
                self._change_partition(record)
            case ClearElrRecord():
                self._clear_eligible_leaders(record.topic_name)
            case RemoveTopicRecord():
                self._remove_topic(record)
            case ConfigRecord():
                self._set_config(record)
            case RegisterBrokerRecord():
                self._brokers[record.broker_id] = BrokerImage.of(record)
            case BrokerRegistrationChangeRecord():
                broker = self._broker(record.broker_id, record.broker_epoch)
                self._brokers[record.broker_id] = broker.changed_by(record)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                broker = self._broker(record.id, record.epoch)
                self._brokers[record.id] = attrs.evolve(broker, fenced=isinstance(record, FenceBrokerRecord))
            case UnregisterBrokerRecord():
                self._broker(record.broker_id, record.broker_epoch)
                self._brokers[record.broker_id] = None
            case FeatureLevelRecord():
                self._features[record.name] = record.feature_level
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case NoOpRecord():
                pass
            case _:
                self._replay_keyed(record)

    def _replay_keyed(self, record: Any) -> None:
        if (change := keyed_change(record)) is None:
            raise NotImplementedError(f"a {type(record).__name__} in the metadata log, as a newer version may write")
        self._keyed.setdefault(change.kind, {})[change.key] = change.record

    def _add_topic(self, record: TopicRecord) -> None:
        is_left = record.name in self.image.topics and record.name not in self._gone
        if is_left or record.name in self._created or record.topic_id in self.image.topics_by_id:
            raise ContradictoryMetadata(f"topic {record.name} was created before: {record}")
        self._topics[record.topic_id] = TopicDelta(record.name, record.topic_id, None, {})
        self._created.add(record.name)
        self._gone.discard(record.name)

    def _topic(self, topic_id: bytes) -> TopicDelta:
        """A topic, to be changed."""
        if (changed := self._topics.get(topic_id)) is None:
            topic = self._known(topic_id)
            assert isinstance(topic.partitions, dict), type(topic.partitions)
            # Not ``dict(…)``: see ``merged``.
            changed = self._topics[topic_id] = TopicDelta(topic.name, topic_id, topic, topic.partitions.copy())
        return changed

    def _known(self, topic_id: bytes) -> TopicImage:
        topic = None if topic_id in self._deleted else self.image.topics_by_id.get(topic_id)
        # The records come from the disk at a start, so this holds without assertions (``python -O``), too.
        if topic is None:
            raise ContradictoryMetadata(f"there is no topic with id {uuid_text(topic_id)} that could be changed")
        return topic

    def _add_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        if record.partition_id in topic.partitions:
            raise ContradictoryMetadata(f"partition {record.partition_id} of a topic was created before: {record}")
        topic.put(record.partition_id, PartitionImage.of(record))
        self._partition_count += 1

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        if (before := topic.partitions.get(record.partition_id)) is None:
            raise ContradictoryMetadata(f"there is no partition that could be changed: {record}")
        topic.put(record.partition_id, before.changed_by(record))

    def _clear_eligible_leaders(self, name: str) -> None:
        """Forget who is eligible in the topic ``name``, or, if that is empty, in every topic."""
        topics: dict[bytes, TopicImage | TopicDelta] = {**self.image.topics_by_id, **self._topics}
        for topic_id, topic in topics.items():
            if topic_id in self._deleted or name not in ("", topic.name):
                continue
            for index, partition in topic.partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._change_partition(
                        PartitionChangeRecord(
                            partition_id=index, topic_id=topic_id, eligible_leader_replicas=[], last_known_elr=[]
                        )
                    )

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        removed = self._topics.pop(record.topic_id, None) or self._known(record.topic_id)
        if (before := self.image.topics_by_id.get(record.topic_id)) is not None:
            self._deleted[record.topic_id] = before
        self._gone.add(removed.name)
        self._created.discard(removed.name)
        self._configs[ConfigResource(ConfigResourceType.TOPIC, removed.name)] = {}
        self._partition_count -= len(removed.partitions)

    def _set_config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(ConfigResourceType(record.resource_type), record.resource_name)
        if (configs := self._configs.get(resource)) is None:
            configs = self._configs[resource] = dict(self.image.configs(resource))
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        """The broker that registered in ``epoch``, to be changed."""
        broker = self._brokers.get(broker_id, self.image.brokers.get(broker_id))
        if broker is None or broker.broker_epoch != epoch:
            raise ContradictoryMetadata(f"no broker {broker_id} of epoch {epoch} is registered that could be changed")
        return broker

    # --- the next image ---

    def apply(self, *, offset: int, epoch: int) -> MetadataImage:
        """Return the image after the records, the last of which has ``offset`` and was written in ``epoch``.

        To be called once, and no record can be added after it: the image has the dictionaries that were built here.
        """
        return at_once(self.apply_in_turns(offset=offset, epoch=epoch))

    def apply_in_turns(self, *, offset: int, epoch: int) -> Generator[None, None, MetadataImage]:
        """As ``apply``, yielding between topics."""
        before = self.image
        settings = ((resource, values or None) for resource, values in self._configs.items())
        configs = yield from merged(before.configs_by_resource, settings)
        changed = yield from self._next_topics(configs)
        topics = yield from merged(before.topics, changed.items())
        deleted_ids: Iterable[tuple[bytes, TopicImage | None]] = ((topic_id, None) for topic_id in self._deleted)
        changed_ids = ((topic.topic_id, topic) for topic in changed.values() if topic is not None)
        return MetadataImage(
            offset=offset,
            epoch=epoch,
            topics=topics,
            topics_by_id=(yield from merged(before.topics_by_id, chain(deleted_ids, changed_ids))),
            brokers=(yield from merged(before.brokers, self._brokers.items())),
            features=(yield from merged(before.features, self._features.items())),
            configs_by_resource=configs,
            keyed_records=(yield from self._next_keyed_records()),
            next_producer_id=self._next_producer_id,
            partition_count=self._partition_count,
        )

    def _next_keyed_records(self) -> Generator[None, None, Mapping[type[Any], Mapping[Hashable, Any]]]:
        before = self.image.keyed_records
        changed: list[tuple[type[Any], Mapping[Hashable, Any] | None]] = []
        for kind, changes in self._keyed.items():
            records: Mapping[Hashable, Any] = yield from merged(before.get(kind, {}), changes.items())
            changed.append((kind, records or None))
        return (yield from merged(before, changed))

    def _next_topics(
        self, configs: Mapping[ConfigResource, Mapping[str, str]]
    ) -> Generator[None, None, Mapping[str, TopicImage | None]]:
        """The topics that the next image has differently; None stands for one that it does not have."""
        topics: dict[str, TopicImage | None] = {topic.name: None for topic in self._deleted.values()}
        for resource, values in self._configs.items():
            is_topic = resource.type is ConfigResourceType.TOPIC and resource.name not in self._gone
            if is_topic and (topic := self.image.topics.get(resource.name)) is not None:
                topics[topic.name] = attrs.evolve(topic, configs=values)
            yield
        for each in self._topics.values():
            own = configs.get(ConfigResource(ConfigResourceType.TOPIC, each.name), {})
            topics[each.name] = TopicImage(each.name, each.topic_id, each.partitions, own)
            yield
        return topics


def merged(before: Mapping[K, V], changes: Iterable[tuple[K, V | None]]) -> Generator[None, None, Mapping[K, V]]:
    """``before`` with ``changes``, None taking one away; ``before`` itself when nothing changes. Yields after each."""
    assert isinstance(before, dict), type(before)
    after: dict[K, V] | None = None
    for key, value in changes:
        if after is None:
            # Not ``dict(before)``, which inserts entry by entry once anything was removed, and takes four times as
            # long.
            after = before.copy()
        if value is None:
            after.pop(key, None)
        else:
            after[key] = value
        yield
    return before if after is None else after


def replayed(records: Iterable[Any], *, offset: int = -1, epoch: int = 0) -> MetadataImage:
    """Return the image of a whole log, whose last record has ``offset`` and was written in ``epoch``.

    Raises:
        NotImplementedError, ContradictoryMetadata: as ``MetadataDelta.replay``.
    """
    delta = MetadataDelta(MetadataImage())
    for record in records:
        delta.replay(record)
    return delta.apply(offset=offset, epoch=epoch)
