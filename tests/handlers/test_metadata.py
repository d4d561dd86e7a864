"""Metadata: who leads what, and where to connect."""

from __future__ import annotations

import re

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import read_response_header
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.describe_cluster import DescribeClusterRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import PartitionChangeRecord
from tests.cases import each
from tests.fakes.followed_metadata import follow, registered
from tests.fakes.images import image_after
from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import advertising
from trio_broker.handlers.metadata import error_response

VERSIONS = range(14)
NULL_MEANS_ALL_VERSIONS = range(1, 14)
AUTO_CREATE_FLAG_VERSIONS = range(4, 14)
LEADER_EPOCH_VERSIONS = range(7, 14)
TOPIC_OPERATIONS_VERSIONS = range(8, 14)
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
TOPIC_ID_VERSIONS = range(10, 14)
BY_ID_VERSIONS = range(12, 14)

NOT_ASKED_FOR = -(2**31)
TOPIC_BITS = 0b0000_1101_1111_1000
CLUSTER_BITS = 0b0001_1111_1010_0000

UNKNOWN_ID = bytes(range(16))


def named(*names: str, **options) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)


def by_id(*topic_ids: bytes) -> MetadataRequest:
    topics = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


def every_topic(version: int) -> MetadataRequest:
    return MetadataRequest(topics=[] if version == 0 else None)


def names_of(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def existing(wire) -> set[str]:
    return set(wire.services.metadata_cache.image.topics)


# --- the brokers ---


@each("version", NULL_MEANS_ALL_VERSIONS)
async def test_the_controller_is_a_live_broker(wire, version):
    response = await wire.ask(named(), version)
    assert response.controller_id == response.brokers[0].node_id == wire.services.node.node_id


async def test_a_fenced_broker_names_another_one_as_the_controller(wire):
    """It is not among the brokers itself, and a client would wait for its address."""
    own_id = wire.services.node.node_id
    describe = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    await follow(wire.services, registered(own_id, 9092, fenced=True))
    response, described = await wire.ask(named(), 13), await wire.ask(describe, 2)
    assert [response.controller_id, described.controller_id] == [-1, -1]
    await follow(wire.services, registered(own_id + 1, 9093))
    response, described = await wire.ask(named(), 13), await wire.ask(describe, 2)
    assert [each.node_id for each in response.brokers] == [own_id + 1]
    assert [response.controller_id, described.controller_id] == [own_id + 1, own_id + 1]


@each("version", range(2, 14))
async def test_the_cluster_id_has_22_characters_and_does_not_change(wire, version):
    first, second = await wire.ask(named(), version), await wire.ask(named(), version)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", first.cluster_id)
    assert first.cluster_id == second.cluster_id


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("listener", "address"), [("INSIDE", ("10.0.0.1", 19092)), ("OUTSIDE", ("kafka.example.org", 29092))]
)
async def test_the_address_is_that_of_the_listener_asked(open_wire_client, version, listener, address):
    wire = await open_wire_client(advertising({"INSIDE": ("10.0.0.1", 19092), "OUTSIDE": ("kafka.example.org", 29092)}))
    wire.connection = attrs.evolve(CONNECTION, listener_name=listener)
    [broker] = (await wire.ask(named(), version)).brokers
    assert (broker.host, broker.port) == address


@pytest.mark.parametrize("version", VERSIONS)
async def test_who_listens_everywhere_tells_the_address_that_was_dialled(open_wire_client, version):
    wire = await open_wire_client(advertising({"PLAINTEXT": ("", 9092)}))
    wire.connection = attrs.evolve(CONNECTION, local_host="172.17.0.3")
    [broker] = (await wire.ask(named(), version)).brokers
    assert (broker.host, broker.port) == ("172.17.0.3", 9092)


# --- null and empty lists ---


async def test_in_version_0_an_empty_list_asks_for_all_topics(wire):
    await wire.create_topic("a")
    assert names_of(await wire.ask(named(), 0)) == ["a"]


