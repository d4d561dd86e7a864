"""The state of a cluster as etcd has it, for ``trio-broker cluster status``. No broker is asked, and none need run."""

from __future__ import annotations

from trio_broker.cluster.etcd.layout import stored_cluster_id
from trio_broker.cluster.etcd.opening import opened_cluster
from trio_broker.cluster.etcd.snapshots import MAX_STORED_BYTES
from trio_broker.cluster.metadata_copy import image_in
from trio_broker.cluster.metadata_image import NO_LEADER, BrokerImage
from trio_broker.common.cluster_status import BrokerStatus, ClusterStatus, StoreSize
from trio_broker.common.host_port import host_port
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.metadata_store_config import MetadataStoreConfig
from trio_broker.runtime.runtime import Runtime


async def etcd_status(config: MetadataStoreConfig, runtime: Runtime) -> ClusterStatus:
    """Return the state of the cluster that ``metadata.store`` names.

    Raises:
        OSError: etcd refuses or does not answer, or has no cluster there.
        KafkaError, WireError: what is there cannot be read.
    """
    async with opened_cluster(config, runtime) as (store, state):
        # Which refuses a prefix without a cluster.
        store.transactions.require_own(state)
        assert state.cluster is not None, "it is this one"
        image = await image_in(store)
    partitions = {
        TopicPartition(topic.name, index): each
        for topic in image.topics.values()
        for index, each in topic.partitions.items()
    }
    return ClusterStatus(
        cluster_id=stored_cluster_id(state.cluster),
        store=config.metadata_store,
        controller_id=None if state.leader.leader_id == NO_LEADER else state.leader.leader_id,
        epoch=state.epoch,
        end_offset=state.end.offset,
        revision=state.revision,
        size=StoreSize(state.stored_bytes, MAX_STORED_BYTES),
        brokers=[broker_status(each) for _, each in sorted(image.brokers.items())],
        partitions=len(partitions),
        unavailable=sorted(name for name, each in partitions.items() if each.leader == NO_LEADER),
        under_replicated=sum(each.is_under_replicated for each in partitions.values()),
    )


def broker_status(broker: BrokerImage) -> BrokerStatus:
    """One broker as it is registered."""
    addresses = [host_port(each.host, each.port) for each in broker.endpoints]
    return BrokerStatus(broker.broker_id, broker.state, addresses[0] if addresses else None)
