"""Decides about topics: their creation, growth and deletion, and the records to write.

Nothing here changes anything or does I/O: the image of the cluster, the settings, a request and the random numbers for
the ids of new topics go in, and records or ``KafkaError`` come out. A request names many topics; each is decided by
itself, but counting those before it in the same request, so that two of one name, or more partitions than fit, are
refused.

Source: Kafka's ReplicationControlManager (createTopics, createPartitions, deleteTopics) and ControllerApis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Final, overload

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.create_topics import BROKER_DEFAULT
from kafka_wire.primitives import NO_UUID, uuid_text
from kafka_wire.stored.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.internal_topics import default_min_insync_replicas, default_replication_factor
from trio_broker.cluster.metadata_image import UNASSIGNED_DIRECTORY, ConfigResourceType, MetadataImage, TopicImage
from trio_broker.cluster.replica_placer import StripedReplicaPlacer, usable_brokers
from trio_broker.cluster.topic_changes import MIN_INSYNC_REPLICAS
from trio_broker.common.topic_names import (
    CLUSTER_METADATA_TOPIC,
    collision_key,
    is_internal_topic,
    require_valid_topic_name,
)
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import count_in_turns, list_in_turns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.keys import TOPIC_KEYS
from trio_broker.config.resource_config import check_topic_configs
from trio_broker.runtime.randomness import Random, random_uuid

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""New partitions that one request may ask for; Kafka's number. They are created one after the other, and other changes
of the cluster wait meanwhile."""

MAX_PARTITIONS: Final = 20_000
"""Partitions of all topics on one node: each keeps files open and some tens of kilobytes of state in memory."""

FIRST_EPOCH: Final = 0

PartitionChangeQuota = Callable[[int], None]
"""Called before so many partitions are created or deleted; raises KafkaError where that is above a quota (KIP-599)."""


def unbounded(partitions: int) -> None:
    """Let any number of partitions be created and deleted."""


@attrs.frozen(kw_only=True)
class NewTopic:
    """A requested topic: a number of partitions, or ``assignments`` that name the brokers of each."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = attrs.field(factory=dict)
    configs: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CreatedTopic:
    """A topic as it was, or would be, created."""

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    """The topic's own settings."""


