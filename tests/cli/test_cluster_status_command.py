"""``cluster status``: the controller, how far each broker is behind, and what nobody leads."""

from __future__ import annotations

import json

import pytest

from kafka_wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse, DescribeConfigsResult
from kafka_wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from tests.cli.scripted_commands import run
from tests.fakes.scripted_kafka import HOST, Cluster, ScriptedKafka

NOT_CONTROLLER = 41


def other_kafka(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    """What a broker says that has no ``metadata.store``."""
    [resource] = request.resources
    result = DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    return DescribeConfigsResponse(results=[result])


def quorum() -> DescribeQuorumResponse:
    partition = PartitionData(
        partition_index=0,
        leader_id=1,
        leader_epoch=7,
        high_watermark=120,
        current_voters=[ReplicaState(replica_id=1, log_end_offset=120)],
        observers=[ReplicaState(replica_id=2, log_end_offset=95)],
    )
    return DescribeQuorumResponse(topics=[TopicData(topic_name="__cluster_metadata", partitions=[partition])], nodes=[])


@pytest.fixture
def server():
    """The first of two brokers; the second one is stopped."""
    with ScriptedKafka() as server:
        server.answers |= {
            DescribeQuorumRequest: quorum(),
            DescribeClusterRequest: DescribeClusterResponse(
                throttle_time_ms=0,
                error_code=0,
                error_message=None,
                cluster_id="scripted",
                controller_id=1,
                brokers=[
                    DescribeClusterBroker(broker_id=2, host="two", port=9092, rack=None, is_fenced=True),
                    DescribeClusterBroker(broker_id=1, host=HOST, port=server.port, rack=None),
                ],
            ),
            DescribeConfigsRequest: other_kafka,
        }
        yield server


def test_a_cluster_that_serves_everything_is_shown(server):
    Cluster([server], topics={"t": [1, 1]})
    result = run(server, "cluster", "status")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "cluster: scripted  store: -  controller: 1  epoch: 7  offset: 120",
        "partitions: 2  unavailable: 0  under-replicated: 0",
        f"BROKER  ADDRESS{' ' * (len(server.address) - 7)}  STATE   BEHIND  CONTROLLER",
        f"     1  {server.address}  active       0  yes",
        f"     2  two:9092{' ' * (len(server.address) - 8)}  fenced      25  no",
    ]


def test_a_partition_without_a_leader_ends_it_with_exit_code_1(server):
    Cluster([server], topics={"t": [1, -1]})
    result = run(server, "cluster", "status", "--json")
    assert result.exit_code == 1
    assert result.stderr == "trio-broker: t-1 cannot be written or read: no replica leads\n"
    assert json.loads(result.stdout)["unavailable"] == [{"topic": "t", "partition": 1}]


def test_so_does_a_cluster_without_a_controller(server):
    Cluster([server])
    server.answers[DescribeQuorumRequest] = DescribeQuorumResponse(error_code=NOT_CONTROLLER, topics=[], nodes=[])
    result = run(server, "cluster", "status")
    assert (result.exit_code, result.stderr) == (1, "trio-broker: no broker is the controller\n")
    assert result.stdout.startswith("cluster: scripted  store: -  controller: -  epoch: -  offset: -\n")
