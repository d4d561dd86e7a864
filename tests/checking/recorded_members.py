"""Real consumers that tell of everything that happens to them.

Each kind is one client library with one way of assigning. A member polls, commits what it polled every now and then and
before it gives a partition away, and writes all of that into the history. It commits explicitly only, so that the
history knows of every commit.

What the libraries do differently, and what the checker must know of it:

* librdkafka gives its generation away only inside the opaque metadata for transactions (``rd_kafka_consumer_group_
  metadata_write``: a mark, the generation, the group's and the member's name). Its callbacks run inside ``poll``.
* librdkafka joins the next generation while its user's revoke callback still runs, when it hears just then that the
  topic has grown (``debug=cgrp``: "subscription updated from metadata change: rejoining group in state
  wait-unassign-call"; seen with 2.16.0). What happens in such a callback is reported without a generation, and proves
  nothing. A cooperative member has joined its last generation with that: it keeps a mark that the revocation would have
  taken away, answers each later rebalance with "skipping COOPERATIVE rebalance (incremental assignment pending)", and
  when the coordinator has removed it for that, it keeps its partitions without a member id, for good. So it does with
  Apache Kafka's broker. Such a member begins anew.
* kafka-python's ``cooperative-sticky`` is not here, because its groups do not keep the promise: a member that was
  removed from its group claims the partitions it had when it joins again (``CooperativeStickyAssignor.metadata`` names
  ``member_assignment``, which nobody clears, in a format without a generation), and a leader that hears two claims
  believes the last. It then gives away at once what another has yet to revoke (seen with 3.0.12).
* kafka-python runs its callbacks on the thread of its event loop, where it forbids to wait (ConsumerRebalanceListener);
  so nothing is committed there.
* aiokafka has no callback for lost partitions: what was lost is revoked, when its generation is already forgotten
  (``GroupCoordinator.reset_generation``). It revokes nothing when it closes (``GroupCoordinator.close``).
* kafka-python and aiokafka read the generation when a commit is sent, not when it is asked for, and send it again after
  errors (``commit_offsets_sync``, ``commit_offsets``). A commit may so be made in a later generation than it was begun
  in; it counts as one of no known generation then.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import kafka.structs

from tests.checking.history import NO_GENERATION, Draft, Op, Record, Recorder
from tests.forgotten_assignment import rejoin_if_forgotten

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
POLL_RECORDS = 200
COMMIT_EVERY_SECONDS = 0.3

COMMIT_SECONDS = 3.0
"""How long a commit is waited for, where the library lets its user say so; a broker restarts in less."""

SESSION_MS = 2500
HEARTBEAT_MS = 300
REBALANCE_MS = 8000
"""How long a rebalance waits for a member that lives and does not rejoin."""

METADATA_AGE_MS = 1000

STALL_SECONDS = SESSION_MS / 1000 / 4
WATCH_SECONDS = 0.1

LEFT_OUT_SECONDS = 2 * SESSION_MS / 1000
"""How long a member may have partitions and no member id: librdkafka takes them away with the next poll, if ever."""

FAREWELL_SECONDS = 1.2 * HEARTBEAT_MS / 1000
"""How long a member goes on with a partition after it was asked to give it up, where its library lets it wait. A broker
that gives it away meanwhile tells the other member so with its next heartbeat, and is caught."""

CLIENT_ERRORS = (
    confluent_kafka.KafkaException,
    kafka.errors.KafkaError,
    aiokafka.errors.KafkaError,
    TimeoutError,
)


class RecordedMember(ABC):
    """A member from its first poll until ``close``, used from one thread."""

    name: ClassVar[str]
    has_generations: ClassVar[bool] = True
    """False where the broker counts an epoch for each member instead."""
    is_fenced = False
    """Members have no rivals."""

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        self.recorder, self.servers, self.topic = recorder, servers, topic
        self.positions: dict[int, int] = {}
        self._received: list[Record] = []
        self._commit_due = 0.0
        self._revoking: tuple[str, int] | None = None
        """The membership in which a revoke callback that runs now was begun."""

    def turn(self) -> None:
        """Poll once, and commit when it is time.

        A poll that fails is tried again, as every application does: kafka-python says so that a broker is away. Who
        never recovers does not catch up, and is found by that.
        """
        try:
            self.poll()
        except CLIENT_ERRORS as error:
            log.warning("poll failed: %r", error)
            time.sleep(POLL_SECONDS)
        self._tell_received()
        if self.positions and time.monotonic() >= self._commit_due:
            self.commit(dict(self.positions))
            self._commit_due = time.monotonic() + COMMIT_EVERY_SECONDS

    # ---- what the kinds tell

    def received(self, records: Iterable[Record]) -> None:
        self._received += records

    def _tell_received(self) -> None:
        """Tell of what came before anything that comes after it, commits and callbacks."""
        received, self._received = self._received, []
        if received:
            self.recorder.tell(Op.POLL, records=[(each.partition, each.offset, each.value) for each in received])
            self.positions |= {each.partition: each.offset + 1 for each in received}

    @contextmanager
    def moving(self, op: Op, partitions: Iterable[int]) -> Iterator[dict[int, int]]:
        """Tell of a callback; gives the positions in its partitions, which are forgotten at its end."""
        moved = sorted(partitions)
        self._tell_received()
        member_id, generation = self.membership()
        with self.recorder.doing(op, partitions=moved, member_id=member_id, generation=generation) as draft:
            if op is Op.REVOKE and self.has_generations:
                self._revoking = member_id, generation
            yield {partition: self.positions[partition] for partition in moved if partition in self.positions}
            for partition in moved:
                self.positions.pop(partition, None)
            if self._revoking is not None and self.membership() != self._revoking:
                draft.tell(generation=None)
            self._revoking = None

    @contextmanager
    def committing(self, offsets: dict[int, int]) -> Iterator[Draft]:
        """Report a commit. Errors of clients are reported, too, and end here."""
        member_id, generation = self._revoking or self.membership()
        with self.recorder.doing(Op.COMMIT, offsets=offsets, member_id=member_id, generation=generation) as draft:
            try:
                yield draft
            except CLIENT_ERRORS as error:
                draft.failed(error)
            if self.membership() != (member_id, generation) or generation == NO_GENERATION:
                draft.tell(generation=None)

    # ---- what they do differently

    @abstractmethod
    def poll(self) -> None: ...
    @abstractmethod
    def commit(self, offsets: dict[int, int]) -> None: ...
    @abstractmethod
    def membership(self) -> tuple[str, int]:
        """The member's id and its generation, as it knows them just now."""

    @abstractmethod
    def close(self) -> None: ...


