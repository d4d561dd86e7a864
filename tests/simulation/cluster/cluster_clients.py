"""Clients of a simulated cluster: how each request finds its broker, and those that only a cluster has.

A client knows who leads and coordinates from the metadata of some broker, which may be out of date, but never goes back
to older ones: as Kafka's, which keep the newest leader epoch. A producer that went back to a leader that was replaced
would be refused for what that one has missed. Other requests now and then go to any broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import read_request_header
from kafka_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_wire.messages.delete_records import DeleteRecordsRequest
from kafka_wire.messages.end_txn import EndTxnRequest
from kafka_wire.messages.fetch import FetchRequest, FetchTopic
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.checking.history import NO_GENERATION, Op, Outcome, Record
from tests.compat.transaction_requests import PROTOCOLS
from tests.simulation.cluster.simulated_cluster import CLIENTS, ClusterMachine, SimulatedCluster
from tests.simulation.simulated_clients import RETRIABLE, RETRY_SECONDS, TOPIC, Reader
from tests.simulation.simulated_transactions import Fenced, TransactionalProducer
from tests.simulation.simulated_world import (
    CONNECTION,
    ConnectionLost,
    DirectTarget,
    World,
    answered,
    each_behind_another,
    request_bytes,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.coordinator.runtime.coordinator_runtime import partition_for
from trio_broker.network.request_channel import QueuedRequest

CLIENT_SECONDS = 4.0
"""How long a client waits for an answer."""

MISDIRECTED = 0.03
"""Of the requests, to a broker that need not be the right one."""

LOST = 0.02
"""Of the requests or their answers."""

LATE = 0.02
"""Of the requests that may be late."""

LATE_SECONDS = 2.0


@attrs.define(eq=False)
class ClusterConnection:
    """A client's connections to all brokers, see ``Connection``."""

    world: World
    name: str
    cluster: SimulatedCluster
    _image: MetadataImage | None = None
    """The newest metadata that this client has seen."""

    async def ask(self, request: Any, version: int, *, may_be_late: bool = False) -> Any:
        if isinstance(request, FetchRequest):
            return await self._fetch(request, version)
        may_stray = not isinstance(request, ProduceRequest)
        target = self._target(place_of(request), may_stray=may_stray)
        return await self._ask(target, request, version, may_be_late=may_be_late)

    async def ask_together(self, requests: Sequence[Any], version: int) -> list[Any]:
        """As ``Connection.ask_together``; all go to the broker that the first one is for."""
        target = self._target(place_of(requests[0]), may_stray=False)
        return await each_behind_another(partial(self._ask, target), requests, version)

    async def _fetch(self, request: FetchRequest, version: int) -> Any:
        """Ask each leader for what it has."""
        parts: dict[ClusterMachine | None, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        for topic in request.topics:
            for each in topic.partitions:
                parts[self._target((topic.topic, each.partition))][topic.topic].append(each)
        answers = []
        for machine, topics in parts.items():
            part = copy(request)
            part.topics = [FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()]
            answers.append(await self._ask(machine, part, version))
        answers[0].responses = [topic for answer in answers for topic in answer.responses]
        return answers[0]

    def _target(self, place: tuple[str, int] | None, *, may_stray: bool = True) -> ClusterMachine | None:
        """The leader of a partition as far as is known, any broker where that does not matter."""
        cluster = self.cluster
        if place is None or (may_stray and self.world.random.random() < MISDIRECTED):
            return cluster.any_serving()
        image = cluster.image()
        if image is None or (self._image is not None and image.offset < self._image.offset):
            image = self._image
        self._image = image
        topic = None if image is None else image.topics.get(place[0])
        if topic is None:
            # An internal topic is made by the broker that is asked.
            return cluster.any_serving()
        partition = topic.partitions.get(place[1])
        return None if partition is None else cluster.machine(partition.leader)

    async def _ask(
        self,
        machine: ClusterMachine | None,
        request: Any,
        version: int,
        *,
        may_be_late: bool = False,
        lets_next: trio.Event | None = None,
    ) -> Any:
        world, chance = self.world, self.world.random
        world.requests += 1
        await trio.sleep(chance.expovariate(1000))
        name = type(request).__name__
        if machine is None:
            raise ConnectionLost(f"{name}: no broker is known")
        wire = request_bytes(request, version, self.name)
        fate = chance.random() if world.faults else 1.0
        if may_be_late and fate < LATE:
            machine.start_soon(self._deliver, machine, wire, chance.expovariate(1 / LATE_SECONDS))
            raise ConnectionLost(f"{name}: late")
        if LATE < fate < LATE + LOST:
            if chance.random() < 0.5:
                machine.start_soon(self._deliver, machine, wire)
            raise ConnectionLost(f"{name}: lost")
        with trio.move_on_after(CLIENT_SECONDS):
            answer = await self._deliver(machine, wire, lets_next=lets_next)
            if answer is None:
                raise ConnectionLost(f"{name}: no broker")
            response = world.response(self.name, request, version, answer)
            world.latest[self.name] = round(trio.current_time(), 6), response
            return response
        raise ConnectionLost(f"{name}: no response")

    async def _deliver(
        self, machine: ClusterMachine, wire: bytes, seconds: float = 0.0, lets_next: trio.Event | None = None
    ) -> bytes | None:
        """Hand a request over after ``seconds``; return the answer, None without a broker that lives long enough."""
        there, back = self.cluster.network.links(CLIENTS, machine.name)
        if seconds:
            await trio.sleep(seconds)
        await there.passed()
        header, position = read_request_header(wire)
        target = DirectTarget(lets_next)
        request = QueuedRequest(header, memoryview(wire)[position:], CONNECTION, reply_target=target)
        answer = await machine.in_broker(lambda broker: answered(broker.dispatcher.answer(request)))
        self.cluster.network.look()
        await back.passed()
        return answer

    def close(self) -> None:
        """There is nothing to close."""


def place_of(request: Any) -> tuple[str, int] | None:
    """The partition whose leader a request is for; None for one that any broker takes."""
    match request:
        case ProduceRequest():
            topic = request.topic_data[0]
            return topic.name, topic.partition_data[0].index
        case DeleteRecordsRequest():
            return request.topics[0].name, request.topics[0].partitions[0].partition_index
        case OffsetFetchRequest():
            return CONSUMER_OFFSETS_TOPIC, partition_for(request.groups[0].group_id, 1)
        case OffsetCommitRequest() | TxnOffsetCommitRequest():
            return CONSUMER_OFFSETS_TOPIC, partition_for(request.group_id, 1)
        case InitProducerIdRequest(transactional_id=None):
            return None
        case InitProducerIdRequest() | AddOffsetsToTxnRequest() | EndTxnRequest():
            assert request.transactional_id is not None
            return TRANSACTION_STATE_TOPIC, partition_for(request.transactional_id, 1)
        case AddPartitionsToTxnRequest():
            return TRANSACTION_STATE_TOPIC, partition_for(request.v3_and_below_transactional_id, 1)
        case _:
            return None


@attrs.define(eq=False)
class Committer:
    """Commits one offset after the other for a group of its own, and asks for what is committed."""

    world: World
    group_id: str
    connection: ClusterConnection

    async def run(self, until: float) -> None:
        offset = 0
        while trio.current_time() < until:
            await self.world.pause()
            offset += 1
            with suppress(ConnectionLost):
                await self._commit(offset)
            if self.world.random.random() < 0.5:
                with suppress(ConnectionLost):
                    await self.committed()

    async def _commit(self, offset: int) -> None:
        wanted = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[wanted])],
        )
        with self.world.doing(self.group_id, Op.COMMIT, self.group_id, offsets={0: offset}) as draft:
            response = await self.connection.ask(request, 9)
            if code := ErrorCode(response.topics[0].partitions[0].error_code):
                assert code in RETRIABLE, code.name
                draft.failed(code.name, Outcome.INFO)

    async def committed(self) -> bool:
        """Ask for what is committed; return whether that was answered."""
        partitions = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=partitions)
        with self.world.doing(self.group_id, Op.FETCH_OFFSETS, self.group_id) as draft:
            found = (await self.connection.ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
            if code := ErrorCode(found.error_code or found.topics[0].partitions[0].error_code):
                assert code in RETRIABLE, code.name
                draft.failed(code.name, Outcome.FAIL)
                return False
            offset = found.topics[0].partitions[0].committed_offset
            draft.fields["offsets"] = {0: None if offset < 0 else offset}
        return True


@attrs.define(eq=False)
class CopyLoop:
    """Reads a topic from its committed offsets on, and copies it in transactions that commit these.

    The group has no members; ``member_id`` and ``epoch`` are what a client without a membership says.
    """

    world: World
    name: str
    partitions: int
    connection: ClusterConnection
    member_id: str = ""
    epoch: int = NO_GENERATION
    producer: TransactionalProducer = attrs.field(init=False)
    reader: Reader = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        protocol = self.world.random.choice(PROTOCOLS)
        self.producer = TransactionalProducer(self.world, self.name, self.name, protocol, self.partitions)
        self.reader = Reader(self.world, self.connection)

    @property
    def group_id(self) -> str:
        return self.name

    async def run(self, done: trio.Event) -> None:
        """Copy until ``done``."""
        while not done.is_set():
            try:
                if not self.reader.positions:
                    await self._rewind()
                records = await self.reader.poll(max_wait_ms=500)
            except ConnectionLost:
                await trio.sleep(RETRY_SECONDS)
                continue
            except Fenced:
                # Its transaction has timed out.
                self.producer.producer = None
                continue
            if records and not await self._copy(records):
                self.reader.positions = {}

    async def _copy(self, records: list[Record]) -> bool:
        chance = self.world.random
        written = [Record(chance.randrange(self.partitions), -1, self.world.new_value()) for _ in records]
        offsets = {record.partition: self.reader.positions[record.partition] for record in records}
        commits = not self.world.faults or chance.random() < 0.85
        try:
            outcome = await self.producer.transact(
                written,
                commits=commits,
                inputs=records,
                offsets=offsets,
                member=self,  # type: ignore[arg-type]
            )
        except Fenced:
            self.producer.producer = None
            return False
        return outcome is Outcome.OK

    async def _rewind(self) -> None:
        """Go back to what is committed. The transaction before is ended first: its offsets are pending."""
        await self.producer.begin()
        partitions = list(range(self.partitions))
        group = OffsetFetchRequestGroup(
            group_id=self.group_id, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)]
        )
        while True:
            found = (await self.connection.ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
            places = [each for topic in found.topics for each in topic.partitions]
            codes = {ErrorCode(code) for code in (found.error_code, *(each.error_code for each in places)) if code}
            if not codes:
                self.reader.positions = {each.partition_index: max(each.committed_offset, 0) for each in places}
                return
            assert codes <= RETRIABLE | {ErrorCode.UNSTABLE_OFFSET_COMMIT}, codes
            await trio.sleep(RETRY_SECONDS)
