"""DescribeTopicPartitions (api key 75): topics and partitions page by page (KIP-966).

Java's admin client asks this before it falls back to Metadata.

Version notes:

* 0: flexible from the start.

Source: Kafka's DescribeTopicPartitionsRequest.json and DescribeTopicPartitionsResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.primitives import Boolean, Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """The topics to describe, all of them when the list is empty, from ``cursor`` on.

    ``response_partition_limit`` counts partitions over all topics; the broker has a limit of its own as well.
    """

    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


@struct
class TopicRequest:
    name: String


@struct
class Cursor:
    """The first partition of the next page."""

    topic_name: String
    partition_index: Int32


@message(key=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """One page, topics in order of their names; ``next_cursor`` is None on the last one."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)


@struct
class DescribeTopicPartitionsResponseTopic:
    """One topic, or the part of it that fits on the page.

    ``topic_authorized_operations`` is a bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    error_code: Int16 = field(default=0)
    name: String | None
    topic_id: Uuid
    is_internal: Boolean = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=OPERATIONS_NOT_REQUESTED)


@struct
class DescribeTopicPartitionsResponsePartition:
    """One partition; ``leader_id`` is -1 while it has no leader."""

    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32]
