"""Deletion of records before their retention ends, by moving the log start offset of partitions forward.

Source: Kafka's DeleteRecords API; KIP-107.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.leaders import ask_leaders
from trio_broker.common.topic_partition import TopicPartition


def delete_records(client: KafkaClient, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Refused]:
    """Delete the records before each partition's offset; return the new log start offset, or the error, of each.

    The request is idempotent, so it is repeated after a lost answer.
    """

    def ask(leader: BrokerConnection, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int | Refused]:
        by_topic: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
        for each in partitions:
            wanted = DeleteRecordsPartition(partition_index=each.partition, offset=offsets[each])
            by_topic[each.topic].append(wanted)
        topics = [DeleteRecordsTopic(name=name, partitions=wanted) for name, wanted in by_topic.items()]
        response = client.ask(leader, DeleteRecordsRequest(topics=topics, timeout_ms=client.deadline.remaining_ms))
        found: dict[TopicPartition, int | Refused] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                partition = TopicPartition(topic.name, answer.partition_index)
                refused = Refused(f"partition {partition}", answer.error_code)
                found[partition] = refused if answer.error_code else answer.low_watermark
        return found

    return ask_leaders(client, offsets, ask)