class _Confluent(RecordedMember):
    settings: ClassVar[dict[str, Any]]

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        super().__init__(recorder, servers, topic)
        self.consumer = self._subscribed()

    def _subscribed(self) -> confluent_kafka.Consumer:
        common = {
            "bootstrap.servers": self.servers,
            "group.id": self.recorder.group,
            "client.id": self.recorder.process,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
            "reconnect.backoff.max.ms": 200,
            "max.poll.interval.ms": REBALANCE_MS,
            "fetch.wait.max.ms": 200,
        }
        consumer = confluent_kafka.Consumer(common | self.settings)
        callbacks = {"on_assign": self._assigned, "on_revoke": self._revoked, "on_lost": self._lost}
        consumer.subscribe([self.topic], **callbacks)
        return consumer

    def _assigned(self, _: object, partitions: list[Any]) -> None:
        with self.moving(Op.ASSIGN, (each.partition for each in partitions)):
            pass

    def _revoked(self, _: object, partitions: list[Any]) -> None:
        with self.moving(Op.REVOKE, (each.partition for each in partitions)) as positions:
            time.sleep(FAREWELL_SECONDS)
            if positions:
                self.commit(positions)

    def _lost(self, _: object, partitions: list[Any]) -> None:
        with self.moving(Op.LOST, (each.partition for each in partitions)):
            pass

    def poll(self) -> None:
        timeout = POLL_SECONDS
        for _ in range(POLL_RECORDS):
            if (message := self.consumer.poll(timeout)) is None:
                break
            if message.error() is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert value is not None
                self.received([Record(partition, offset, int(value))])
            timeout = 0

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = [confluent_kafka.TopicPartition(self.topic, *each) for each in offsets.items()]
        with self.committing(offsets):
            for each in self.consumer.commit(offsets=wanted, asynchronous=False):
                if each.error is not None:
                    raise confluent_kafka.KafkaException(each.error)

    def membership(self) -> tuple[str, int]:
        try:
            metadata = self.consumer.consumer_group_metadata()
        except RuntimeError:
            return "", NO_GENERATION  # it is being closed
        mark, _, rest = metadata.partition(b":")
        (generation,) = struct.unpack_from("=i", rest)
        member_id = rest[4:].split(b"\0")[1]
        assert mark == b"CGMDv2", metadata
        return member_id.decode(errors="replace"), generation

    def close(self) -> None:
        self.consumer.close()