@attrs.frozen(kw_only=True)
class NewPartitions:
    """A topic to be grown to ``count`` partitions; ``assignments`` may name the brokers of each additional one."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@attrs.frozen
class TopicTarget:
    """A topic by name or by id, but not by both."""

    name: str | None = None
    topic_id: bytes = NO_UUID

    def __str__(self) -> str:
        return repr(self.name) if self.name is not None else f"id {uuid_text(self.topic_id)}"


# --- creation ---


def decide_new_topics(
    image: MetadataImage,
    config: BrokerConfig,
    topics: Sequence[NewTopic],
    random: Random,
    apply_quota: PartitionChangeQuota = unbounded,
) -> Steps[Iterator[ControllerResult[CreatedTopic] | KafkaError]]:
    """Decide about each topic, in order, when it is asked for."""
    # Before any topic is decided: a request beyond the limit is refused as a whole, as by Kafka's controller.
    wanted = yield from list_in_turns(_wanted_partitions(topic, config) for topic in topics)
    refuse_excess(sum(wanted))
    counts = yield from count_in_turns(topic.name for topic in topics)
    planner = _TopicPlanner(image, config, random, (yield from _room(image)), apply_quota)
    return (attempt(partial(planner.plan, topic, occurrences=counts[topic.name])) for topic in topics)


class _TopicPlanner:
    """Decides about the topics of one request in order, counting the names and partitions of those before."""

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        random: Random,
        room: _Room,
        apply_quota: PartitionChangeQuota,
    ) -> None:
        self.image = image
        self.apply_quota = apply_quota
        self.config = config
        self.random = random
        self.room = room

    @cached_property
    def _names_by_collision_key(self) -> dict[str, str]:
        return {collision_key(name): name for name in self.image.topics}

    def plan(self, topic: NewTopic, *, occurrences: int) -> ControllerResult[CreatedTopic]:
        """Return what creates ``topic``, which the request names ``occurrences`` times.

        Raises:
            KafkaError: with the code for what is wrong with it.
        """
        if occurrences > 1:
            raise KafkaError(f"topic {topic.name!r} is named twice in one request", code=ErrorCode.INVALID_REQUEST)
        self._check_name(topic.name)
        if is_internal_topic(topic.name) and topic.replication_factor == BROKER_DEFAULT and not topic.assignments:
            topic = _with_internal_defaults(topic, self.image)
        assignment = _assignment_of(topic, self.image, self.config, self.random)
        configs = _checked_configs(topic, self.config)
        self.room.require(assignment)
        self.apply_quota(len(assignment))
        created = CreatedTopic(
            name=topic.name,
            topic_id=random_uuid(self.random),
            num_partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=configs,
        )
        self.room.take(assignment)
        if "_" in (key := collision_key(topic.name)):
            self._names_by_collision_key[key] = topic.name
        return ControllerResult(created, _creation_records(created, assignment, self.image.active_brokers))

    def _check_name(self, name: str) -> None:
        require_valid_topic_name(name)
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(f"topic {name} is the broker's own", code=ErrorCode.INVALID_REQUEST)
        if name in self.image.topics:
            raise KafkaError(f"Topic '{name}' already exists.", code=ErrorCode.TOPIC_ALREADY_EXISTS)
        # A name without "." and "_" collides with no other, so most requests do not look at all topics.
        key = collision_key(name)
        if "_" in key and (other := self._names_by_collision_key.get(key)):
            raise KafkaError(
                f"topic {name!r} collides with topic {other!r}: '.' and '_' count as the same",
                code=ErrorCode.INVALID_TOPIC_EXCEPTION,
            )


def _with_internal_defaults(topic: NewTopic, image: MetadataImage) -> NewTopic:
    """A topic of the broker's own with the replicas that no setting gives, and what a write to them needs."""
    factor = default_replication_factor(image)
    min_isr = default_min_insync_replicas(factor)
    defaults = {MIN_INSYNC_REPLICAS: str(min_isr)} if min_isr > 1 else {}
    return attrs.evolve(topic, replication_factor=factor, configs=dict(sorted({**defaults, **topic.configs}.items())))


def _wanted_partitions(topic: NewTopic, config: BrokerConfig) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return config.request.num_partitions if topic.num_partitions == BROKER_DEFAULT else max(topic.num_partitions, 0)


