"""Consumers of three client libraries behind one face, each polling in a thread of its own, as applications do.

A test starts members, waits for what they have come to own or read, and asks them things; each question runs in the
member's thread, between two polls, because most clients may be used from one thread only.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
import kafka.structs
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from tests.forgotten_assignment import rejoin_if_forgotten
from tests.waits import scaled, within

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""Far longer than any rebalance takes."""

POLL_SECONDS = 0.05

SESSION_MS = 10_000
HEARTBEAT_MS = 300
FETCH_WAIT_MS = 100
"""Seeking, pausing and closing wait for the fetch under way."""

METADATA_AGE_MS = 500
"""How soon clients notice new topics and partitions."""

moved = threading.Condition()
"""Notified whenever some member has read or come to own something."""


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int


class Received(NamedTuple):
    """One record that a member got."""

    place: Place
    offset: int
    value: bytes


class Owner(Protocol):
    """The members that have partitions."""

    @property
    def owned(self) -> frozenset[Place]: ...


class Commit(NamedTuple):
    """What is committed for one partition."""

    offset: int
    metadata: str


class Member(ABC):
    """A consumer, from its first poll until ``leave``."""

    name: ClassVar[str]

    def __init__(
        self, servers: str, group_id: str, *topics: str, instance_id: str | None = None, **settings: Any
    ) -> None:
        self.servers = servers
        self.group_id = group_id
        self.topics = list(topics)
        self.instance_id = instance_id
        self.settings = settings
        self.owned: frozenset[Place] = frozenset()
        self.assignments: list[frozenset[Place]] = []
        self.received: list[Received] = []
        self._questions: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._ends = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"member of {group_id}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<{self.name} {sorted(self.owned)}, {len(self.received)} records, {self.failure or 'well'}>"

    # ---- for tests

    def ask(self, question: Callable[[], T]) -> T:
        """Run ``question`` in the member's thread and return its answer."""
        answer: Future[T] = Future()
        self._questions.put((question, answer))
        return within(answer.result, WAIT_SECONDS)

    def leave(self) -> None:
        """Leave the group and close the client."""
        self._ends.set()
        within(self._thread.join, WAIT_SECONDS)
        assert not self._thread.is_alive(), f"{self} does not end"
        if self.failure is not None:
            raise self.failure

    def values(self) -> list[bytes]:
        return [record.value for record in self.received]

    # ---- the thread

    def _run(self) -> None:
        try:
            self.open()
            try:
                while not self._ends.is_set():
                    self._turn()
            finally:
                self.close()
        except BaseException as error:
            with moved:
                self.failure = error
                moved.notify_all()

    def _turn(self) -> None:
        received, owned = self.poll(), self.assignment()
        if received or owned != self.owned:
            with moved:
                self.received += received
                if owned != self.owned:
                    self.owned = owned
                    self.assignments.append(owned)
                moved.notify_all()
        while not self._questions.empty():
            question, answer = self._questions.get()
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

    # ---- what the libraries do differently

    @abstractmethod
    def open(self) -> None: ...
    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def poll(self) -> list[Received]: ...
    @abstractmethod
    def assignment(self) -> frozenset[Place]: ...
    @abstractmethod
    def commit(self, offsets: dict[Place, Commit] | None = None) -> None:
        """Commit these, or all that was read, and wait until it is done."""

    @abstractmethod
    def commit_soon(self, offsets: dict[Place, Commit], done: Callable[[], None]) -> None:
        """Begin to commit; ``done`` is called from some later poll."""

    @abstractmethod
    def committed(self, place: Place) -> int | None: ...
    @abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...
    @abstractmethod
    def pause(self, place: Place) -> None: ...
    @abstractmethod
    def resume(self, place: Place) -> None: ...
    @abstractmethod
    def end_offset(self, place: Place) -> int: ...


