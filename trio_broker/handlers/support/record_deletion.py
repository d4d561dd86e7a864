"""Deletion of the records before an offset, as DeleteRecords and the admin API ask for it.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.topic_names import is_internal_topic


async def delete_records_before(
    replicas: ReplicaManager, topic: str, index: int, offset: int, *, validate_only: bool = False
) -> int:
    """Move one log start offset up to ``offset``, -1 for the high watermark; return where it stands, or would stand.

    Raises:
        KafkaError: there is no such partition, it is of an internal topic, or the replica manager refuses.
    """
    # As in Kafka: compaction cleans internal topics, and without their records the groups would lose their offsets.
    if is_internal_topic(topic):
        raise KafkaError(f"{topic} is internal", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = replicas.topic(topic).partition(index)
    return await replicas.delete_records(partition, offset, validate_only=validate_only)
