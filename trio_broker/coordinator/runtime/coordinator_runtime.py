"""The shards of one coordinator, and how requests reach them. What they coordinate is known by the machine.

A key (a group's id) lives with all its records on one partition of the coordinator's internal topic, by the hash of the
key; the broker that leads the partition coordinates the key. The topic is created when the first client looks for a
coordinator. A shard is one partition and the state that its records describe, in one leader epoch: it is loaded before
it answers; until then requests get COORDINATOR_LOAD_IN_PROGRESS. Shards come and go with the leadership, in tasks of
their own, for which no publisher of metadata waits. One that is led in a newer epoch is another one, which reads the
log anew.

All brokers go by the number of partitions that the metadata has, so that they agree on the coordinator of a key. The
controller lets no internal topic grow: a key's partition would change, and its state stay behind. (Kafka lets it grow,
and each broker goes by the number at its start.)

From then on every event appends its records before another event can change the state: either all that an event changes
is in the log, or the request is answered with why not. An event runs between two checkpoints, so nothing comes between.
A response is sent when the records that it depends on are as durable as ``log.durability`` says. Requests that wait,
for other requests or for the disk, release their handler slot.

Source: Kafka's CoordinatorRuntime and CoordinatorShard, GroupCoordinatorService.partitionFor and
AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.schema import Request
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage, PartitionImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import Backoff, start_background, start_once
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import in_turns
from trio_broker.coordinator.runtime.log import CoordinatorLog, coordinator_code
from trio_broker.coordinator.runtime.machine import Machine
from trio_broker.coordinator.runtime.response_future import NO_REQUIRED_OFFSET, ResponseFuture
from trio_broker.coordinator.runtime.result import Now, RequestContext
from trio_broker.coordinator.runtime.shard import Shard
from trio_broker.coordinator.runtime.timer import CoordinatorTimer
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.expiry_clock import ExpiryClock

log = logging.getLogger(__name__)

R = TypeVar("R")
MachineT = TypeVar("MachineT", bound=Machine[Any])

MAX_KNOWN_KEYS = 4096
"""Keys whose partition is kept, since the hash takes a step for each letter."""

MAX_KNOWN_KEY_CHARACTERS = 255
"""Longer keys are hashed each time, so that clients cannot fill the memory with them."""

CREATION_SECONDS = 5.0
"""How long a client waits for the controller to create the internal topic, longer than that takes: a controller may be
being elected. Kafka's does not wait."""

LOADING_TASKS = 4
"""Shards loaded side by side: decoding is Python, so more would only wait for each other."""


def partition_for(key: str, partition_count: int) -> int:
    """The partition of the internal topic that ``key`` lives on: the absolute value of Java's hash of the string."""
    java_hash = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        java_hash = (31 * java_hash + (high << 8 | low)) & 0xFFFF_FFFF
    if java_hash >= 0x8000_0000:
        # The absolute value, but for the smallest int, which has none in Java and counts as 0.
        java_hash = (0x1_0000_0000 - java_hash) & 0x7FFF_FFFF
    return java_hash % partition_count


