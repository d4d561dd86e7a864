"""DescribeQuorum: this node leads the metadata log, alone."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_quorum import DescribeQuorumRequest, Listener, Node
from kafka_wire.primitives import NO_UUID
from tests.handlers.admin_client import make_admin_client
from tests.handlers.handler_client import CONNECTION
from tests.handlers.loop_rounds import counted_rounds
from tests.handlers.wire_client import ADVERTISED, WireClient, advertising, broker_config, new_dispatcher
from trio_broker.bootstrap import open_services
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.describe_quorum import describe_quorum, error_response
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime

METADATA = "__cluster_metadata"
VERSIONS = range(3)


def naming(*partitions):
    """A request for these partitions: pairs of topic and index."""
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequest.TopicData(
                topic_name=topic, partitions=[DescribeQuorumRequest.PartitionData(partition_index=index)]
            )
            for topic, index in partitions
        ]
    )


async def ask(wire, version=2):
    """The metadata log's quorum."""
    response = await wire.ask(naming((METADATA, 0)), version)
    assert (response.error_code, response.error_message) == (0, "")
    [topic] = response.topics
    [partition] = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (METADATA, 0)
    assert (partition.error_code, partition.error_message) == (0, "")
    return partition


@pytest.mark.parametrize("version", VERSIONS)
async def test_this_node_leads_and_is_the_only_voter(wire, version):
    quorum = await ask(wire, version)
    node_id = wire.services.node.node_id
    assert quorum.leader_id == node_id
    assert [voter.replica_id for voter in quorum.current_voters] == [node_id]
    assert quorum.observers == []


async def test_the_controller_is_asked_wherever_its_log_is():
    """This client's broker has no metadata log."""
    client = await make_admin_client()
    client.metadata_log.leader_epoch = 7
    [topic] = (await client.ask(describe_quorum, naming((METADATA, 0)), 1)).topics
    assert [(partition.leader_id, partition.leader_epoch) for partition in topic.partitions] == [(1, 7)]


async def test_all_that_was_decided_is_below_the_high_watermark(wire):
    before = await ask(wire)
    await wire.create_topic("orders", partitions=3)
    after = await ask(wire)
    assert after.high_watermark == before.high_watermark + 4  # a record of the topic and one of each partition
    assert after.high_watermark == after.current_voters[0].log_end_offset
    assert after.high_watermark == wire.services.metadata_cache.image.offset + 1


async def test_every_start_leads_in_a_later_epoch(tmp_path):
    epochs = []
    for _ in range(2):
        clock = ManualClock()
        async with open_services(broker_config(tmp_path / "data"), real_runtime(clock), ADVERTISED) as services:
            epochs.append((await ask(WireClient(new_dispatcher(services), clock))).leader_epoch)
    assert epochs == [1, 2]


async def test_the_leader_is_caught_up_now_and_names_its_directory(wire):
    [voter] = (await ask(wire)).current_voters
    now_ms = wire.clock.now_ms()
    properties = wire.services.replicas.log_manager.directories[0].properties
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (now_ms, now_ms)
    assert voter.replica_directory_id == properties.directory_uuid != NO_UUID


@pytest.mark.parametrize("version", [0, 1])
async def test_before_version_2_nothing_is_said_of_directories_and_nodes(wire, version):
    response = await wire.ask(naming((METADATA, 0)), version)
    assert response.topics[0].partitions[0].current_voters[0].replica_directory_id == NO_UUID
    assert response.nodes == []


async def test_before_version_1_nothing_is_said_of_times(wire):
    [voter] = (await ask(wire, 0)).current_voters
    assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (-1, -1)


@pytest.mark.parametrize(("listener", "host"), [("INSIDE", "10.0.0.1"), ("OUTSIDE", CONNECTION.local_host)])
async def test_the_controller_is_reached_where_the_client_reached_the_broker(open_wire_client, listener, host):
    wire = await open_wire_client(advertising({"INSIDE": ("10.0.0.1", 1), "OUTSIDE": ("", 1)}))
    wire.connection = attrs.evolve(CONNECTION, listener_name=listener)
    response = await wire.ask(naming((METADATA, 0)), 2)
    node_id = wire.services.node.node_id
    assert response.nodes == [Node(node_id=node_id, listeners=[Listener(name=listener, host=host, port=1)])]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("topic", "index"), [(METADATA, 1), (METADATA, -1), ("orders", 0), ("", 0)])
async def test_no_other_partition_has_a_quorum(wire, version, topic, index):
    response = await wire.ask(naming((topic, index), (METADATA, 0)), version)
    other, metadata = (each.partitions[0] for each in response.topics)
    assert (other.error_code, other.leader_id, other.current_voters) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, [])
    assert bool(other.error_message) == (version == 2)
    assert metadata.error_code == 0


async def test_other_tasks_run_while_many_partitions_are_refused(wire, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    async with counted_rounds() as rounds:
        await wire.ask(naming(*(("orders", index) for index in range(500))), 2)
    assert rounds.count > 400


def test_a_refusal_is_reported_for_the_whole_request():
    response = error_response(naming((METADATA, 0)), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR))
    assert (response.error_code, response.error_message, response.topics) == (-1, "no", [])
