"""The cluster as a whole: its brokers, the API versions that each broker serves, and the enabled features.

Source: Kafka's Metadata, ApiVersions and DescribeCluster APIs; KIP-584 for features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kafka_wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kafka_wire.schema import VersionRange
from trio_broker.client.connection import Feature
from trio_broker.client.errors import ClientError, check
from trio_broker.client.kafka_client import KafkaClient, Node

WITH_FENCED_BROKERS: Final = 2
"""The version of DescribeCluster that names them (KIP-1073)."""


@attrs.frozen
class BrokerDescription:
    """One broker. If no connection could be made, ``problem`` says why, and ``served`` and ``features`` are empty."""

    node: Node
    served: Mapping[int, VersionRange]
    features: tuple[Feature, ...]
    problem: ClientError | None


@attrs.frozen
class ClusterDescription:
    """The cluster; ``controller_id`` is the broker to send changes to, or -1 if the cluster names none."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerDescription, ...]


def describe_cluster(client: KafkaClient) -> ClusterDescription:
    """Return the cluster, with the versions and features that each broker reported when it was connected to.

    Raises:
        ClientError: no broker answered.
    """
    brokers = client.attempt(client.brokers)
    nodes = sorted(brokers.nodes, key=lambda node: node.node_id)
    return ClusterDescription(
        cluster_id=brokers.cluster_id,
        controller_id=brokers.controller_id,
        brokers=tuple(_describe(client, node) for node in nodes),
    )


def registered_brokers(client: KafkaClient) -> DescribeClusterResponse:
    """Return all brokers that are part of the cluster, dead or alive.

    Raises:
        ClientError: no broker answers, or the one that was asked is too old to name those that are fenced.
    """
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    response = client.ask(client.any_broker(), request, at_least=WITH_FENCED_BROKERS)
    check("DescribeCluster", response.error_code, response.error_message)
    return response


def _describe(client: KafkaClient, node: Node) -> BrokerDescription:
    # Connecting is enough: the first exchange on every connection is ApiVersions, which reports versions and features.
    try:
        connection = client.node(node.node_id)
    except ClientError as error:
        return BrokerDescription(node, {}, (), error)
    return BrokerDescription(node, connection.served, connection.features, None)