class ConfluentMember(Member):
    """confluent-kafka; ``assignor`` is a strategy of the classic protocol, None for the protocol of KIP-848."""

    assignor: ClassVar[str | None] = "range"

    def open(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": self.group_id,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,  # which broker is gone, and which session is over, is what tests are about
        }
        if self.assignor is None:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {
                "partition.assignment.strategy": self.assignor,
                "session.timeout.ms": self.settings.pop("session_ms", SESSION_MS),
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        if self.instance_id is not None:
            settings["group.instance.id"] = self.instance_id
        self.settings.pop("session_ms", None)
        auto_commit_ms = self.settings.pop("auto_commit_ms", None)
        settings |= {
            "enable.auto.commit": auto_commit_ms is not None,
            "auto.commit.interval.ms": auto_commit_ms or 5000,
        }
        self._done: list[Callable[[], None]] = []
        self.consumer = confluent_kafka.Consumer(settings | self.settings, on_commit=self._committed)
        self.consumer.subscribe(self.topics)

    def close(self) -> None:
        self.consumer.close()

    def poll(self) -> list[Received]:
        received = []
        for message in self.consumer.consume(500, POLL_SECONDS):
            if (error := message.error()) is not None:
                assert error.retriable() or error.code() < 0 or error.name() == "UNKNOWN_TOPIC_OR_PART", error
                continue
            topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert value is not None
            received.append(Received(Place(topic, partition), offset, value))
        return received

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(each.topic, each.partition) for each in self.consumer.assignment())

    def commit(self, offsets: dict[Place, Commit] | None = None) -> None:
        wanted = {} if offsets is None else {"offsets": _confluent_offsets(offsets)}
        for each in self.consumer.commit(asynchronous=False, **wanted):
            assert each.error is None, each

    def commit_soon(self, offsets: dict[Place, Commit], done: Callable[[], None]) -> None:
        self._done.append(done)
        self.consumer.commit(offsets=_confluent_offsets(offsets), asynchronous=True)

    def _committed(self, error: object, offsets: object) -> None:
        assert error is None, error
        while self._done:
            self._done.pop()()

    def committed(self, place: Place) -> int | None:
        [found] = self.consumer.committed([confluent_kafka.TopicPartition(*place)], scaled(WAIT_SECONDS))
        return None if found.offset < 0 else found.offset

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(confluent_kafka.TopicPartition(*place, offset))

    def pause(self, place: Place) -> None:
        self.consumer.pause([confluent_kafka.TopicPartition(*place)])

    def resume(self, place: Place) -> None:
        self.consumer.resume([confluent_kafka.TopicPartition(*place)])

    def end_offset(self, place: Place) -> int:
        topic_partition = confluent_kafka.TopicPartition(*place)
        high: int = self.consumer.get_watermark_offsets(topic_partition, scaled(WAIT_SECONDS))[1]
        return high


def _confluent_offsets(offsets: dict[Place, Commit]) -> list[confluent_kafka.TopicPartition]:
    return [
        confluent_kafka.TopicPartition(place.topic, place.partition, commit.offset, metadata=commit.metadata)
        for place, commit in offsets.items()
    ]


class ConfluentRange(ConfluentMember):
    name = "confluent range"


class ConfluentRoundRobin(ConfluentMember):
    name = "confluent roundrobin"
    assignor = "roundrobin"


class ConfluentCooperative(ConfluentMember):
    name = "confluent cooperative-sticky"
    assignor = "cooperative-sticky"


class ConfluentConsumer(ConfluentMember):
    """The protocol of KIP-848: the broker assigns, session and heartbeats are its settings."""

    name = "confluent consumer"
    assignor = None


class KafkaPythonMember(Member):
    """kafka-python."""

    name = "kafka-python range"
    strategies: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        auto_commit_ms = self.settings.pop("auto_commit_ms", None)
        self.consumer = kafka.KafkaConsumer(
            *self.topics,
            bootstrap_servers=self.servers,
            group_id=self.group_id,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            session_timeout_ms=self.settings.pop("session_ms", SESSION_MS),
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            reconnect_backoff_max_ms=200,
            enable_auto_commit=auto_commit_ms is not None,
            auto_commit_interval_ms=auto_commit_ms or 5000,
            **self.strategies,
            **self.settings,
        )

    def close(self) -> None:
        self.consumer.close()

    def poll(self) -> list[Received]:
        rejoin_if_forgotten(self.consumer)
        polled = self.consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        return [
            Received(Place(*place), record.offset, record.value)
            for place, records in polled.items()
            for record in records
        ]

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(*each) for each in self.consumer.assignment())

    def commit(self, offsets: dict[Place, Commit] | None = None) -> None:
        self.consumer.commit(None if offsets is None else _kafka_python_offsets(offsets))

    def commit_soon(self, offsets: dict[Place, Commit], done: Callable[[], None]) -> None:
        def answered(_: object, outcome: object) -> None:
            assert not isinstance(outcome, Exception), outcome
            done()

        self.consumer.commit_async(_kafka_python_offsets(offsets), callback=answered)

    def committed(self, place: Place) -> int | None:
        found: int | None = self.consumer.committed(kafka.TopicPartition(*place))
        return found

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(kafka.TopicPartition(*place), offset)

    def pause(self, place: Place) -> None:
        self.consumer.pause(kafka.TopicPartition(*place))

    def resume(self, place: Place) -> None:
        self.consumer.resume(kafka.TopicPartition(*place))

    def end_offset(self, place: Place) -> int:
        [end] = self.consumer.end_offsets([kafka.TopicPartition(*place)]).values()
        return int(end)


def _kafka_python_offsets(offsets: dict[Place, Commit]) -> dict[Any, Any]:
    return {
        kafka.TopicPartition(*place): kafka.structs.OffsetAndMetadata(commit.offset, commit.metadata, -1)
        for place, commit in offsets.items()
    }