class ConfluentRange(_Confluent):
    name = "confluent-range"
    settings: ClassVar[dict[str, Any]] = {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


class ConfluentCooperative(_Confluent):
    name = "confluent-cooperative"
    settings: ClassVar[dict[str, Any]] = {
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    _left_out_since: float | None = None

    def turn(self) -> None:
        super().turn()
        if self.membership()[0] or not self.consumer.assignment():
            self._left_out_since = None
        elif self._left_out_since is None:
            self._left_out_since = time.monotonic()
        elif time.monotonic() - self._left_out_since > LEFT_OUT_SECONDS:
            log.warning("has partitions and no member id: begins anew")
            self.close()
            self.consumer = self._subscribed()

    def _revoked(self, consumer: object, partitions: list[Any]) -> None:
        # What is closed without a member id was the group's long ago.
        (super()._revoked if self.membership()[0] else self._lost)(consumer, partitions)


class ConfluentConsumer(_Confluent):
    """The protocol of KIP-848; its session and its heartbeats are the broker's settings."""

    name = "confluent-consumer"
    has_generations = False
    settings: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}


class KafkaPythonRange(RecordedMember):
    name = "kafka-python-range"

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        super().__init__(recorder, servers, topic)
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=recorder.group,
            client_id=recorder.process,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
            reconnect_backoff_max_ms=200,
            fetch_max_wait_ms=200,
        )
        self.consumer.subscribe([topic], listener=_KafkaPythonListener(self))

    def poll(self) -> None:
        rejoin_if_forgotten(self.consumer)
        for records in self.consumer.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=POLL_RECORDS).values():
            self.received(Record(each.partition, each.offset, int(each.value)) for each in records)

    def commit(self, offsets: dict[int, int]) -> None:
        wanted = {
            kafka.TopicPartition(self.topic, partition): kafka.structs.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        with self.committing(offsets):
            self.consumer.commit(wanted, timeout_ms=int(COMMIT_SECONDS * 1000))

    def membership(self) -> tuple[str, int]:
        metadata = self.consumer.group_metadata()
        return metadata.member_id or "", metadata.generation_id

    def close(self) -> None:
        self.consumer.close(timeout_ms=int(COMMIT_SECONDS * 1000))


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    """Runs while the member's own thread waits in ``poll`` or ``close``."""

    def __init__(self, member: KafkaPythonRange) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._moved(Op.ASSIGN, assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._moved(Op.REVOKE, revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        self._moved(Op.LOST, lost)

    def _moved(self, op: Op, partitions: Iterable[Any]) -> None:
        with self.member.moving(op, (each.partition for each in partitions)):
            pass


class AiokafkaRoundRobin(RecordedMember):
    """On an event loop that runs while the member polls, commits or closes."""

    name = "aiokafka-roundrobin"

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        super().__init__(recorder, servers, topic)
        self.loop = asyncio.new_event_loop()
        self.consumer: aiokafka.AIOKafkaConsumer = self.loop.run_until_complete(self._start())

    async def _start(self) -> aiokafka.AIOKafkaConsumer:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            group_id=self.recorder.group,
            client_id=self.recorder.process,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
            fetch_max_wait_ms=200,
        )
        consumer.subscribe([self.topic], listener=_AiokafkaListener(self))
        while True:
            try:
                await consumer.start()
            except aiokafka.errors.KafkaConnectionError:
                await asyncio.sleep(WATCH_SECONDS)  # the broker is being restarted, and the first contact is tried once
            else:
                return consumer

    def poll(self) -> None:
        polled = self.loop.run_until_complete(
            self.consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=POLL_RECORDS)
        )
        for records in polled.values():
            self.received(Record(each.partition, each.offset, int(each.value)) for each in records)

    def commit(self, offsets: dict[int, int]) -> None:
        self.loop.run_until_complete(self.commit_soon(offsets))

    async def commit_soon(self, offsets: dict[int, int]) -> None:
        wanted = {aiokafka.TopicPartition(self.topic, partition): offset for partition, offset in offsets.items()}
        with self.committing(offsets):
            await asyncio.wait_for(self.consumer.commit(wanted), COMMIT_SECONDS)

    def membership(self) -> tuple[str, int]:
        coordinator = self.consumer._coordinator
        return coordinator.member_id, coordinator.generation

    def close(self) -> None:
        self.loop.run_until_complete(self.consumer.stop())
        self.loop.close()


class _AiokafkaListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: AiokafkaRoundRobin) -> None:
        self.member = member

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        with self.member.moving(Op.ASSIGN, (each.partition for each in assigned)):
            pass

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        _, generation = self.member.membership()
        op = Op.LOST if generation == NO_GENERATION else Op.REVOKE
        with self.member.moving(op, (each.partition for each in revoked)) as positions:
            if positions and op is Op.REVOKE:
                await asyncio.sleep(FAREWELL_SECONDS)
                await self.member.commit_soon(positions)


