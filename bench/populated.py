"""A broker with many topics and groups, as the admin app's pages must bear it, made within seconds.

Every topic has the same number of partitions, with a batch in each. A group has one member, which is assigned a
partition of its topic, and has committed an offset of each of the topic's partitions.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import attrs

from bench.membership import Member, find_coordinator, rebalance
from bench.outcome import Options
from bench.wire import (
    CREATE_TOPICS_VERSION,
    PRODUCE_VERSION,
    TIMEOUT_MS,
    answer,
    ask,
    connect,
    request_frame,
    require,
    small_batch,
)
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from trio_broker.testing.process import BrokerProcess

SETTINGS = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
"""No group has to wait for more members, and nothing for the disk."""

COMMIT_VERSION = 8

TOPICS_AT_ONCE = 50
"""Created by one request; a request of all of them would take longer than clients wait."""

IN_FLIGHT = 20
"""Requests sent before their answers are read."""


@attrs.frozen
class Population:
    """How many there are of everything."""

    topics: int
    partitions: int
    groups: int

    @classmethod
    def of(cls, options: Options) -> Population:
        """A thousand topics of ten partitions and a thousand groups, at scale 1."""
        return cls(options.volume(1000), 10, options.volume(1000))

    def __str__(self) -> str:
        partitions = self.topics * self.partitions
        return f"{self.topics:,} topics, {partitions:,} partitions, {self.groups:,} groups"


def topic_name(index: int) -> str:
    return f"events-{index:04}"


def group_id(index: int) -> str:
    return f"readers-{index:04}"


def populate(process: BrokerProcess, population: Population) -> None:
    """Make the topics, the batches and the groups. Raises BenchError when the broker refuses some of it."""
    with connect(process.port) as sock:
        names = [topic_name(index) for index in range(population.topics)]
        for begin in range(0, len(names), TOPICS_AT_ONCE):
            create_topics(sock, names[begin : begin + TOPICS_AT_ONCE], population.partitions)
        for begin in range(0, len(names), IN_FLIGHT):
            produce_to_all(sock, names[begin : begin + IN_FLIGHT], population.partitions)
        find_coordinator(sock, group_id(0))
        for index in range(population.groups):
            join_and_commit(sock, group_id(index), names[index % len(names)], population.partitions)


def create_topics(sock: socket.socket, names: Sequence[str], partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    response = ask(sock, CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS), CREATE_TOPICS_VERSION)
    for topic in response.topics:
        require(topic.error_code, f"creating {topic.name}")


def produce_to_all(sock: socket.socket, names: Sequence[str], partitions: int) -> None:
    """Append a batch to each partition of the topics."""
    for name in names:
        data = [PartitionProduceData(index=index, records=memoryview(small_batch())) for index in range(partitions)]
        topic = TopicProduceData(name=name, partition_data=data)
        request = ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[topic])
        sock.sendall(request_frame(request, PRODUCE_VERSION))
    for name in names:
        response = answer(sock, ProduceRequest, PRODUCE_VERSION)
        for partition in response.responses[0].partition_responses:
            require(partition.error_code, f"producing to {name}")


def join_and_commit(sock: socket.socket, group: str, topic: str, partitions: int) -> None:
    """Make a group of one member, which is behind by a record in every partition."""
    member = Member(sock, group, topic)
    member.ask_for_id()
    rebalance([member])
    positions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=0, committed_leader_epoch=0, committed_metadata=""
        )
        for index in range(partitions)
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=positions)],
    )
    for partition in ask(sock, request, COMMIT_VERSION).topics[0].partitions:
        require(partition.error_code, f"committing for {group}")
