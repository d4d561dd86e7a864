"""DescribeQuorum (api key 55): who votes on the metadata log, who follows it, and how far each has come (KIP-595).

Version notes:

* 0: flexible from the start.
* 1: when each replica last fetched and was last caught up (KIP-836).
* 2: error messages, the directory of each replica, the nodes and where they listen (KIP-853).

Source: Kafka's DescribeQuorumRequest.json and DescribeQuorumResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import NO_UUID, Int16, Int32, Int64, String, UInt16, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """The partitions to describe. Only the metadata log has a quorum: topic ``__cluster_metadata``, partition 0."""

    # Inside the class, because Kafka gives the structs of the response the same names.

    @struct
    class PartitionData:
        partition_index: Int32

    @struct
    class TopicData:
        topic_name: String
        partitions: list[DescribeQuorumRequest.PartitionData]

    topics: list[DescribeQuorumRequest.TopicData]


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The quorum of each partition, and the nodes that vote."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field("2+", default="", ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field("2+", factory=list)


@struct
class TopicData:
    topic_name: String
    partitions: list[PartitionData]


@struct
class PartitionData:
    """One quorum. With an error, ``leader_id`` is -1 where nobody is known to lead."""

    partition_index: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None = field("2+", default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class ReplicaState:
    """How far a replica has come. Times are the leader's, in milliseconds; -1 for what is not known."""

    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=NO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


@struct
class Node:
    node_id: Int32
    listeners: list[Listener]


@struct
class Listener:
    """Where a controller takes requests."""

    name: String
    host: String
    port: UInt16
