"""The partitions whose records may be deleted by offset, as DeleteRecords and the admin API ask for it.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.common.topic_names import is_internal_topic
from trio_broker.handlers.support.partitions import partition_here
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.partition.partition import Partition


def deletable_partition(services: BrokerServices, topic: str, index: int) -> Partition:
    """Return a partition whose log start may be moved, if it is led here.

    Raises:
        KafkaError: those of ``partition_here``; it is of an internal topic.
    """
    # As in Kafka: compaction cleans internal topics, and without their records the groups would lose their offsets.
    if is_internal_topic(topic):
        raise KafkaError(f"{topic} is internal", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
    return partition_here(services, topic, index)
