"""A group of two consumers on a real broker, ``till-a`` and ``till-b``, of which the second is slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.admin.live_admin import LiveAdmin
from tests.coordinator.coordinator_harness import no_park
from trio_broker.coordinator.reporting.lag_history import SAMPLE_INTERVAL_MS
from trio_broker.coordinator.runtime.result import RequestContext

TOPIC = "orders"
GROUP_ID = "billing"
PARTITIONS = 4
RECORDS = 200
"""In each partition."""

ROUNDS = 6
"""Heartbeats of each member, after which the partitions are divided."""


@attrs.define
class Consumer:
    """A member of the new protocol, with what it was given."""

    live: LiveAdmin
    client_id: str
    host: str
    member_id: str
    epoch: int = 0
    assigned: list[Any] = attrs.Factory(list)

    @property
    def context(self) -> RequestContext:
        return RequestContext(self.client_id, self.host, 9)

    async def heartbeat(self, epoch: int | None = None) -> None:
        """Join, stay, or with the epoch -1 leave."""
        owned = [TopicPartitions(topic_id=each.topic_id, partitions=each.partitions) for each in self.assigned]
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=owned,
        )
        groups = self.live.broker.services.groups
        response = await groups.call(GROUP_ID, request, attrs.evolve(self.context, version=1), no_park)
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = response.assignment.topic_partitions

    async def commit(self, offset: int) -> None:
        """Commit ``offset`` in every partition that it has."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for each in self.assigned
            for index in each.partitions
        ]
        assert partitions, self
        request = OffsetCommitRequest(
            group_id=GROUP_ID,
            member_id=self.member_id,
            generation_id_or_member_epoch=self.epoch,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        response = await self.live.broker.services.groups.call(GROUP_ID, request, self.context, no_park)
        codes = {each.error_code for topic in response.topics for each in topic.partitions}
        assert codes == {0}, response


async def make_group(live: LiveAdmin) -> list[Consumer]:
    """Two members that have divided the topic between them; nothing is committed yet."""
    await live.kafka.create_topic(TOPIC, PARTITIONS)
    await live.broker.services.groups.find(GROUP_ID)
    members = [
        Consumer(live, "till-a", "/10.0.0.1", "AAAAAAAAAAAAAAAAAAAAAA"),
        Consumer(live, "till-b", "/10.0.0.2", "BBBBBBBBBBBBBBBBBBBBBB"),
    ]
    for _ in range(ROUNDS):
        for member in members:
            await member.heartbeat()
    assert [sum(len(each.partitions) for each in member.assigned) for member in members] == [2, 2]
    return members


async def produce_to_all(live: LiveAdmin, partitions: Iterable[int] = range(PARTITIONS)) -> None:
    """Append ``RECORDS`` to each partition, or to some."""
    now_ms = live.broker.clock.now_ms()
    records = build_batch([NewRecord(timestamp=now_ms, key=None, value=b"%d" % each) for each in range(RECORDS)])
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    response = await live.kafka.ask(request, 9)
    assert {each.error_code for each in response.responses[0].partition_responses} == {0}


async def make_lag(live: LiveAdmin, clock: Any, members: list[Consumer]) -> None:
    """Let the first member keep up and the second fall behind for some minutes."""
    fast, slow = members
    for step in range(1, 5):
        await produce_to_all(live)
        await fast.commit(step * RECORDS)
        await slow.commit(step * 10)
        for _ in range(9):
            await live.broker.services.groups.sample_lag()
            clock.advance(SAMPLE_INTERVAL_MS / 1000)
    await fast.commit(4 * RECORDS)
    await slow.commit(41)
    await live.broker.services.groups.sample_lag()