@pytest.mark.parametrize("version", NULL_MEANS_ALL_VERSIONS)
async def test_from_version_1_on_null_asks_for_all_topics_sorted(wire, version):
    await wire.create_topic("b")
    await wire.create_topic("a")
    assert names_of(await wire.ask(every_topic(version), version)) == ["a", "b"]


@pytest.mark.parametrize("version", NULL_MEANS_ALL_VERSIONS)
async def test_from_version_1_on_an_empty_list_asks_for_the_brokers_alone(wire, version):
    await wire.create_topic("a")
    response = await wire.ask(named(), version)
    assert response.topics == []
    assert len(response.brokers) == 1


@pytest.mark.parametrize("version", range(9, 14))
async def test_the_three_bytes_that_librdkafka_leaves_behind_a_null_list_do_no_harm(wire, version):
    """The flags are read out of an array count that librdkafka left standing as zeros, and three bytes remain."""
    await wire.create_topic("a")
    cluster_operations = b"\x00" if version <= 10 else b""
    answer = await wire.send(
        ApiKey.METADATA, version, b"\x00" + b"\x00" + cluster_operations + b"\x00" + b"\x00" + bytes(3)
    )
    _, position = read_response_header(ApiKey.METADATA, version, answer)
    response, _ = decode(MetadataResponse, version, answer, position)
    assert names_of(response) == ["a"]


# --- topics ---


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_is_reported_with_leader_replicas_and_in_sync_replicas(wire, version):
    await wire.create_topic("orders", 2)
    [topic] = (await wire.ask(named("orders"), version)).topics
    node_id = wire.services.node.node_id
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "orders")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, node_id)
        assert (partition.replica_nodes, partition.isr_nodes) == ([node_id], [node_id])


@pytest.mark.parametrize("version", LEADER_EPOCH_VERSIONS)
async def test_a_new_partition_is_in_leader_epoch_0(wire, version):
    await wire.create_topic("orders")
    assert (await wire.ask(named("orders"), version)).topics[0].partitions[0].leader_epoch == 0


@pytest.mark.parametrize("version", TOPIC_ID_VERSIONS)
async def test_a_topic_is_reported_with_the_id_it_was_created_with(wire, version):
    topic_id = await wire.create_topic("orders")
    assert topic_id != NO_UUID
    assert (await wire.ask(named("orders"), version)).topics[0].topic_id == topic_id


async def test_a_topic_created_again_has_another_id(wire):
    first = await wire.create_topic("orders")
    await wire.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    assert await wire.create_topic("orders") != first


async def test_the_id_survives_a_restart(open_wire_client, tmp_path):
    wire = await open_wire_client(directory="first")
    topic_id = await wire.create_topic("orders")
    wire.services.replicas.log_manager.close()
    again = await open_wire_client(directory="first")
    assert (await again.ask(named("orders"), 12)).topics[0].topic_id == topic_id


@pytest.mark.parametrize("version", BY_ID_VERSIONS)
async def test_a_topic_can_be_asked_for_by_id(wire, version):
    topic_id = await wire.create_topic("orders")
    [topic] = (await wire.ask(by_id(topic_id), version)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, "orders", topic_id)


@each("version", BY_ID_VERSIONS)
async def test_an_unknown_id_comes_back_with_a_null_name_and_creates_nothing(wire, version):
    [topic] = (await wire.ask(by_id(UNKNOWN_ID), version)).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, UNKNOWN_ID)
    assert existing(wire) == set()


@each("version", range(10, 12))
@each("topic_id", [UNKNOWN_ID, NO_UUID])
async def test_before_version_12_a_request_by_id_is_invalid(wire, version, topic_id):
    [topic] = (await wire.ask(by_id(topic_id), version)).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")


# --- creation on the way ---


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_topic_is_created_and_reported_at_once(open_wire_client, version):
    wire = await open_wire_client(num_partitions="3")
    [topic] = (await wire.ask(named("orders"), version)).topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.NONE, 3)
    assert existing(wire) == {"orders"}


