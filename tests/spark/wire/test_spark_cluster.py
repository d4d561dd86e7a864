"""What a cluster is asked before a job reads: partitions, beginnings, ends, times, ids."""

from __future__ import annotations

from typing import Any

import attrs
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
from kafka_wire.primitives import uuid_text
from tests.client.scripted_client import Pauses, unused_port
from tests.fakes.scripted_kafka import CLOSED, HOST, Cluster, Raw, ScriptedKafka, listed, served_up_to
from tests.spark.topic_records import fill, numbers
from trio_broker.client.address import Address, parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError, SourceUnavailable
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.options.selection import Assign, Subscribe, SubscribePattern
from trio_broker.spark.wire.cluster import REQUEST_SECONDS, KafkaCluster
from trio_broker.testing import BrokerThread

EARLIEST, LATEST = SpecialTimestamp.EARLIEST, SpecialTimestamp.LATEST

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
RETRIES = 3
TOPIC_ID = bytes(range(16))


@attrs.define
class Offsets:
    """What ListOffsets answers: offsets by timestamp, or an error code."""

    answers: dict[TopicPartition, Any]

    def __call__(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        return listed(request, self.one)

    def one(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        answer = self.answers[TopicPartition(topic, asked.partition_index)]
        if isinstance(answer, ErrorCode):
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=answer)
        offset = answer.get(asked.timestamp, -1)
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)


def cluster_of(*addresses: Address, pauses: Pauses | None = None, **options: Any) -> KafkaCluster:
    pauses = pauses or Pauses()
    return KafkaCluster(
        KafkaSettings(tuple(addresses), client_id="my-job"),
        read_committed=options.get("read_committed", True),
        retries=options.get("retries", RETRIES),
        retry_interval_ms=10,
        now=lambda: sum(pauses.made),
        sleep=pauses.made.append,
    )


def at(server: ScriptedKafka, **options: Any) -> KafkaCluster:
    return cluster_of(*parse_addresses(server.address), **options)


def let_topics_be(server: ScriptedKafka, cluster: Cluster, **fields: Any) -> None:
    """Let the topics have other fields in Metadata, by name: ``a={"is_internal": True}``."""

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = cluster.metadata(request, version)
        for topic in response.topics:
            for name, value in fields.get(topic.name or "", {}).items():
                setattr(topic, name, value)
        return response

    server.answers[MetadataRequest] = metadata


# Which partitions


def test_a_subscription_means_all_partitions_in_their_order():
    with ScriptedKafka() as server:
        Cluster([server], topics={"b": [1], "a": [1, 1, -1], "other": [1]})
        cluster = at(server)
        assert cluster.partitions(Subscribe(("a", "b"))) == [A0, A1, TopicPartition("a", 2), B0]
        cluster.close()


def test_assigned_partitions_that_do_not_exist_are_left_out():
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1, 1], "b": [1]})
        cluster = at(server)
        assert cluster.partitions(Assign((A1, B0, TopicPartition("b", 7)))) == [A1, B0]
        cluster.close()


def test_a_pattern_means_all_topics_that_match_but_none_of_kafkas_own():
    with ScriptedKafka() as server:
        cluster_of_the_server = Cluster([server], topics={"b": [1], "a": [1, 1], "__consumer_offsets": [1], "c": [1]})
        let_topics_be(server, cluster_of_the_server, __consumer_offsets={"is_internal": True})
        cluster = at(server)
        assert cluster.partitions(SubscribePattern("a|b|__.*")) == [A0, A1, B0]
        assert cluster.partitions(SubscribePattern("no such")) == []
        cluster.close()


@pytest.mark.parametrize(
    ("selection", "option"),
    [(Subscribe(("a", "missing")), "subscribe"), (Assign((TopicPartition("missing", 0),)), "assign")],
)
def test_a_missing_topic_is_named_with_the_option_and_the_cluster(selection: Any, option: str):
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1]})
        cluster = at(server)
        with pytest.raises(OptionError, match=f"option '{option}': there is no topic 'missing' at {server.address}"):
            cluster.partitions(selection)
        assert not any(topic.allow_auto_topic_creation for topic in server.requests(MetadataRequest))
        cluster.close()


def test_a_topic_that_kafka_keeps_for_itself_is_refused():
    with ScriptedKafka() as server:
        known = Cluster([server], topics={"__consumer_offsets": [1]})
        let_topics_be(server, known, __consumer_offsets={"is_internal": True})
        cluster = at(server)
        with pytest.raises(OptionError, match="__consumer_offsets: topics that Kafka keeps for itself are not read"):
            cluster.partitions(Subscribe(("__consumer_offsets",)))
        cluster.close()


def test_a_topic_that_is_just_being_created_is_waited_for():
    pauses = Pauses()
    with ScriptedKafka() as server:
        known = Cluster([server], topics={"a": [1]})
        creating = {"a": {"error_code": ErrorCode.LEADER_NOT_AVAILABLE}}
        let_topics_be(server, known, **creating)
        first = server.answers[MetadataRequest]
        server.answers[MetadataRequest] = [first, first, known.metadata]
        cluster = at(server, pauses=pauses)
        assert cluster.partitions(Subscribe(("a",))) == [A0]
        assert pauses.made == pytest.approx([0.1, 0.2])
        cluster.close()


def test_topic_ids_are_reported_as_kafka_prints_them():
    with ScriptedKafka() as server:
        known = Cluster([server], topics={"a": [1], "b": [1]})
        let_topics_be(server, known, a={"topic_id": TOPIC_ID})
        cluster = at(server)
        assert cluster.topic_ids(["a", "b", "missing"]) == {"a": uuid_text(TOPIC_ID), "b": "", "missing": ""}
        cluster.close()


# How far they reach


