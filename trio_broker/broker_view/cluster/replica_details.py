"""The replicas of a partition for the admin app, and why one of them is not in sync. Pure functions."""

from __future__ import annotations

import math

from broker_admin.views.cluster.topics import PartitionDetail, ReplicaDetail
from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage
from trio_broker.common.cluster_status import RegistrationState
from trio_broker.partition.partition import Partition
from trio_broker.partition.remote_replicas import UNKNOWN_OFFSET, Replica


def partition_detail(index: int, state: PartitionImage) -> PartitionDetail:
    """What the metadata say of a partition."""
    return PartitionDetail(
        partition=index,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        in_sync_replicas=state.isr,
        eligible_leaders=state.eligible_leader_replicas,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
    )


def replica_details(
    image: MetadataImage, state: PartitionImage, partition: Partition, now: float
) -> tuple[ReplicaDetail, ...]:
    """The replicas in their order, as the leader sees them, which is this broker; ``now`` is monotonic."""
    end, known = partition.log_end_offset, partition.writer.state.remote.replicas
    return tuple(replica_detail(image, state, each, known.get(each), end, now) for each in state.replicas)


def replica_detail(
    image: MetadataImage, state: PartitionImage, broker_id: int, replica: Replica | None, end: int, now: float
) -> ReplicaDetail:
    """One replica; ``replica`` is what the leader knows of it, None for the leader itself."""
    in_sync = broker_id in state.isr
    if replica is None:
        offset = end if broker_id == state.leader else None
        caught_up_ago = 0.0 if offset is not None else None
    else:
        offset = None if replica.log_end_offset == UNKNOWN_OFFSET else replica.log_end_offset
        caught_up_ago = None if math.isinf(replica.last_caught_up) else max(0.0, now - replica.last_caught_up)
        if offset is not None and offset >= end:
            caught_up_ago = 0.0
    lag = None if offset is None else max(0, end - offset)
    return ReplicaDetail(
        broker_id=broker_id,
        in_sync=in_sync,
        log_end_offset=offset,
        lag_records=lag,
        caught_up_seconds_ago=caught_up_ago,
        reason="" if in_sync else reason_out_of_sync(image, state, broker_id, lag),
    )


def reason_out_of_sync(image: MetadataImage, state: PartitionImage, broker_id: int, lag_records: int | None) -> str:
    """Why a replica is not in sync; ``lag_records`` as its leader knows it."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        return f"broker {broker_id} is not registered"
    if broker.state is RegistrationState.FENCED:
        return f"broker {broker_id} is fenced: out of contact"
    if broker.state is RegistrationState.STOPPING:
        return f"broker {broker_id} is stopping"
    if not broker.has_online(state.directory_of(broker_id)):
        return f"its log directory on broker {broker_id} failed"
    if broker_id in state.adding_replicas:
        return "it is being added"
    if lag_records is None:
        return f"broker {broker_id} has not fetched it from its leader"
    if lag_records:
        return f"it is behind by {lag_records:,} records"
    return "it has caught up, and is about to join"