@each("version", AUTO_CREATE_FLAG_VERSIONS)
async def test_a_client_may_forbid_the_creation(wire, version):
    [topic] = (await wire.ask(named("orders", allow_auto_topic_creation=False), version)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert existing(wire) == set()


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_broker_may_forbid_the_creation(open_wire_client, version):
    wire = await open_wire_client(auto_create_topics_enable="false")
    [topic] = (await wire.ask(named("orders"), version)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert existing(wire) == set()


@each("version", VERSIONS)
async def test_asking_for_all_topics_creates_none(wire, version):
    await wire.ask(every_topic(version), version)
    assert existing(wire) == set()


@each("version", VERSIONS)
async def test_a_name_that_cannot_be_is_invalid_and_the_others_are_served(wire, version):
    response = await wire.ask(named("not/possible", "orders"), version)
    codes = {topic.name: topic.error_code for topic in response.topics}
    assert codes == {"not/possible": ErrorCode.INVALID_TOPIC_EXCEPTION, "orders": ErrorCode.NONE}


async def test_a_topic_that_somebody_else_creates_meanwhile_is_reported(wire):
    responses = []

    async def ask():
        responses.append(await wire.ask(named("orders"), 12))

    async with trio.open_nursery() as nursery, wire.services.controller.operations.lock:
        # Both find the topic missing, and wait for their turn to create it.
        nursery.start_soon(ask)
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
    first, second = (response.topics[0] for response in responses)
    assert first.error_code == second.error_code == ErrorCode.NONE
    assert first.topic_id == second.topic_id


async def test_a_topic_that_another_broker_created_and_this_one_has_not_read_yet_is_asked_for_again(wire, monkeypatch):
    async def create_elsewhere(topics):
        return [KafkaError("it exists", code=ErrorCode.TOPIC_ALREADY_EXISTS) for _ in topics]

    monkeypatch.setattr(wire.services.controller_client, "create_topics", create_elsewhere)
    [topic] = (await wire.ask(named("orders"), 12)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- partitions that nobody leads ---


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_partition_without_a_leader_says_so(wire, version):
    topic_id = await wire.create_topic("orders")
    cache, record = wire.services.metadata_cache, PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=-1)
    cache.set_image(image_after(cache.image, record))
    [topic] = (await wire.ask(named("orders"), version)).topics
    [partition] = topic.partitions
    assert topic.error_code == ErrorCode.NONE
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


# --- operations ---


@pytest.mark.parametrize("version", TOPIC_OPERATIONS_VERSIONS)
async def test_topic_operations_are_reported_only_when_asked_for(wire, version):
    await wire.create_topic("orders")
    [unasked] = (await wire.ask(named("orders"), version)).topics
    [asked] = (await wire.ask(named("orders", include_topic_authorized_operations=True), version)).topics
    assert unasked.topic_authorized_operations == NOT_ASKED_FOR
    assert asked.topic_authorized_operations == TOPIC_BITS


@each("version", CLUSTER_OPERATIONS_VERSIONS)
async def test_cluster_operations_are_reported_only_when_asked_for(wire, version):
    unasked = await wire.ask(named(), version)
    asked = await wire.ask(named(include_cluster_authorized_operations=True), version)
    assert unasked.cluster_authorized_operations == NOT_ASKED_FOR
    assert asked.cluster_authorized_operations == CLUSTER_BITS


@each("version", range(11, 14))
async def test_cluster_operations_have_moved_away_after_version_10(wire, version):
    assert (await wire.ask(named(), version)).cluster_authorized_operations == NOT_ASKED_FOR


# --- refusal ---


def test_a_refusal_is_borne_by_every_topic_and_the_whole():
    response = error_response(named("a", "b"), KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_one_request_creates_a_bounded_number_of_topics(wire, monkeypatch):
    monkeypatch.setattr("trio_broker.handlers.metadata.MAX_CREATED_PER_REQUEST", 2)
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"new-{number}") for number in range(4)])
    response = await wire.ask(asked, 9)
    assert [topic.error_code for topic in response.topics] == [0, 0, 3, 3]
    again = await wire.ask(asked, 9)
    assert [topic.error_code for topic in again.topics] == [0, 0, 0, 0]