KINDS: tuple[type[RecordedMember], ...] = (
    ConfluentRange,
    ConfluentCooperative,
    ConfluentConsumer,
    KafkaPythonRange,
    AiokafkaRoundRobin,
)
"""One group of each lives through a run."""

DEPENDABLE_KINDS = [kind for kind in KINDS if kind.name != "kafka-python-range"]
"""kafka-python 3.0 may wait for ever for the answer to its SyncGroup: seen once in some forty runs, on a busy machine,
after a pause across a broker's restart. The broker had written the generation, and the request never ran into the
client's own time limit, so it was the client that lost the answer. The run of every day must not end by that."""


def watch_for_stalls(recorder: Recorder) -> None:
    """Tell whenever this process did not get to run for longer than ``STALL_SECONDS``; for a thread of its own."""
    before = time.monotonic()
    while True:
        time.sleep(WATCH_SECONDS)
        now = time.monotonic()
        if now - before > STALL_SECONDS:
            recorder.tell(Op.STALL, invoked=before)
        before = now


class Client(Protocol):
    """What a process does over and over until it ends."""

    is_fenced: bool

    def turn(self) -> None: ...
    def close(self) -> None: ...


def live(
    new_client: Callable[[Recorder, str, str], Client],
    recorder: Recorder,
    servers: str,
    topic: str,
    ends: threading.Event,
) -> None:
    """Be a client until ``ends``, or until another one has taken its place; then leave."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    threading.Thread(target=watch_for_stalls, args=(recorder,), daemon=True).start()
    with recorder.doing(Op.JOIN):
        client = new_client(recorder, servers, topic)
    while not ends.is_set() and not client.is_fenced:
        client.turn()
    with recorder.doing(Op.CLOSE):
        client.close()
