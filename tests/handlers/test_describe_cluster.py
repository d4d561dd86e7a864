"""DescribeCluster: the nodes, the id, the controller."""

from __future__ import annotations

import re

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_cluster import DescribeClusterRequest
from tests.fakes.followed_metadata import registered
from tests.fakes.images import image_after
from tests.handlers.admin_client import make_admin_client
from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import ADVERTISED, advertising
from trio_broker.handlers.describe_cluster import describe_cluster, error_response
from trio_broker.handlers.support.services import NodeInfo

VERSIONS = range(3)

CLUSTER_BITS = 0b0001_1111_1010_0000
NOT_ASKED_FOR = -(2**31)


def request(**options) -> DescribeClusterRequest:
    return DescribeClusterRequest(**{"include_cluster_authorized_operations": False, **options})


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_one_node_is_reported_with_its_address_and_rack(open_wire_client, version):
    wire = await open_wire_client(broker_rack="cellar")
    response = await wire.ask(request(), version)
    [broker] = response.brokers
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (
        wire.services.node.node_id,
        "broker.test",
        9092,
        "cellar",
    )
    assert response.error_code == ErrorCode.NONE


async def test_every_broker_with_a_listener_of_that_name_is_described():
    client = await make_admin_client()
    client.node = NodeInfo(1, "cluster", None, ADVERTISED)
    listeners = {1: "PLAINTEXT", 2: "PLAINTEXT", 3: "OUTSIDE"}
    cache = client.controller.loader.publisher.cache
    cache.image = image_after(cache.image, *(registered(each, 9092, listener=name) for each, name in listeners.items()))
    response = await client.ask(describe_cluster, request(), 1)
    assert [broker.broker_id for broker in response.brokers] == [1, 2]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_controller_is_a_live_broker(wire, version):
    response = await wire.ask(request(), version)
    assert response.controller_id == response.brokers[0].broker_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_cluster_id_is_that_of_metadata_22_characters_long(wire, version):
    response = await wire.ask(request(), version)
    assert response.cluster_id == wire.services.node.cluster_id
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", response.cluster_id)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("listener", "host"), [("INSIDE", "10.0.0.1"), ("OUTSIDE", "kafka.example.org")])
async def test_the_address_is_that_of_the_listener_asked(open_wire_client, version, listener, host):
    wire = await open_wire_client(advertising({"INSIDE": ("10.0.0.1", 1), "OUTSIDE": ("kafka.example.org", 2)}))
    wire.connection = attrs.evolve(CONNECTION, listener_name=listener)
    assert (await wire.ask(request(), version)).brokers[0].host == host


@pytest.mark.parametrize("version", VERSIONS)
async def test_operations_are_reported_only_when_asked_for(wire, version):
    unasked = await wire.ask(request(), version)
    asked = await wire.ask(request(include_cluster_authorized_operations=True), version)
    assert (unasked.cluster_authorized_operations, asked.cluster_authorized_operations) == (NOT_ASKED_FOR, CLUSTER_BITS)


@pytest.mark.parametrize("version", range(1, 3))
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE), (3, 115)],
)
async def test_a_brokers_listener_knows_no_other_endpoints(wire, version, endpoint_type, code):
    response = await wire.ask(request(endpoint_type=endpoint_type), version)
    assert response.error_code == code
    assert (response.brokers, response.cluster_id) == ([], "")
    assert response.error_message


def test_a_refusal_says_why():
    response = error_response(request(), KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert (response.error_code, response.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "no")