def _assignment_of(
    topic: NewTopic, image: MetadataImage, config: BrokerConfig, random: Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each partition of a new topic."""
    if topic.assignments:
        return _manual_assignment(topic, image)
    if topic.replication_factor < 1 and topic.replication_factor != BROKER_DEFAULT:
        raise KafkaError(
            f"the replication factor must be positive, or -1 for the default, not {topic.replication_factor}",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if topic.num_partitions < 1 and topic.num_partitions != BROKER_DEFAULT:
        raise KafkaError(
            f"the number of partitions must be positive, or -1 for the default, not {topic.num_partitions}",
            code=ErrorCode.INVALID_PARTITIONS,
        )
    factor = topic.replication_factor
    if factor == BROKER_DEFAULT:
        factor = config.request.default_replication_factor
    return place_replicas(image, random, _wanted_partitions(topic, config), factor)


def _manual_assignment(topic: NewTopic, image: MetadataImage) -> list[tuple[int, ...]]:
    if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
        raise KafkaError(
            "beside a manual assignment the numbers of partitions and replicas must be -1",
            code=ErrorCode.INVALID_REQUEST,
        )
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise KafkaError(
            "the partitions of a manual assignment must be numbered 0, 1, 2 and so on",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    replicas = [tuple(topic.assignments[index]) for index in range(len(topic.assignments))]
    active = image.active_brokers
    for index, each in enumerate(replicas):
        check_replicas(image, each, replication_factor=len(replicas[0]))
        require_active_replica(active, index, each)
    return replicas


def require_active_replica(active: frozenset[int], index: int, replicas: Sequence[int]) -> None:
    """Check that a new partition has a replica that can lead, on one of the brokers that are ``active``.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT: it has none.
    """
    if active.isdisjoint(replicas):
        raise KafkaError(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
            " controlled shutdown.",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )


def check_replicas(image: MetadataImage, replicas: Sequence[int], *, replication_factor: int | None = None) -> None:
    """Check one partition of a manual assignment, in the order in which Kafka does.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT: no replica, an unknown broker, one twice, or not as many as elsewhere,
            which is ``replication_factor``.
    """
    reason = reason_against_replicas(image, replicas, replication_factor)
    if reason is not None:
        raise KafkaError(
            f"The manual partition assignment includes {reason}", code=ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )


def reason_against_replicas(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None
) -> str | None:
    """Return, with Kafka's message, why an assignment is refused, or None."""
    if not replicas:
        return "an empty replica list."
    # By number, not in the order of the request: Kafka sorts the replicas, and names the first that is wrong.
    for broker_id, count in sorted(Counter(replicas).items()):
        if broker_id not in image.brokers:
            return f"broker {broker_id}, but no such broker is registered."
        if count > 1:
            return f"the broker {broker_id} more than once."
    if replication_factor not in (None, len(replicas)):
        return (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, which"
            f" have {replication_factor} replica(s)."
        )
    return None


def place_replicas(image: MetadataImage, random: Random, count: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Return the replicas of ``count`` partitions, the leader first.

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR: there are fewer usable brokers than that, or none that could lead.
    """
    if replication_factor < 1:
        raise KafkaError(
            f"default.replication.factor is {replication_factor}: a topic has to be created with a factor of its own",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    brokers = usable_brokers(image)
    if replication_factor > len(brokers):
        raise KafkaError(
            f"replication factor {replication_factor} is more than the {len(brokers)} broker(s) of the cluster",
            code=ErrorCode.INVALID_REPLICATION_FACTOR,
        )
    if all(broker.fenced for broker in brokers):
        raise KafkaError("All brokers are currently fenced.", code=ErrorCode.INVALID_REPLICATION_FACTOR)
    if len(brokers) == 1:
        return [(brokers[0].broker_id,)] * count
    placer = StripedReplicaPlacer(brokers, random)
    return [placer.place(replication_factor) for _ in range(count)]


def _checked_configs(topic: NewTopic, config: BrokerConfig) -> dict[str, str]:
    if len(topic.configs) > len(TOPIC_KEYS):
        text = f"{len(topic.configs)} settings of one topic, and there are {len(TOPIC_KEYS)}"
        raise KafkaError(text, code=ErrorCode.INVALID_CONFIG)
    configs = {}
    for name, value in topic.configs.items():
        if value is None:
            raise KafkaError(f"topic config {name} has no value", code=ErrorCode.INVALID_CONFIG)
        configs[name] = value
    check_topic_configs(configs, config)
    return configs


def _creation_records(
    created: CreatedTopic, assignment: Sequence[tuple[int, ...]], active: frozenset[int]
) -> _NewPartitionRecords:
    before = (
        TopicRecord(name=created.name, topic_id=created.topic_id),
        *(
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=created.name, name=name, value=value)
            for name, value in created.configs.items()
        ),
    )
    return _NewPartitionRecords(created.topic_id, 0, assignment, active, before)


@attrs.frozen
class _NewPartitionRecords(Sequence[object]):
    """The records ``before``, and one for each partition of ``assignment``, from the index ``first`` on. Its ISR are
    those of its replicas that are ``active``.

    Those are made when they are asked for: ten thousand at once would hold the event loop for 20 ms.
    """

    topic_id: bytes
    first: int
    assignment: Sequence[tuple[int, ...]]
    active: frozenset[int]
    before: tuple[object, ...] = ()

    def __len__(self) -> int:
        return len(self.before) + len(self.assignment)

    @overload
    def __getitem__(self, position: int) -> object: ...
    @overload
    def __getitem__(self, position: slice) -> list[object]: ...
    def __getitem__(self, position: int | slice) -> object:
        places = range(len(self))[position]
        return self._record(places) if isinstance(places, int) else [self._record(place) for place in places]

    def _record(self, place: int) -> object:
        if place < len(self.before):
            return self.before[place]
        number = place - len(self.before)
        replicas = self.assignment[number]
        isr = [broker_id for broker_id in replicas if broker_id in self.active]
        return PartitionRecord(
            partition_id=self.first + number,
            topic_id=self.topic_id,
            replicas=list(replicas),
            isr=isr,
            removing_replicas=[],
            adding_replicas=[],
            leader=isr[0],
            leader_epoch=FIRST_EPOCH,
            partition_epoch=FIRST_EPOCH,
            directories=[UNASSIGNED_DIRECTORY] * len(replicas),
        )


# --- growth ---


def decide_new_partitions(
    image: MetadataImage,
    topics: Sequence[NewPartitions],
    random: Random,
    apply_quota: PartitionChangeQuota = unbounded,
) -> Steps[Iterator[ControllerResult[NewPartitions] | KafkaError]]:
    """Decide about each growth, in order, when it is asked for."""
    additional = yield from list_in_turns(_additional(image, wanted) for wanted in topics)
    refuse_excess(sum(additional))
    counts = yield from count_in_turns(wanted.name for wanted in topics)
    planner = _GrowthPlanner(image, random, (yield from _room(image)), apply_quota)
    return (attempt(partial(planner.plan, wanted, occurrences=counts[wanted.name])) for wanted in topics)


class _GrowthPlanner:
    """Decides about the topics of one request one after the other, counting partitions."""

    def __init__(self, image: MetadataImage, random: Random, room: _Room, apply_quota: PartitionChangeQuota) -> None:
        self.image = image
        self.apply_quota = apply_quota
        self.random = random
        self.room = room

    def plan(self, wanted: NewPartitions, *, occurrences: int) -> ControllerResult[NewPartitions]:
        """Return what adds the partitions.

        Raises:
            KafkaError: with the code for what is wrong with it.
        """
        if occurrences > 1:
            raise KafkaError(f"topic {wanted.name!r} is named twice in one request", code=ErrorCode.INVALID_REQUEST)
        topic = find_topic(self.image, TopicTarget(name=wanted.name))
        present = len(topic.partitions)
        if is_internal_topic(topic.name):
            # Kafka adds them, and the keys that are coordinated in others from then on lose their state.
            text = f"topic {topic.name!r} keeps its {present} partition(s), by whose number each key has one"
            raise KafkaError(text, code=ErrorCode.INVALID_PARTITIONS)
        if wanted.count <= present:
            raise KafkaError(
                f"topic {wanted.name!r} has {present} partition(s), and {wanted.count} would not be more",
                code=ErrorCode.INVALID_PARTITIONS,
            )
        assignment = _additional_assignment(self.image, topic, wanted, self.random)
        self.room.require(assignment)
        self.apply_quota(len(assignment))
        self.room.take(assignment)
        records = _NewPartitionRecords(topic.topic_id, present, assignment, self.image.active_brokers)
        return ControllerResult(wanted, records)


def _additional(image: MetadataImage, wanted: NewPartitions) -> int:
    topic = image.topics.get(wanted.name)
    return max(wanted.count - len(topic.partitions), 0) if topic is not None else 0


def _additional_assignment(
    image: MetadataImage, topic: TopicImage, wanted: NewPartitions, random: Random
) -> list[tuple[int, ...]]:
    present = len(topic.partitions)
    additional = wanted.count - present
    # As in Kafka, one of its partitions gives the replication factor of the topic; there is always one.
    replication_factor = len(topic.partitions[0].target_replicas)
    if wanted.assignments is None:
        return place_replicas(image, random, additional, replication_factor)
    if len(wanted.assignments) != additional:
        raise KafkaError(
            f"{additional} partition(s) shall be added, but {len(wanted.assignments)} are assigned",
            code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        )
    assignment = [tuple(replicas) for replicas in wanted.assignments]
    active = image.active_brokers
    for index, replicas in enumerate(assignment, present):
        check_replicas(image, replicas, replication_factor=replication_factor)
        require_active_replica(active, index, replicas)
    return assignment


# --- deletion ---


def decide_topic_deletions(
    image: MetadataImage,
    config: BrokerConfig,
    targets: Sequence[TopicTarget],
    apply_quota: PartitionChangeQuota = unbounded,
) -> Steps[Iterator[ControllerResult[TopicImage] | KafkaError]]:
    """Decide about each deletion, in order, when it is asked for.

    Raises:
        KafkaError: TOPIC_DELETION_DISABLED, for the whole request.
    """
    if not config.request.delete_topic_enable:
        raise KafkaError("topics may not be deleted here", code=ErrorCode.TOPIC_DELETION_DISABLED)
    looked_up = (_lookup(image, target) for target in targets)
    found = yield from count_in_turns(None if topic is None else topic.topic_id for topic in looked_up)
    return (attempt(partial(_plan_deletion, image, target, found, apply_quota)) for target in targets)


def _plan_deletion(
    image: MetadataImage, target: TopicTarget, found: Counter[bytes | None], apply_quota: PartitionChangeQuota
) -> ControllerResult[TopicImage]:
    topic = find_topic(image, target)
    if found[topic.topic_id] > 1:
        raise KafkaError(f"topic {topic.name!r} is named twice in one request", code=ErrorCode.INVALID_REQUEST)
    apply_quota(len(topic.partitions))
    return ControllerResult(topic, (RemoveTopicRecord(topic_id=topic.topic_id),))


# --- shared ---


def find_topic(image: MetadataImage, target: TopicTarget) -> TopicImage:
    """Return the topic that is meant.

    Raises:
        KafkaError: INVALID_REQUEST when it is named in no way or in two; UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
            or INVALID_TOPIC_EXCEPTION when there is none.
    """
    by_id = target.topic_id != NO_UUID
    if by_id == (target.name is not None):
        raise KafkaError("a topic goes by its name or by its id", code=ErrorCode.INVALID_REQUEST)
    if (topic := _lookup(image, target)) is not None:
        return topic
    if by_id:
        raise KafkaError(f"no topic with {target}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    raise KafkaError(f"no topic {target}", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _lookup(image: MetadataImage, target: TopicTarget) -> TopicImage | None:
    if target.name is not None:
        return image.topics.get(target.name)
    return image.topics_by_id.get(target.topic_id)


def refuse_excess(partitions: int) -> None:
    """Refuse a request that wants too much at once.

    Raises:
        KafkaError: POLICY_VIOLATION: more than ``MAX_PARTITIONS_PER_REQUEST``.
    """
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            f"{partitions} new partitions are more than the {MAX_PARTITIONS_PER_REQUEST} of one request",
            code=ErrorCode.POLICY_VIOLATION,
        )


class _Room:
    """Counts the partitions that each broker has, with those that a request has added so far."""

    def __init__(self, counts: Counter[int], only_broker: int | None = None) -> None:
        self._counts = counts
        self._only_broker = only_broker

    def require(self, assignment: Sequence[tuple[int, ...]]) -> None:
        """Refuse partitions that a broker has no room for.

        Raises:
            KafkaError: as ``require_room``.
        """
        for broker_id, additional in self._additional(assignment).items():
            require_room(self._counts[broker_id], additional)

    def take(self, assignment: Sequence[tuple[int, ...]]) -> None:
        self._counts.update(self._additional(assignment))

    def _additional(self, assignment: Sequence[tuple[int, ...]]) -> Counter[int]:
        # Of a broker that is a cluster alone ten thousand partitions need not be counted one by one.
        if self._only_broker is not None:
            return Counter({self._only_broker: len(assignment)})
        return Counter(chain.from_iterable(assignment))


def _room(image: MetadataImage) -> Steps[_Room]:
    if image.has_one_broker:
        [only_broker] = image.brokers
        return _Room(Counter({only_broker: image.partition_count}), only_broker)
    partitions = (partition for topic in image.topics.values() for partition in topic.partitions.values())
    counts = yield from count_in_turns(broker_id for partition in partitions for broker_id in partition.replicas)
    return _Room(counts)


def require_room(present: int, additional: int) -> None:
    """Refuse partitions that a broker has no room for.

    Raises:
        KafkaError: POLICY_VIOLATION: more than ``MAX_PARTITIONS`` in all.
    """
    if present + additional > MAX_PARTITIONS:
        raise KafkaError(
            f"{additional} new partitions beside {present} are more than the {MAX_PARTITIONS} of this node",
            code=ErrorCode.POLICY_VIOLATION,
        )
