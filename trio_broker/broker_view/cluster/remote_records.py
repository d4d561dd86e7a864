"""The records of partitions that other brokers lead, for the admin app: asked for as a consumer or a producer asks.

A broker that does not answer is the error of its partitions, and of no others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    SpecialTimestamp,
)
from kafka_wire.messages.produce import (
    ACKS_ALL,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafka_wire.schema import Request
from trio_broker.cluster.metadata_image import NO_LEADER, TopicImage
from trio_broker.common.log_range import LogRange
from trio_broker.concurrency.barrier import start_once
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.errors import RequestFailed

R = TypeVar("R")
T = TypeVar("T")

ANSWER_SECONDS: Final = 5.0
"""How long another broker may take, beside what it is asked to wait."""

CONSUMER: Final = -1
"""In the place of a replica's id."""


@attrs.frozen
class RemotePartition:
    """A partition of a topic, and the broker that leads it."""

    topic: TopicImage
    index: int
    leader: int


@attrs.frozen
class RemoteRecords:
    """See the head of the file. Each question is about partitions of one topic, and each answer is the value or the
    error of one of them."""

    services: BrokerServices

    def led_elsewhere(self, topic: str, indexes: Iterable[int]) -> list[RemotePartition]:
        """Those of ``indexes`` that another broker leads; none of a topic that there is not, or on a broker alone."""
        image = self.services.metadata_cache.image.topics.get(topic)
        if image is None or self.services.broker_clients is None:
            return []
        states = ((index, image.partitions.get(index)) for index in indexes)
        return [
            RemotePartition(image, index, state.leader)
            for index, state in states
            if state is not None and state.leader not in (self.services.node.node_id, NO_LEADER)
        ]

    async def offsets_at(
        self, partitions: Sequence[RemotePartition], timestamp_ms: int
    ) -> Mapping[int, int | KafkaError]:
        """The first offset of each partition whose record is at least as young as the time; -1 without any. A time
        below zero is one of ``SpecialTimestamp``."""

        def ask(indexes: Sequence[int]) -> ListOffsetsRequest:
            wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp_ms) for index in indexes]
            return ListOffsetsRequest(
                replica_id=CONSUMER, topics=[ListOffsetsTopic(name=partitions[0].topic.name, partitions=wanted)]
            )

        def offsets(response: Any) -> Iterable[tuple[int, int | KafkaError]]:
            for each in response.topics[0].partitions:
                yield each.partition_index, error_in(each.error_code) or each.offset

        return await self._each(partitions, ask, offsets)

    async def range_of(self, partitions: Sequence[RemotePartition]) -> Mapping[int, LogRange | KafkaError]:
        """Where the log of each partition begins, and where what consumers may read ends."""
        starts = await self.offsets_at(partitions, SpecialTimestamp.EARLIEST)
        ends = await self.offsets_at(partitions, SpecialTimestamp.LATEST)
        ranges: dict[int, LogRange | KafkaError] = {}
        for index, start in starts.items():
            end = ends[index]
            if isinstance(start, KafkaError):
                ranges[index] = start
            else:
                ranges[index] = end if isinstance(end, KafkaError) else LogRange(start, end)
        return ranges

    async def fetch(
        self, partitions: Sequence[RemotePartition], positions: Mapping[int, int],
        *, max_bytes: int, max_wait_seconds: float, isolation_level: IsolationLevel,
    ) -> Mapping[int, PartitionData | KafkaError]:  # fmt: skip
        """What follows the position of each partition."""

        def ask(indexes: Sequence[int]) -> FetchRequest:
            topic = partitions[0].topic
            wanted = [
                FetchPartition(partition=index, fetch_offset=positions[index], partition_max_bytes=max_bytes)
                for index in indexes
            ]
            return FetchRequest(
                max_wait_ms=round(max_wait_seconds * 1000),
                min_bytes=1 if max_wait_seconds else 0,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                topics=[FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=wanted)],
            )

        def fetched(response: Any) -> Iterable[tuple[int, PartitionData | KafkaError]]:
            for each in response.responses[0].partitions if response.responses else ():
                yield each.partition_index, error_in(each.error_code) or each

        # Apart from short questions, which would stand behind one that waits for records.
        return await self._each(
            partitions, ask, fetched, max_wait_seconds, purpose="records" if max_wait_seconds else ""
        )

    async def append(self, partition: RemotePartition, records: memoryview, timeout_seconds: float) -> int:
        """Append one batch with acks=all; return the offset of its first record.

        Raises:
            KafkaError: the batch was refused, or whether it was appended is not known.
        """

        def ask(indexes: Sequence[int]) -> ProduceRequest:
            topic = partition.topic
            data = [PartitionProduceData(index=index, records=records) for index in indexes]
            return ProduceRequest(
                transactional_id=None,
                acks=ACKS_ALL,
                timeout_ms=round(timeout_seconds * 1000),
                topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)],
            )

        def appended(response: Any) -> Iterable[tuple[int, PartitionProduceResponse | KafkaError]]:
            for each in response.responses[0].partition_responses:
                yield each.index, error_in(each.error_code, each.error_message) or each

        [outcome] = (await self._each([partition], ask, appended, timeout_seconds, purpose="records")).values()
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome.base_offset

    async def _each(
        self,
        partitions: Sequence[RemotePartition],
        ask: Callable[[Sequence[int]], Request[R]],
        read: Callable[[R], Iterable[tuple[int, T | KafkaError]]],
        wait_seconds: float = 0.0,
        purpose: str = "",
    ) -> Mapping[int, T | KafkaError]:
        """Ask each leader for its partitions, all at once."""
        clients = self.services.broker_clients
        if clients is None or not partitions:
            return {}
        by_leader: defaultdict[int, list[int]] = defaultdict(list)
        for each in partitions:
            by_leader[each.leader].append(each.index)
        answers: dict[int, T | KafkaError] = {}

        async def ask_leader(leader: int, indexes: list[int]) -> None:
            try:
                client = clients.client(leader, purpose)
                response = await client.send(ask(indexes), timeout_seconds=ANSWER_SECONDS + wait_seconds)
            except RequestFailed as error:
                failure = KafkaError(str(error), code=ErrorCode.LEADER_NOT_AVAILABLE)
                answers.update(dict.fromkeys(indexes, failure))
            else:
                answers.update(read(response))

        async with trio.open_nursery() as nursery:
            for leader, indexes in by_leader.items():
                start_once(nursery, f"question to broker {leader}", partial(ask_leader, leader, indexes))
        unanswered = KafkaError("its leader has not answered for it", code=ErrorCode.LEADER_NOT_AVAILABLE)
        return {each.index: answers.get(each.index, unanswered) for each in partitions}


def error_in(code: int, message: str | None = None) -> KafkaError | None:
    """The error of one partition of a response."""
    return None if code == ErrorCode.NONE else KafkaError(message or ErrorCode(code).name, code=ErrorCode(code))