@pytest.mark.parametrize("read_committed", [True, False])
def test_the_end_is_the_last_stable_offset_for_committed_records(read_committed: bool):
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1]})
        server.answers[ListOffsetsRequest] = Offsets({A0: {LATEST: 10, EARLIEST: 3}})
        cluster = at(server, read_committed=read_committed)
        assert (cluster.earliest([A0]), cluster.latest([A0])) == ({A0: 3}, {A0: 10})
        assert [each.isolation_level for each in server.requests(ListOffsetsRequest)] == [0, int(read_committed)]
        cluster.close()


def test_a_time_after_the_last_record_has_no_offset():
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1, 1], "b": [1]})
        server.answers[ListOffsetsRequest] = Offsets({A0: {1000: 5}, A1: {}, B0: {0: 7}})
        cluster = at(server)
        assert cluster.for_times({A0: 1000, A1: 2000, B0: -2}) == {A0: 5, A1: None, B0: 7}
        cluster.close()


def test_partitions_that_are_gone_are_left_out():
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1]})
        server.answers[ListOffsetsRequest] = Offsets({A0: {LATEST: 10, EARLIEST: 3, 5: 4}})
        cluster = at(server)
        assert cluster.latest([A0, A1, B0]) == {A0: 10}
        assert cluster.earliest([A0, A1, B0]) == {A0: 3}
        assert cluster.for_times({A0: 5, B0: 5}) == {A0: 4}
        cluster.close()


# What goes wrong


def test_a_partition_whose_leader_cannot_tell_is_an_error_and_not_left_out():
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1, 1]})
        server.answers[ListOffsetsRequest] = Offsets({A0: {LATEST: 10}, A1: ErrorCode.KAFKA_STORAGE_ERROR})
        cluster = at(server)
        with pytest.raises(SourceUnavailable, match="partition a-1: KAFKA_STORAGE_ERROR"):
            cluster.latest([A0, A1])
        assert len(server.requests(ListOffsetsRequest)) == RETRIES
        cluster.close()


def test_what_fails_for_a_moment_is_asked_again_after_the_interval():
    pauses = Pauses()
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [1]})
        good = Offsets({A0: {LATEST: 10}})
        server.answers[ListOffsetsRequest] = [Offsets({A0: ErrorCode.KAFKA_STORAGE_ERROR}), good]
        cluster = at(server, pauses=pauses)
        assert cluster.latest([A0]) == {A0: 10}
        assert pauses.made == [0.01]
        cluster.close()


def test_a_connection_that_the_broker_closed_meanwhile_is_replaced():
    with ScriptedKafka() as server:
        known = Cluster([server], topics={"a": [1]})
        server.answers[MetadataRequest] = [known.metadata, CLOSED, known.metadata]
        cluster = at(server)
        assert cluster.partitions(Subscribe(("a",))) == [A0]
        assert cluster.partitions(Subscribe(("a",))) == [A0]
        cluster.close()


def test_a_cluster_that_is_not_there_is_reported_in_one_line_with_every_address():
    addresses = [Address(HOST, unused_port()), Address(HOST, unused_port())]
    pauses = Pauses()
    cluster = cluster_of(*addresses, pauses=pauses)
    with pytest.raises(SourceUnavailable) as raised:
        cluster.partitions(Subscribe(("a",)))
    text = str(raised.value)
    assert text.startswith(f"kafka.bootstrap.servers {addresses[0]}, {addresses[1]}: cannot connect to {addresses[0]}")
    assert "\n" not in text
    assert sum(pauses.made) < 2, "an address where nobody listens is not tried for long"


def test_the_attempts_end_within_a_minute():
    pauses = Pauses()
    with ScriptedKafka() as server:
        Cluster([server], topics={"a": [-1]})
        cluster = at(server, pauses=pauses, retries=1000)
        with pytest.raises(SourceUnavailable, match="partition a-0: LEADER_NOT_AVAILABLE"):
            cluster.latest([A0])
        assert REQUEST_SECONDS - 2 < sum(pauses.made) <= REQUEST_SECONDS
        cluster.close()


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_something_else_than_kafka_is_not_asked_twice(retries: int):
    with ScriptedKafka({MetadataRequest: Raw((b"HTTP/1.1 400 Bad Request\r\n",))}) as server:
        cluster = at(server, retries=retries)
        with pytest.raises(SourceUnavailable, match="something else than Kafka's bytes"):
            cluster.partitions(Subscribe(("a",)))
        assert len(server.requests(MetadataRequest)) == 1
        cluster.close()


def test_a_broker_too_old_for_last_stable_offsets_is_reported():
    with ScriptedKafka(served=served_up_to(ApiKey.LIST_OFFSETS, 1)) as server:
        Cluster([server], topics={"a": [1]})
        cluster = at(server)
        with pytest.raises(SourceUnavailable, match="ListOffsets in versions 0-1"):
            cluster.latest([A0])
        cluster.close()


# With a broker


def test_a_broker_tells_all_of_it(kafka_broker_session: BrokerThread):
    broker, topic = kafka_broker_session, "listed-by-a-broker"
    topic_id = broker.create_topic(topic, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for second_of_time in range(3):
        fill(broker, topic, numbers(0, 10), partition=1, timestamp_ms=1_700_000_000_000 + 1000 * second_of_time)
    cluster = cluster_of(*parse_addresses(broker.bootstrap_servers))
    assert cluster.partitions(SubscribePattern("listed-by-.*")) == [first, second]
    assert cluster.topic_ids([topic]) == {topic: topic_id}
    assert cluster.earliest([first, second]) == {first: 0, second: 0}
    assert cluster.latest([first, second]) == {first: 0, second: 30}
    assert cluster.for_times({first: 5, second: 1_700_000_000_500}) == {first: None, second: 10}
    cluster.close()
