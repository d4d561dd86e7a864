"""Real clients that read, process and write in transactions, and tell of each one.

A loop moves records from one topic to another: for each that it reads it writes one, whose value no other has. Its
process is called after its place: ``<kind>-<place>-<number>``, and the kind with the place is its transactional id, so
that the next process of the place fences the one before. One that is fenced ends.

* ``confluent-loop`` is a member of a group of the consumer protocol, whose epoch fences it as well (KIP-447). Each of
  its errors but those to try again makes it begin anew, with a new consumer and a new producer.
* ``aiokafka-loop`` cannot tell the broker of its membership. So its partitions are fixed, and the transactional id
  alone fences it, as it was before KIP-447.

A commit that fails in any way may have been carried out: the libraries send EndTxn by themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import aiokafka
import aiokafka.errors
import confluent_kafka

from tests.checking.history import Draft, Op, Outcome, Record, Recorder
from tests.checking.recorded_members import HEARTBEAT_MS, METADATA_AGE_MS, POLL_SECONDS
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.group_offsets import fetch_offsets
from trio_broker.client.kafka_client import KafkaClient

log = logging.getLogger(__name__)

OUTPUT_TOPIC = "moved"
OUTPUT_PARTITIONS = 3

PLACES = 2
"""Processes of a kind that live at a time, but for those that sleep."""

RECORDS_AT_ONCE = 50

TRANSACTION_MS = 5000
SECONDS = 20.0
"""How long a client may take for one step. It sends again by itself what got no answer."""

ABANDONED_SECONDS = 1.5 * SECONDS
"""After this a call that was to end after ``SECONDS`` has forgotten them."""

VALUES_PER_PROCESS = 1_000_000

ABORT_EVERY = 7
"""One transaction of so many is aborted on purpose."""


class FencedError(Exception):
    """Another process has the transactional id."""


class AbortedError(Exception):
    """The transaction was aborted on purpose, and its inputs are to be read again."""


BEGIN_ANEW = (
    AbortedError,
    ClientError,
    TimeoutError,
    confluent_kafka.KafkaException,
    aiokafka.errors.KafkaError,
    # What aiokafka says of a transaction that it has given up because of an error.
    aiokafka.errors.IllegalOperation,
)


class TransactionalLoop(ABC):
    """See the head of the file. Used from one thread."""

    name: ClassVar[str]

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        self.recorder, self.servers, self.topic = recorder, servers, topic
        self.transactional_id, _, number = recorder.process.rpartition("-")
        self.place = int(self.transactional_id.rpartition("-")[2])
        self._values = itertools.count(int(number) * VALUES_PER_PROCESS)
        self._transactions = itertools.count(1)
        self.is_fenced = False

    def turn(self) -> None:
        """Move some records, and begin anew after an error."""
        try:
            self.step()
        except FencedError as error:
            log.info("fenced: %r", error)
            self.is_fenced = True
        except BEGIN_ANEW as error:
            log.info("begins anew: %r", error)
            self.close()
            time.sleep(POLL_SECONDS)

    def outputs_of(self, inputs: Sequence[Record]) -> list[Record]:
        """A record for each input, in no place yet."""
        return [Record((record.value + self.place) % OUTPUT_PARTITIONS, -1, next(self._values)) for record in inputs]

    @contextmanager
    def transaction(self, inputs: Sequence[Record], outputs: Sequence[Record]) -> Iterator[Draft]:
        """Tell of a transaction. Without a word of its block about its end, it was not asked to commit."""
        given = {
            "transactional_id": self.transactional_id,
            "inputs": [(each.partition, each.offset, each.value) for each in inputs],
            "records": [(each.partition, each.offset, each.value) for each in outputs],
            "outcome": Outcome.FAIL,
        }
        error: Exception | None = None
        with self.recorder.doing(Op.TRANSACTION, **given) as draft:
            draft.failed("not asked to commit", Outcome.FAIL)
            try:
                yield draft
            except Exception as raised:
                draft.failed(raised, draft.outcome)
                error = raised
        if error is not None:
            raise error

    def is_to_abort(self) -> bool:
        return next(self._transactions) % ABORT_EVERY == 0

    @abstractmethod
    def step(self) -> None:
        """Make the clients if there are none, and move what there is.

        Raises:
            FencedError: this process must end.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the clients; the next step makes new ones."""


def asked_to_commit(draft: Draft) -> None:
    """From now on the transaction may be committed."""
    draft.outcome = Outcome.INFO
    draft.tell_at_once(outcome=Outcome.INFO, ending=time.monotonic())


def record_of(message: confluent_kafka.Message) -> Record:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return Record(partition, offset, int(value))


def in_time(call: Callable[[], None]) -> None:
    """Do ``call`` in a thread, which is left to itself when it takes too long.

    librdkafka 2.16 forgets the timeout of ``send_offsets_to_transaction`` while it has no connection to the group's
    coordinator, and waits for a change of any connection (its issue 5456): when a broker dies just then, for ever.

    Raises:
        TimeoutError: it has not ended.
    """
    done: Future[None] = Future()

    def run() -> None:
        try:
            call()
        except Exception as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="in time", daemon=True).start()
    done.result(ABANDONED_SECONDS)


class ConfluentLoop(TransactionalLoop):
    name = "confluent-loop"

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        super().__init__(recorder, servers, topic)
        self._consumer: confluent_kafka.Consumer | None = None
        self._producer: confluent_kafka.Producer | None = None

    def _open(self) -> None:
        common = {
            "bootstrap.servers": self.servers,
            "client.id": self.recorder.process,
            "reconnect.backoff.max.ms": 200,
        }
        self._producer = confluent_kafka.Producer(
            common | {"transactional.id": self.transactional_id, "transaction.timeout.ms": TRANSACTION_MS}
        )
        with self.recorder.doing(Op.INIT_PRODUCER_ID, transactional_id=self.transactional_id):
            self._producer.init_transactions(SECONDS)
        self._consumer = confluent_kafka.Consumer(
            common
            | {
                "group.id": self.recorder.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 200,
                "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
            }
        )
        self._consumer.subscribe([self.topic])

    def step(self) -> None:
        try:
            if self._consumer is None:
                self._open()
            self._move()
        except confluent_kafka.KafkaException as error:
            if error.args[0].fatal() or error.args[0].code() in FENCED_CODES:
                raise FencedError(str(error)) from error
            raise

    def _move(self) -> None:
        consumer, producer = self._consumer, self._producer
        assert consumer is not None
        assert producer is not None
        messages = consumer.consume(RECORDS_AT_ONCE, POLL_SECONDS)
        inputs = [record_of(message) for message in messages if message.error() is None]
        if not inputs:
            return
        outputs, placed = self.outputs_of(inputs), list[tuple[int, int, int]]()

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                placed.append((message.partition(), message.offset(), int(message.value())))

        with self.transaction(inputs, outputs) as draft:
            try:
                producer.begin_transaction()
                for record in outputs:
                    producer.produce(
                        OUTPUT_TOPIC, b"%d" % record.value, partition=record.partition, on_delivery=delivered
                    )
                ends = {record.partition: record.offset + 1 for record in inputs}
                offsets = [confluent_kafka.TopicPartition(self.topic, *each) for each in ends.items()]
                metadata = consumer.consumer_group_metadata()
                in_time(lambda: producer.send_offsets_to_transaction(offsets, metadata, SECONDS))
                if self.is_to_abort():
                    producer.abort_transaction(SECONDS)
                    raise AbortedError
                asked_to_commit(draft)
                producer.commit_transaction(SECONDS)
            except confluent_kafka.KafkaException as error:
                if error.args[0].txn_requires_abort():
                    producer.abort_transaction(SECONDS)
                raise
            draft.failed("", Outcome.OK)
            draft.tell(records=placed)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._producer = None


FENCED_CODES = frozenset(
    {
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
        confluent_kafka.KafkaError.PRODUCER_FENCED,
    }
)


class AiokafkaLoop(TransactionalLoop):
    """On an event loop that runs while a step does."""

    name = "aiokafka-loop"

    def __init__(self, recorder: Recorder, servers: str, topic: str) -> None:
        super().__init__(recorder, servers, topic)
        self.loop = asyncio.new_event_loop()
        self._consumer: aiokafka.AIOKafkaConsumer | None = None
        self._producer: aiokafka.AIOKafkaProducer | None = None

    def step(self) -> None:
        try:
            self.loop.run_until_complete(self._step())
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise FencedError(repr(error)) from error

    async def _step(self) -> None:
        if self._consumer is None:
            await asyncio.wait_for(self._open(), SECONDS)
        await self._move()

    async def _open(self) -> None:
        common = {"bootstrap_servers": self.servers, "client_id": self.recorder.process}
        self._producer = aiokafka.AIOKafkaProducer(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_MS, **common
        )
        with self.recorder.doing(Op.INIT_PRODUCER_ID, transactional_id=self.transactional_id):
            await self._producer.start()
        consumer = aiokafka.AIOKafkaConsumer(
            group_id=self.recorder.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=METADATA_AGE_MS,
            fetch_max_wait_ms=200,
            **common,
        )
        await consumer.start()
        self._consumer = consumer
        places = [aiokafka.TopicPartition(self.topic, each) for each in await self._partitions()]
        consumer.assign(places)
        committed = await asyncio.to_thread(self._committed)
        for place in places:
            consumer.seek(place, committed.get(place.partition, 0))

    def _committed(self) -> dict[int, int]:
        """The committed offsets. aiokafka 0.14 looks at no error of the whole group, which is what the answer is while
        the coordinator is loading (``GroupCoordinator._do_fetch_commit_offsets``), and begins at 0.
        """
        with KafkaClient(ConnectionSettings(parse_addresses(self.servers), "loop"), Deadline(SECONDS)) as client:
            answer = fetch_offsets(client, self.recorder.group)
            return {place.partition: each.offset for place, each in answer.items()}

    async def _partitions(self) -> list[int]:
        """Those of this place."""
        assert self._consumer is not None
        while not (known := self._consumer.partitions_for_topic(self.topic)):
            await self._consumer._client.force_metadata_update()
        return [each for each in known if each % PLACES == self.place]

    async def _move(self) -> None:
        consumer, producer = self._consumer, self._producer
        assert consumer is not None
        assert producer is not None
        polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=RECORDS_AT_ONCE)
        inputs = [Record(each.partition, each.offset, int(each.value)) for some in polled.values() for each in some]
        if not inputs:
            return
        outputs = self.outputs_of(inputs)
        with self.transaction(inputs, outputs) as draft:
            await asyncio.wait_for(producer.begin_transaction(), SECONDS)
            sent = [
                await asyncio.wait_for(
                    producer.send(OUTPUT_TOPIC, b"%d" % record.value, partition=record.partition), SECONDS
                )
                for record in outputs
            ]
            ends = {
                aiokafka.TopicPartition(self.topic, partition): max(
                    record.offset + 1 for record in inputs if record.partition == partition
                )
                for partition in {record.partition for record in inputs}
            }
            group = self.recorder.group
            await asyncio.wait_for(producer.send_offsets_to_transaction(ends, group), SECONDS)
            if self.is_to_abort():
                await asyncio.wait_for(producer.abort_transaction(), SECONDS)
                raise AbortedError
            results = [await asyncio.wait_for(each, SECONDS) for each in sent]
            asked_to_commit(draft)
            await asyncio.wait_for(producer.commit_transaction(), SECONDS)
            draft.failed("", Outcome.OK)
            draft.tell(
                records=[
                    (each.partition, each.offset, record.value) for each, record in zip(results, outputs, strict=True)
                ]
            )

    def close(self) -> None:
        consumer, producer, self._consumer, self._producer = self._consumer, self._producer, None, None
        for client in (consumer, producer):
            if client is not None:
                # aiokafka cancels its tasks, and may wait for one of them.
                with suppress(Exception, asyncio.CancelledError):
                    self.loop.run_until_complete(asyncio.wait_for(client.stop(), SECONDS))


LOOPS: tuple[type[TransactionalLoop], ...] = (ConfluentLoop, AiokafkaLoop)