@attrs.define(eq=False)
class CoordinatorRuntime(Generic[MachineT]):
    """The shards of the partitions of ``topic`` that this broker leads, and what they need of the broker."""

    topic: str
    new_topic: Callable[[], NewTopic]
    new_machine: Callable[[], MachineT]
    commit_timeout_seconds: float
    replicas: ReplicaManager
    controller: ControllerClient
    metadata_cache: MetadataCache
    clock: Clock
    expiry_clock: ExpiryClock
    shards: dict[int, Shard[MachineT]] = attrs.field(factory=dict, init=False)
    timer: CoordinatorTimer[str] = attrs.field(init=False)
    throttled_log: LogThrottle = attrs.field(init=False)
    """For what clients can cause at any rate."""
    _partition_count: int = attrs.field(default=1, init=False)
    _known_partitions: dict[str, int] = attrs.field(factory=dict, init=False)
    """Of keys that are coordinated here, and only those: a request may ask about 20,000 others, once."""
    _closing: dict[int, trio.Event] = attrs.field(factory=dict, init=False)
    """By partition whose last shard is being closed: set once it is."""
    _creating: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _loading: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(LOADING_TASKS), init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.timer = CoordinatorTimer(self._on_timeout)
        self.throttled_log = LogThrottle(log, self.clock)

    def now(self) -> Now:
        return Now(trio.current_time(), self.clock.now_ms(), self.expiry_clock.now_ms())

    @property
    def node_id(self) -> int:
        return self.replicas.config.node.node_id

    @property
    def image(self) -> MetadataImage:
        """The cluster's current metadata."""
        return self.metadata_cache.image

    # ---- shards ---------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the shards and run their timers until cancelled. From the start on each is at least loading."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                start_background(nursery, f"timers of {self.topic}", self.timer.run)
                self.load_led_partitions()
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def load_led_partitions(self) -> None:
        """Begin to load the shards of the partitions that this broker leads and that have none."""
        if (topic := self.image.topics.get(self.topic)) is not None:
            self._follow(topic.partitions)

    def _follow(self, partitions: Mapping[int, PartitionImage]) -> None:
        """Load or unload the shards of ``partitions``, as the metadata have their leaders now."""
        count = len(self.image.topics[self.topic].partitions)
        if count != self._partition_count:
            self._partition_count = count
            self._known_partitions.clear()
        for index, partition in partitions.items():
            if partition.leader == self.node_id:
                self.schedule_load(index, partition.leader_epoch)
            else:
                self.schedule_unload(index, partition.leader_epoch)

    def schedule_load(self, index: int, leader_epoch: int) -> None:
        """Load the shard of a partition that this broker leads from ``leader_epoch`` on, in a task of its own.

        Nothing happens if that epoch is past, the shard has it already, or the partition has no log here as yet.
        """
        partition = self.replicas.find(TopicPartition(self.topic, index))
        if partition is None or leader_epoch < self.image.topics[self.topic].partitions[index].leader_epoch:
            return
        if (shard := self.shards.get(index)) is not None and shard.leader_epoch < leader_epoch:
            self.schedule_unload(index, leader_epoch)
        if index not in self.shards:
            self._load(partition, leader_epoch, Backoff())

    def schedule_unload(self, index: int, leader_epoch: int) -> None:
        """Close the shard of a partition that is led from ``leader_epoch`` on by another broker or anew: what waits
        gets NOT_COORDINATOR. Nothing happens if the shard is of that epoch or a later one."""
        if (shard := self.shards.get(index)) is not None and shard.leader_epoch < leader_epoch:
            del self.shards[index]
            closing = shard.closing(ErrorCode.NOT_COORDINATOR)
            if self._nursery is not None:
                before, self._closing[index] = self._closing.get(index), trio.Event()
                close = partial(self._close, index, closing, before, self._closing[index])
                start_once(self._nursery, f"closing of {shard.log.partition.topic_partition}", close)

    async def _close(
        self, index: int, closing: Generator[None, None, None], before: trio.Event | None, closed: trio.Event
    ) -> None:
        """Close a shard behind the one ``before`` it: its timers have the keys of that one's, and of the next one's."""
        try:
            if before is not None:
                await before.wait()
            await in_turns(closing)
        finally:
            closed.set()
            if self._closing[index] is closed:
                del self._closing[index]

    def _load(self, partition: Partition, leader_epoch: int, backoff: Backoff, pause_seconds: float = 0.0) -> None:
        if self._nursery is not None:
            index = partition.topic_partition.partition
            shard = self.shards[index] = self._new_shard(partition, leader_epoch, backoff)
            load = partial(self._load_shard, shard, self._closing.get(index), pause_seconds)
            start_once(self._nursery, f"loading of {partition.topic_partition}", load)

    async def _load_shard(self, shard: Shard[MachineT], closed: trio.Event | None, pause_seconds: float) -> None:
        if closed is not None:
            await closed.wait()
        await shard.load(self._loading, pause_seconds)

    def _replace(self, closed: Shard[MachineT]) -> None:
        """Load anew what a bug has closed, after a pause: it may come again at the same record."""
        partition = closed.log.partition
        if self.shards.get(partition.topic_partition.partition) is closed:
            self._load(partition, closed.leader_epoch, closed.backoff, closed.backoff.next_pause())

    @property
    def is_loaded(self) -> bool:
        """Whether each shard is active or closed."""
        return all(shard.is_settled.is_set() for shard in self.shards.values())

    async def wait_until_loaded(self) -> None:
        """Wait for ``is_loaded``."""
        while loading := [shard for shard in self.shards.values() if not shard.is_settled.is_set()]:
            await loading[0].is_settled.wait()

    def _new_shard(self, partition: Partition, leader_epoch: int, backoff: Backoff) -> Shard[MachineT]:
        return Shard(
            log=CoordinatorLog(partition, self.replicas, leader_epoch),
            new_machine=self.new_machine,
            timer=self.timer,
            now=self.now,
            metadata_cache=self.metadata_cache,
            throttled_log=self.throttled_log,
            replace=self._replace,
            backoff=backoff,
        )

    def apply_metadata(self, delta: MetadataDelta) -> None:
        """Follow the internal topic: shards are loaded and unloaded with the leadership of their partitions, and closed
        when the topic is deleted."""
        if any(topic.name == self.topic for topic in delta.deleted_topics):
            log.warning("%s was deleted: all that it coordinates is gone", self.topic)
            self.close()
            self.shards.clear()
        if (topic := self.image.topics.get(self.topic)) is not None:
            self._follow(delta.changed_partitions(topic.topic_id))

    def close(self) -> None:
        """Complete all requests that wait with NOT_COORDINATOR, and answer no more."""
        for shard in self.shards.values():
            shard.close(ErrorCode.NOT_COORDINATOR)

    def active_shards(self) -> Iterator[Shard[MachineT]]:
        for shard in list(self.shards.values()):
            if shard.is_active:
                yield shard

    def led_shards(self) -> list[Shard[MachineT]]:
        """The shards of all partitions that this broker leads, for a list of what it coordinates.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``, ``NOT_COORDINATOR``: the list would not be complete.
        """
        # One that is about to be closed is on the list of another broker.
        shards = [shard for shard in self.shards.values() if shard.log.is_led]
        for shard in shards:
            shard.require_active()
        return shards

    @property
    def is_complete(self) -> bool:
        """Whether every key that there is has a shard that answers."""
        count = self._partition_count if self.topic in self.image.topics else 0
        return len(self.shards) == count and all(shard.is_active for shard in self.shards.values())

    @property
    def lacks_leaders(self) -> bool:
        """Whether some partition of the topic has no leader: of a broker alone all, until it is unfenced."""
        topic = self.image.topics.get(self.topic)
        return topic is not None and any(each.leader == NO_LEADER for each in topic.partitions.values())

    def _on_timeout(self, key: str) -> None:
        shard = self._shard_of(key)
        if shard is not None and shard.is_active:
            shard.on_timeout(key)

    def _index_of(self, key: str) -> int:
        index = self._known_partitions.get(key)
        return partition_for(key, self._partition_count) if index is None else index

    def _shard_of(self, key: str) -> Shard[MachineT] | None:
        return self.shards.get(self._index_of(key))

    def _remember(self, key: str) -> None:
        """Keep the partition of ``key``, which is coordinated here, in the place of the one that is known longest."""
        if len(key) > MAX_KNOWN_KEY_CHARACTERS:
            return
        if len(self._known_partitions) >= MAX_KNOWN_KEYS:
            del self._known_partitions[next(iter(self._known_partitions))]
        self._known_partitions[key] = partition_for(key, self._partition_count)

    def shard_for(self, key: str) -> Shard[MachineT]:
        """The shard of ``key``, which is active.

        Raises:
            KafkaError: ``NOT_COORDINATOR``, ``COORDINATOR_LOAD_IN_PROGRESS``.
        """
        shard = self._shard_of(key)
        if shard is None:
            raise KafkaError(f"{key!r} is not coordinated here", code=ErrorCode.NOT_COORDINATOR)
        shard.require_active()
        return shard

    # ---- finding the coordinator ----------------------------------------------------------------------------------

    def find(self, key: str) -> Steps[int]:
        """``find_nowait``, once the internal topic exists; errors as it and ``create_topic``."""
        yield from self.create_topic()
        return self.find_nowait(key)

    def create_topic(self) -> Steps[None]:
        """Create the internal topic if it does not exist.

        Raises:
            KafkaError: ``COORDINATOR_NOT_AVAILABLE``: not now.
        """
        if self.topic not in self.image.topics:
            yield self._create_topic

    def find_nowait(self, key: str) -> int:
        """The id of the broker that coordinates ``key``.

        Raises:
            KafkaError: ``COORDINATOR_NOT_AVAILABLE``: none does now.
        """
        index = self._index_of(key)
        partition = self.image.partition(self.topic, index)
        leader = NO_LEADER if partition is None else partition.leader
        if leader == self.node_id:
            is_available = (shard := self.shards.get(index)) is not None and shard.is_available
        else:
            is_available = leader != NO_LEADER
        if not is_available:
            text = f"the partition of {self.topic} for {key!r} is not available"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    def partition_of(self, key: str) -> TopicPartition:
        """The partition of the internal topic that ``key`` lives on, on whichever broker.

        Raises:
            KafkaError: ``COORDINATOR_NOT_AVAILABLE``: the topic has not been created.
        """
        if self.topic not in self.image.topics:
            raise KafkaError(f"there is no {self.topic}", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return TopicPartition(self.topic, self._index_of(key))

    async def _create_topic(self) -> None:
        # A broker alone is the controller itself.
        seconds = CREATION_SECONDS if len(self.image.brokers) > 1 else math.inf
        try:
            with trio.fail_after(seconds):
                async with self._creating:
                    # Another request may have created it while this one waited for the lock.
                    if self.topic in self.image.topics:
                        return
                    [outcome] = await self.controller.create_topics([self.new_topic()])
        except trio.TooSlowError:
            text = f"the controller has not created {self.topic} yet"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
        if isinstance(outcome, KafkaError):
            # Another broker was asked at the same time; this one is about to read it.
            if outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                log.error("%s cannot be created: %s", self.topic, outcome)
            raise KafkaError(str(outcome), code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        # There is nothing to read, so a client of a new broker need not ask twice.
        for shard in list(self.shards.values()):
            await shard.was_tried.wait()

    # ---- requests -------------------------------------------------------------------------------------------------

    def call(
        self,
        shard: Shard[MachineT],
        key: str,
        request: Request[R],
        context: RequestContext,
        release_handler: ReleaseHandler,
    ) -> Steps[R]:
        """The response of ``shard`` to ``request`` for ``key``, once the records that it depends on are durable.

        Raises:
            KafkaError: the shard refused the request; its records were not made durable, or not in time: a restart
                shows whether they are in the log.
        """
        future = shard.handle(key, request, context)
        if key not in self._known_partitions and key in shard.machine.timed_keys():
            self._remember(key)
        # Most requests, heartbeats above all, are answered by their own event and wait for nothing.
        if not future.is_done or shard.log.partition.high_watermark < future.required_offset:
            yield partial(self._until_answered, shard, future, release_handler)
        response: R = future.response
        return response

    async def _until_answered(
        self, shard: Shard[MachineT], future: ResponseFuture, release_handler: ReleaseHandler
    ) -> None:
        await future.wait(release_handler)
        await self.until_durable(shard, future.required_offset, release_handler)

    async def until_durable(
        self, shard: Shard[MachineT], required_offset: int, release_handler: ReleaseHandler
    ) -> None:
        """Wait until the high watermark of ``shard`` has reached ``required_offset``.

        Raises:
            KafkaError: the records were not made durable, or not in time.
        """
        partition = shard.log.partition
        # What depends on nothing that is not durable stays right under any leader.
        if required_offset == NO_REQUIRED_OFFSET or (partition.high_watermark >= required_offset and shard.log.is_led):
            return
        [code] = await self.replicas.appends.wait_until_replicated(
            [RequiredOffset(partition, required_offset, shard.leader_epoch)],
            timeout_seconds=self.commit_timeout_seconds,
            release_handler=release_handler,
        )
        if code:
            text = f"{partition.topic_partition}: not durable: {code.name}"
            raise KafkaError(text, code=coordinator_code(code))
