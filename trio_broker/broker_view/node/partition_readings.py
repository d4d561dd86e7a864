"""Every partition of a running broker as ``/metrics`` shows it."""

from __future__ import annotations

from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.snapshot import PartitionReading


async def partition_readings(services: BrokerServices) -> list[PartitionReading]:
    """The partitions that are here, by topic; ten thousand of them are read in turns."""
    readings = []
    image = services.metadata_cache.image
    async for partition in InTurns(list(services.replicas.partitions())):
        name, index = partition.topic_partition.topic, partition.topic_partition.partition
        topic = image.topics.get(name)
        state = None if topic is None or topic.topic_id != partition.topic_id else topic.partitions.get(index)
        if state is None:
            continue  # deleted a moment ago
        readings.append(
            PartitionReading(
                topic=name,
                partition=index,
                leader=state.leader,
                is_led=partition.state.is_leader,
                preferred_leader=state.replicas[0],
                replica_count=len(state.replicas),
                in_sync_replica_count=len(state.isr),
                min_in_sync_replicas=partition.state.min_in_sync_replicas,
                log_start_offset=partition.log_start_offset,
                last_stable_offset=partition.last_stable_offset,
                high_watermark=partition.high_watermark,
                log_end_offset=partition.log_end_offset,
                size_bytes=partition.log.size_bytes,
                segment_count=len(partition.log.segments),
                producer_ids=len(partition.producers.producers),
                appended_records=partition.appended_records,
                appended_bytes=partition.appended_bytes,
                fetched_bytes=partition.fetched_bytes,
            )
        )
    return readings
