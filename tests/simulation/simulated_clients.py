"""Producers and readers of a simulation, which speak the protocol by themselves and remember what they received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.produce import ACKS_ALL, PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord
from tests.checking.history import Op, Outcome, Record
from tests.simulation.simulated_world import Connection, ConnectionLost, Draft, World

TOPIC = "orders"

RETRY_SECONDS = 0.2

RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_CONTROLLER,
        # Among several brokers:
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""Codes after which a client asks again; what was asked may have happened all the same."""


LOST_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


async def create_topic(
    world: World, name: str, partitions: int, *, replication_factor: int = 1, min_insync_replicas: int = 1
) -> bytes:
    """Create a topic, however often that must be tried; return its id."""
    connection = world.connection("admin")
    # Small segments, so that they roll.
    configs = {"internal.segment.bytes": "4096", "min.insync.replicas": str(min_insync_replicas)}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    while True:
        try:
            created = await connection.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            code = created.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                found = await connection.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
                if not found.topics[0].error_code:
                    connection.close()
                    topic_id: bytes = found.topics[0].topic_id
                    return topic_id
            else:
                assert code in RETRIABLE, ErrorCode(code).name
        except ConnectionLost:
            pass
        await trio.sleep(RETRY_SECONDS)


MAX_IN_FLIGHT = 5
"""Batches that an idempotent producer of Kafka's sends at most without waiting for an answer."""


@attrs.define(eq=False)
class SentBatch:
    """One batch under way; ``end`` is called when it is known what became of it."""

    partition: int
    values: Sequence[int]
    sequence: int
    data: bytes
    draft: Draft
    end: Callable[[], object]

    def acknowledged(self, base_offset: int, *, by_all: bool) -> None:
        written = [Record(self.partition, base_offset + index, value) for index, value in enumerate(self.values)]
        self.draft.fields["records"] = tuple(written)
        if not by_all:
            self.draft.failed("acknowledged by the leader alone", Outcome.INFO)
        self.end()


@attrs.define(eq=False)
class Producer:
    """Sends batches until ``until``, and tells the history what was answered; without acks=all that says nothing.

    An idempotent one sends some without waiting for an answer, and a batch again, with the same sequence, until it
    knows what became of it. Another one sends one after another.
    """

    world: World
    name: str
    partitions: int
    idempotent: bool
    until: float
    batches_per_burst: int = 1
    acks: int = -1
    on_lost_sequence: Callable[[str], object] = lambda _: None
    """Called where the broker does not know the batch before any more, which it has acknowledged."""
    producer_id: int = -1
    producer_epoch: int = -1
    _sequences: dict[int, int] = attrs.field(factory=dict)
    _first_acknowledged: dict[int, int] = attrs.field(factory=dict)
    """The first sequence that was acknowledged in each partition. One of a producer that is not known need not be 0,
    in Kafka neither: a batch that is sent behind one that lacked replicas may be taken, and keeps that one out."""
    _connection: Connection = attrs.field(init=False)

    async def run(self) -> None:
        self._connection = self.world.connection(self.name)
        chance = self.world.random
        while trio.current_time() < self.until:
            await self.world.pause()
            for _ in range(self.batches_per_burst):
                if self.idempotent and self.producer_id < 0:
                    await self._init_producer_id()
                    break
                await self._send(chance.randint(1, MAX_IN_FLIGHT) if self.idempotent else 1)
        self._connection.close()

    async def _init_producer_id(self) -> None:
        try:
            response = await self._connection.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4
            )
        except ConnectionLost:
            await trio.sleep(RETRY_SECONDS)
            return
        if response.error_code:
            await trio.sleep(RETRY_SECONDS)
            return
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self._sequences, self._first_acknowledged = {}, {}

    async def _send(self, count: int) -> None:
        """Send ``count`` batches without waiting for an answer, and those again that an idempotent producer has to."""
        with ExitStack() as ends:
            left = [self._new_batch(ends) for _ in range(count)]
            while left:
                answers = await self._try(left)
                again: list[SentBatch] = []
                for batch, (code, base_offset) in zip(left, answers, strict=True):
                    may_be_next = {each.partition for each in again}.isdisjoint({batch.partition})
                    if code is ErrorCode.NONE:
                        self._first_acknowledged.setdefault(batch.partition, batch.sequence)
                        batch.acknowledged(base_offset, by_all=self.acks == ACKS_ALL)
                    elif self.idempotent and (code in RETRIABLE or (code in LOST_SEQUENCE and not may_be_next)):
                        again.append(batch)
                    else:
                        # Of a batch that was sent again nobody knows any more whether it is in the log.
                        batch.draft.failed(code.name, Outcome.INFO)
                        if self.idempotent:
                            self._give_up(batch, code, left)
                            return
                left = again
                if left:
                    await trio.sleep(RETRY_SECONDS)

    def _new_batch(self, ends: ExitStack) -> SentBatch:
        chance = self.world.random
        partition, count = chance.randrange(self.partitions), chance.randint(1, 4)
        values = [self.world.new_value() for _ in range(count)]
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + count
        data = build_batch(
            [NewRecord(1_700_000_000_000, None, str(value).encode()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence if self.idempotent else -1,
        )
        end = ends.enter_context(ExitStack())
        unknown = tuple(Record(partition, -1, value) for value in values)
        draft = end.enter_context(self.world.doing(self.name, Op.SEND, records=unknown))
        return SentBatch(partition, values, sequence, data, draft, end.close)

    def _give_up(self, batch: SentBatch, code: ErrorCode, sent: Sequence[SentBatch]) -> None:
        """Go on with another producer id; what became of those that are not acknowledged is unknown."""
        self.world.note(self.name, "gives its producer id up", code)
        for each in sent:
            if each.draft.outcome is Outcome.OK:
                each.draft.failed("behind one that was refused", Outcome.INFO)
        first = self._first_acknowledged.get(batch.partition, batch.sequence)
        if code in LOST_SEQUENCE and batch.sequence > first:
            self.on_lost_sequence(f"{self.name}: {code.name} at sequence {batch.sequence}")
        self.producer_id = -1

    async def _try(self, batches: Sequence[SentBatch]) -> list[tuple[ErrorCode, int]]:
        """What the broker has said of each batch; of those that it has said nothing of, that their time is over."""
        requests = [
            ProduceRequest(
                transactional_id=None,
                acks=self.acks,
                timeout_ms=20_000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC, partition_data=[PartitionProduceData(index=batch.partition, records=batch.data)]
                    )
                ],
            )
            for batch in batches
        ]
        responses = await self._connection.ask_together(requests, 9)
        answers = [response.responses[0].partition_responses[0] for response in responses]
        said = [(ErrorCode(answer.error_code), answer.base_offset) for answer in answers]
        return said + [(ErrorCode.REQUEST_TIMED_OUT, -1)] * (len(batches) - len(said))