class KafkaPythonCooperative(KafkaPythonMember):
    name = "kafka-python cooperative-sticky"
    strategies: ClassVar[dict[str, Any]] = {"partition_assignment_strategy": [CooperativeStickyAssignor]}


class AiokafkaMember(Member):
    """aiokafka, on an event loop that runs while the member polls."""

    name = "aiokafka roundrobin"
    strategies: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        auto_commit_ms = self.settings.pop("auto_commit_ms", None)
        settings = {
            "bootstrap_servers": self.servers,
            "group_id": self.group_id,
            "group_instance_id": self.instance_id,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": self.settings.pop("session_ms", SESSION_MS),
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": METADATA_AGE_MS,
            "fetch_max_wait_ms": FETCH_WAIT_MS,
            "enable_auto_commit": auto_commit_ms is not None,
            "auto_commit_interval_ms": auto_commit_ms or 5000,
        }

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(*self.topics, **settings, **self.strategies, **self.settings)
            await consumer.start()
            return consumer

        self.consumer = self._do(start())

    def _do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, scaled(WAIT_SECONDS)))

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call what is no coroutine and yet wants to run where they do."""

        async def call() -> None:
            function(*arguments)

        self._do(call())

    def close(self) -> None:
        self._do(self.consumer.stop())
        self.loop.close()

    def poll(self) -> list[Received]:
        polled = self._do(self.consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        return [
            Received(Place(*place), record.offset, record.value)
            for place, records in polled.items()
            for record in records
        ]

    def assignment(self) -> frozenset[Place]:
        return frozenset(Place(*each) for each in self.consumer.assignment())

    def commit(self, offsets: dict[Place, Commit] | None = None) -> None:
        self._do(self.consumer.commit(None if offsets is None else _aiokafka_offsets(offsets)))

    def commit_soon(self, offsets: dict[Place, Commit], done: Callable[[], None]) -> None:
        task = self.loop.create_task(self.consumer.commit(_aiokafka_offsets(offsets)))

        def answered(ended: asyncio.Task[None]) -> None:
            ended.result()
            done()

        task.add_done_callback(answered)

    def committed(self, place: Place) -> int | None:
        found: int | None = self._do(self.consumer.committed(aiokafka.TopicPartition(*place)))
        return found

    def seek(self, place: Place, offset: int) -> None:
        self._call(self.consumer.seek, aiokafka.TopicPartition(*place), offset)

    def pause(self, place: Place) -> None:
        self._call(self.consumer.pause, aiokafka.TopicPartition(*place))

    def resume(self, place: Place) -> None:
        self._call(self.consumer.resume, aiokafka.TopicPartition(*place))

    def end_offset(self, place: Place) -> int:
        [end] = self._do(self.consumer.end_offsets([aiokafka.TopicPartition(*place)])).values()
        return int(end)


def _aiokafka_offsets(offsets: dict[Place, Commit]) -> dict[Any, Any]:
    return {aiokafka.TopicPartition(*place): tuple(commit) for place, commit in offsets.items()}


class AiokafkaRangeMember(AiokafkaMember):
    name = "aiokafka range"
    strategies: ClassVar[dict[str, Any]] = {"partition_assignment_strategy": [AiokafkaRange]}


ONE_OF_EACH: tuple[type[Member], ...] = (ConfluentRange, ConfluentConsumer, KafkaPythonMember, AiokafkaMember)
"""Of each library, and of librdkafka's two protocols."""

OTHER_STRATEGIES: tuple[type[Member], ...] = (
    ConfluentRoundRobin,
    ConfluentCooperative,
    KafkaPythonCooperative,
    AiokafkaRangeMember,
)

EVERY_KIND = (*ONE_OF_EACH, *OTHER_STRATEGIES)


class Crowd:
    """The members of one test: they are watched while it waits, and all leave at its end."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.members: list[Member] = []

    def join(self, kind: type[Member], group_id: str, *topics: str, **settings: Any) -> Member:
        member = kind(self.servers, group_id, *topics, **settings)
        self.members.append(member)
        return member

    def wait(self, condition: Callable[[], object]) -> None:
        """Return when ``condition`` holds; it is looked at whenever somebody moves."""
        with moved:
            came = within(
                partial(moved.wait_for, lambda: condition() or any(each.failure for each in self.members)),
                WAIT_SECONDS,
            )
        for member in self.members:
            if member.failure is not None:
                raise member.failure
        assert came, f"waited in vain: {self.members}"

    def wait_until_shared(self, places: Collection[Place], *members: Owner) -> None:
        """Return when each of ``places`` has exactly one owner among ``members``, and each member has some."""

        def shared() -> bool:
            owned = [place for member in members for place in member.owned]
            return sorted(owned) == sorted(places) and all(member.owned for member in members)

        self.wait(shared)

    def leave(self, *members: Member) -> None:
        for member in members:
            self.members.remove(member)
            member.leave()
