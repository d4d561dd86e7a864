"""What clients are answered about partitions that other brokers lead (KIP-951), and about brokers that are gone."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafka_wire.messages.describe_cluster import DescribeClusterRequest
from kafka_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fakes.followed_metadata import elected, follow, registered
from tests.fakes.images import partition_record
from tests.handlers.wire_client import WireClient
from tests.partition.real_logs import batch

OTHER = ("broker-2.test", 9093)


@pytest.fixture
async def client(wire: WireClient) -> WireClient:
    """A client of broker 1, beside which is broker 2; ``t-0`` is led by the first, ``t-1`` by the second."""
    await wire.create_topic("t")
    image = wire.services.metadata_cache.image
    await follow(wire.services, registered(2, OTHER[1]), partition_record(image.topics["t"].topic_id, 1, (2, 1)))
    return wire


def topic_id(client: WireClient) -> bytes:
    return client.services.metadata_cache.image.topics["t"].topic_id


async def produce(client: WireClient, version: int, *partitions: int):
    data = [PartitionProduceData(index=index, records=batch(b"a")) for index in partitions]
    by_id = version >= 13
    topic = TopicProduceData(
        name="" if by_id else "t", topic_id=topic_id(client) if by_id else bytes(16), partition_data=data
    )
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    return await client.ask(request, version)


def named(response) -> list[tuple[int, str, int]]:
    return [(each.node_id, each.host, each.port) for each in response.node_endpoints]


@pytest.mark.parametrize("version", [10, 13])
async def test_a_produce_to_a_partition_that_is_led_elsewhere_names_its_leader(client, version):
    response = await produce(client, version, 0, 1)
    here, elsewhere = response.responses[0].partition_responses
    assert (here.error_code, here.base_offset, here.current_leader.leader_id) == (0, 0, -1)
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (elsewhere.current_leader.leader_id, elsewhere.current_leader.leader_epoch) == (2, 0)
    assert named(response) == [(2, *OTHER)]


async def test_a_producer_of_an_older_version_is_only_refused(client):
    response = await produce(client, 9, 1)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_partition_that_is_nowhere_is_unknown(client):
    response = await produce(client, 12, 2)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert named(response) == []


async def fetch(client: WireClient, version: int, partition: int, epoch: int = -1):
    wanted = FetchPartition(
        partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1_000_000
    )
    by_id = version >= 13
    topic = FetchTopic(
        topic="" if by_id else "t", topic_id=topic_id(client) if by_id else bytes(16), partitions=[wanted]
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[topic])
    response = await client.ask(request, version)
    return response, response.responses[0].partitions[0]


async def test_a_fetch_from_a_partition_that_is_elsewhere_names_its_leader(client):
    await follow(client.services, partition_record(topic_id(client), 2, (2,)))
    response, partition = await fetch(client, 16, 2)
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 0)
    assert named(response) == [(2, *OTHER)]
    response, partition = await fetch(client, 12, 2)
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_a_follower_serves_consumers_of_versions_that_know_of_it(client):
    codes = [(await fetch(client, version, 1))[1].error_code for version in (10, 11, 17)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NONE]


async def test_a_fetch_in_a_past_epoch_names_the_present_one(client):
    await follow(client.services, elected(client.services, "t", 1))
    response, partition = await fetch(client, 17, 0, epoch=0)
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (1, 1)
    assert named(response) == [(1, "broker.test", 9092)]


async def test_a_leader_without_an_address_for_the_client_is_named_by_its_id(client):
    await follow(client.services, registered(2, OTHER[1], fenced=True))
    await follow(client.services, partition_record(topic_id(client), 2, (2,)))
    response, partition = await fetch(client, 17, 2)
    assert (partition.current_leader.leader_id, named(response)) == (2, [])


async def test_offsets_and_deletions_are_asked_of_the_leader(client):
    listed = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=1, timestamp=-1)])
    offsets = await client.ask(ListOffsetsRequest(replica_id=-1, topics=[listed]), 7)
    assert offsets.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=1, offset=0)])
    deletion = await client.ask(DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 2)
    assert deletion.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@attrs.frozen
class Described:
    """What an answer says of ``t-1``."""

    code: ErrorCode
    leader: int
    offline: tuple[int, ...]


async def in_metadata(client: WireClient, version: int = 12) -> Described:
    answer = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), version)
    _, partition = answer.topics[0].partitions
    return Described(ErrorCode(partition.error_code), partition.leader_id, tuple(partition.offline_replicas))


async def in_description(client: WireClient) -> Described:
    answer = await client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    _, partition = answer.topics[0].partitions
    return Described(ErrorCode(partition.error_code), partition.leader_id, tuple(partition.offline_replicas))


async def test_all_brokers_are_described_as_the_client_reaches_them(client):
    metadata = await client.ask(MetadataRequest(topics=[]), 12)
    cluster = await client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=1), 1)
    expected = [(1, "broker.test", 9092), (2, *OTHER)]
    assert [(each.node_id, each.host, each.port) for each in metadata.brokers] == expected
    assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == expected
    assert await in_metadata(client) == await in_description(client) == Described(ErrorCode.NONE, 2, ())


async def test_a_leader_that_is_fenced_is_not_available_and_its_replica_is_offline(client):
    await in_metadata(client)
    await follow(client.services, registered(2, OTHER[1], fenced=True))
    for asked, expected in ((False, [(1, False)]), (True, [(1, False), (2, True)])):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=asked
        )
        answer = await client.ask(request, 2)
        assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == expected
    fenced = Described(ErrorCode.LEADER_NOT_AVAILABLE, -1, (2,))
    assert await in_metadata(client) == await in_description(client) == fenced


async def test_a_leader_without_the_listener_has_a_code_of_its_own_for_clients_that_know_it(client):
    await follow(client.services, registered(2, OTHER[1], listener="OTHER"))
    assert await in_metadata(client) == Described(ErrorCode.LISTENER_NOT_FOUND, -1, (2,))
    assert await in_metadata(client, 5) == Described(ErrorCode.LEADER_NOT_AVAILABLE, -1, (2,))


async def test_the_eligible_leaders_are_described(client):
    record = elected(client.services, "t", -1, 1)
    record.isr, record.eligible_leader_replicas, record.last_known_elr = [], [1], [2]
    await follow(client.services, record)
    answer = await client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0)
    _, partition = answer.topics[0].partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([1], [2])
    assert await in_description(client) == Described(ErrorCode.LEADER_NOT_AVAILABLE, -1, ())
