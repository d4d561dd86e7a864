"""Beginnings and ends of logs, asked of each partition's leader."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    SpecialTimestamp,
)
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.scripted_client import WAIT_SECONDS, Pauses, client_of, unused_port
from tests.fakes.scripted_kafka import HOST, Cluster, ScriptedKafka, listed, served_up_to
from trio_broker.client.errors import Refused, VersionNotServed
from trio_broker.client.offsets import find_offsets, find_offsets_at, find_ranges
from trio_broker.common.log_range import LogRange
from trio_broker.common.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def offsets(answers: dict[TopicPartition, Any]) -> Any:
    """What ListOffsets answers: for each partition an offset, an error code, or both ends."""

    def one(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse | None:
        answer = answers.get(TopicPartition(topic, asked.partition_index))
        if answer is None:
            return None
        if isinstance(answer, ErrorCode):
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=answer)
        if isinstance(answer, LogRange):
            answer = answer.earliest if asked.timestamp == SpecialTimestamp.EARLIEST else answer.latest
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=answer)

    return lambda request, version: listed(request, one)


def test_each_leader_is_asked_once_for_its_own_partitions():
    with ScriptedKafka(node_id=1) as first, ScriptedKafka(node_id=2) as second, client_of(first) as client:
        Cluster([first, second], topics={"a": [1, 2], "b": [1]})
        for server in (first, second):
            server.answers[ListOffsetsRequest] = offsets({A0: 10, A1: 11, B0: 20})

        assert find_offsets(client, [A0, A1, B0], SpecialTimestamp.LATEST) == {A0: 10, A1: 11, B0: 20}
        [request] = first.requests(ListOffsetsRequest)
        assert [(topic.name, len(topic.partitions)) for topic in request.topics] == [("a", 1), ("b", 1)]
        [request] = second.requests(ListOffsetsRequest)
        assert [topic.partitions[0].partition_index for topic in request.topics] == [1]


def test_both_ends_of_a_log():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1, 1]})
        server.answers[ListOffsetsRequest] = offsets({A0: LogRange(3, 9), A1: ErrorCode.KAFKA_STORAGE_ERROR})
        ranges = find_ranges(client, [A0, A1])
        assert ranges[A0] == LogRange(3, 9)
        assert str(ranges[A1]) == "partition a-1: KAFKA_STORAGE_ERROR"


def test_nothing_is_asked_for_no_partitions():
    with ScriptedKafka() as server, client_of(server) as client:
        assert find_offsets(client, [], SpecialTimestamp.LATEST) == {}
    assert server.asked == []


def test_a_leader_that_moved_is_found():
    with ScriptedKafka(node_id=1) as first, ScriptedKafka(node_id=2) as second, client_of(first) as client:
        cluster = Cluster([first, second], topics={"a": [1]})

        def moved(request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
            cluster.topics["a"] = [2]
            response: ListOffsetsResponse = offsets({A0: ErrorCode.NOT_LEADER_OR_FOLLOWER})(request, version)
            return response

        first.answers[ListOffsetsRequest] = moved
        second.answers[ListOffsetsRequest] = offsets({A0: 5})
        assert find_offsets(client, [A0], SpecialTimestamp.LATEST) == {A0: 5}


def test_a_leader_that_was_lost_is_asked_about_until_another_one_leads():
    pauses = Pauses()
    with ScriptedKafka(node_id=1) as first, client_of(first, pauses=pauses) as client:
        cluster = Cluster([first], topics={"a": [2, 1]}, other_nodes={2: (HOST, unused_port())})
        first.answers[ListOffsetsRequest] = offsets({A0: 5, A1: 6})

        def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
            if sum(pauses.made) > 9:
                cluster.topics["a"] = [1, 1]
            return cluster.metadata(request, version)

        first.answers[MetadataRequest] = metadata
        assert find_offsets(client, [A0, A1], SpecialTimestamp.LATEST) == {A0: 5, A1: 6}
        assert sum(pauses.made) < WAIT_SECONDS / 2, "there is time for the next question"


def test_a_partition_without_a_leader_does_not_hide_the_others():
    pauses = Pauses()
    with ScriptedKafka() as server, client_of(server, pauses=pauses) as client:
        Cluster([server], topics={"a": [1, -1]})
        server.answers[ListOffsetsRequest] = offsets({A0: 5})
        found = find_offsets(client, [A0, A1], SpecialTimestamp.LATEST)
        assert found[A0] == 5
        assert str(found[A1]) == "partition a-1: LEADER_NOT_AVAILABLE: the partition has no leader now"
        assert len(server.requests(MetadataRequest)) == 5, "five rounds; each says who the brokers are"
        assert sum(pauses.made) < 2


@pytest.mark.parametrize("partition", [TopicPartition("a", 7), TopicPartition("missing", 0)])
def test_a_partition_that_does_not_exist_is_reported_at_once(partition: TopicPartition):
    pauses = Pauses()
    with ScriptedKafka() as server, client_of(server, pauses=pauses) as client:
        Cluster([server], topics={"a": [1]})
        found = find_offsets(client, [partition], SpecialTimestamp.LATEST)[partition]
        assert isinstance(found, Refused)
        assert found.name == "UNKNOWN_TOPIC_OR_PARTITION"
        assert pauses.made == []


def test_a_leader_that_cannot_be_reached_does_not_hide_the_others():
    port = unused_port()
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1, 2]}, other_nodes={2: (HOST, port)})
        server.answers[ListOffsetsRequest] = offsets({A0: 5})
        found = find_offsets(client, [A0, A1], SpecialTimestamp.LATEST)
        assert found[A0] == 5
        assert f"{HOST}:{port}" in str(found[A1])


def test_a_leader_that_is_no_broker_any_more_does_not_hide_the_others():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1, 2]})
        server.answers[ListOffsetsRequest] = offsets({A0: 5})
        found = find_offsets(client, [A0, A1], SpecialTimestamp.LATEST)
        assert found[A0] == 5
        assert "BROKER_NOT_AVAILABLE" in str(found[A1])


def test_a_partition_that_is_left_out_of_the_answer_is_reported():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1]})
        server.answers[ListOffsetsRequest] = offsets({})
        assert "left it out" in str(find_offsets(client, [A0], SpecialTimestamp.LATEST)[A0])


def test_every_partition_may_have_a_timestamp_of_its_own():
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1, 1]})
        server.answers[ListOffsetsRequest] = offsets({A0: 5, A1: 6})
        assert find_offsets_at(client, {A0: 1000, A1: 2000}) == {A0: 5, A1: 6}
        [request] = server.requests(ListOffsetsRequest)
        assert [each.timestamp for each in request.topics[0].partitions] == [1000, 2000]


@pytest.mark.parametrize("read_committed", [True, False])
def test_the_last_stable_offset_is_asked_for_where_only_committed_records_count(read_committed: bool):
    with ScriptedKafka() as server, client_of(server) as client:
        Cluster([server], topics={"a": [1]})
        server.answers[ListOffsetsRequest] = offsets({A0: 5})
        find_offsets(client, [A0], SpecialTimestamp.LATEST, read_committed=read_committed)
        [request] = server.requests(ListOffsetsRequest)
        assert request.isolation_level == int(read_committed)


def test_a_broker_that_knows_no_last_stable_offset_is_not_asked_for_one():
    with ScriptedKafka(served=served_up_to(ApiKey.LIST_OFFSETS, 1)) as server, client_of(server) as client:
        Cluster([server], topics={"a": [1]})
        server.answers[ListOffsetsRequest] = offsets({A0: 5})
        assert find_offsets(client, [A0], SpecialTimestamp.LATEST) == {A0: 5}
        with pytest.raises(VersionNotServed, match="ListOffsets in versions 0-1; versions 2-11 are needed"):
            find_offsets(client, [A0], SpecialTimestamp.LATEST, read_committed=True)
