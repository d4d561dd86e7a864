"""The state of a cluster as its brokers say it: who is the controller, how far each has read, what is not served.

Source: Kafka's DescribeCluster (KIP-700, KIP-1073), DescribeQuorum (KIP-595) and Metadata.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.messages.describe_cluster import DescribeClusterBroker
from kafka_wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData
from trio_broker.client.cluster import registered_brokers
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.errors import Refused, check
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topics import list_topics
from trio_broker.common.cluster_status import BrokerStatus, ClusterStatus, RegistrationState, is_under_replicated
from trio_broker.common.host_port import host_port
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.common.topic_partition import TopicPartition

METADATA_STORE: Final = "metadata.store"
"""The setting of a broker of ours; any other has none."""


def describe_status(client: KafkaClient) -> ClusterStatus:
    """Return the state of the cluster.

    Raises:
        ClientError: no broker answers, or one is too old for DescribeCluster.
    """
    topics = list_topics(client)
    described = registered_brokers(client)
    quorum = metadata_quorum(client)
    partitions = {TopicPartition(topic.name, each.index): each for topic in topics for each in topic.partitions}
    return ClusterStatus(
        cluster_id=described.cluster_id,
        store=metadata_store(client),
        controller_id=quorum.leader_id if quorum is not None and quorum.leader_id >= 0 else None,
        epoch=None if quorum is None else quorum.leader_epoch,
        end_offset=None if quorum is None else quorum.high_watermark,
        brokers=[broker_status(each, quorum) for each in sorted(described.brokers, key=lambda each: each.broker_id)],
        partitions=len(partitions),
        unavailable=sorted(name for name, each in partitions.items() if each.leader_id < 0),
        under_replicated=sum(is_under_replicated(each.replicas, each.in_sync_replicas) for each in partitions.values()),
    )


def metadata_quorum(client: KafkaClient) -> PartitionData | None:
    """Who leads the metadata log, and how far the others have read it; None while nobody does."""
    asked = DescribeQuorumRequest.TopicData(
        topic_name=CLUSTER_METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    try:
        response = client.ask(client.any_broker(), DescribeQuorumRequest(topics=[asked]))
        check("DescribeQuorum", response.error_code)
    except Refused:
        return None
    [topic] = response.topics
    [partition] = topic.partitions
    return None if partition.error_code else partition


def metadata_store(client: KafkaClient) -> str | None:
    """Where the brokers have their metadata, as one of them is set; None of other brokers than ours."""
    nodes = client.brokers().nodes
    if not nodes:
        return None
    broker = Resource(ConfigResourceType.BROKER, str(nodes[0].node_id))
    [entries] = describe_configs(client, [broker], [METADATA_STORE]).values()
    return next((each.value for each in entries if each.name == METADATA_STORE), None)


def broker_status(broker: DescribeClusterBroker, quorum: PartitionData | None) -> BrokerStatus:
    """One broker, and by ``quorum`` how many records of the metadata it has not read yet."""
    replicas = [] if quorum is None else [*quorum.current_voters, *quorum.observers]
    ends = [each.log_end_offset for each in replicas if each.replica_id == broker.broker_id]
    behind = max(quorum.high_watermark - ends[0], 0) if quorum is not None and ends else None
    state = RegistrationState.FENCED if broker.is_fenced else RegistrationState.ACTIVE
    return BrokerStatus(broker.broker_id, state, host_port(broker.host, broker.port), behind)