@attrs.define(eq=False)
class Reader:
    """Fetches from partitions, each from its position on."""

    world: World
    connection: Connection
    positions: dict[int, int] = attrs.field(factory=dict)

    async def poll(self, max_wait_ms: int) -> list[Record]:
        """Return what comes next and move on behind it.

        Raises:
            ConnectionLost: nothing has come.
        """
        chance = self.world.random
        wanted = [
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=chance.choice(SIZES))
            for partition, offset in self.positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=chance.randrange(2),
            topics=[FetchTopic(topic=TOPIC, partitions=wanted)],
            forgotten_topics_data=[],
        )
        response = await self.connection.ask(request, 11)
        assert not response.error_code, ErrorCode(response.error_code).name
        found, has_failed = [], False
        for topic in response.responses:
            for each in topic.partitions:
                code = ErrorCode(each.error_code)
                assert code is ErrorCode.NONE or code in RETRIABLE, f"{each.partition_index}: {code.name}"
                has_failed = has_failed or bool(code)
                if code is ErrorCode.NONE and each.partition_index in self.positions:
                    found += self._records(each.partition_index, each.records or b"")
        if has_failed and not found:
            # A partition that cannot be read is answered at once.
            await trio.sleep(RETRY_SECONDS)
        return found

    def _records(self, partition: int, data: bytes | memoryview) -> list[Record]:
        found, position = [], self.positions[partition]
        for batch in read_batches(memoryview(data)):
            batch.verify_crc()
            for record in batch.records():
                if record.offset >= position:
                    assert record.value is not None
                    found.append(Record(partition, record.offset, int(record.value)))
            self.positions[partition] = max(position, batch.header.next_offset)
        return found


SIZES = (1, 500, 1_000_000)
"""Bytes of one partition that a reader asks for: one batch, some, everything."""


@attrs.define(eq=False)
class Observer:
    """Reads all partitions from the beginning, over and over: what was read once stays."""

    world: World
    name: str
    partitions: int
    done: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        while not self.done.is_set():
            await self.read_all(retry=False)
            await trio.sleep(self.world.random.expovariate(0.3))

    async def read_all(self, *, retry: bool) -> list[Record]:
        """Read from the beginning to the end; with ``retry`` through all errors, else until the first."""
        found: list[Record] = []
        reader = Reader(self.world, self.world.connection(self.name))
        reader.positions = dict.fromkeys(range(self.partitions), 0)
        # A reading is an assignment of its own: it begins anew.
        self.world.tell(self.name, Op.LOST, self.name, partitions=tuple(range(self.partitions)))
        empty = 0
        while empty < 2:
            try:
                records = await reader.poll(max_wait_ms=0)
            except ConnectionLost:
                if not retry:
                    break
                await trio.sleep(RETRY_SECONDS)
                continue
            empty = 0 if records else empty + 1
            found += records
            if records:
                self.world.tell(self.name, Op.POLL, self.name, records=tuple(records))
        reader.connection.close()
        return found
