"""AssignReplicasToDirs (api key 73): a broker says in which of its log directories its replicas are (KIP-858).

Source: Kafka's AssignReplicasToDirsRequest.json and AssignReplicasToDirsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, Int64, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"]):
    """The broker, in the epoch of its registration, and its log directories with replicas in them."""

    # Inside the class, because Kafka gives the structs of the response the same names.

    @struct
    class PartitionData:
        partition_index: Int32

    @struct
    class TopicData:
        topic_id: Uuid
        partitions: list[AssignReplicasToDirsRequest.PartitionData]

    @struct
    class DirectoryData:
        id: Uuid
        topics: list[AssignReplicasToDirsRequest.TopicData]

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[AssignReplicasToDirsRequest.DirectoryData]


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    """Which replicas the controller has taken note of, if the request as a whole was taken."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    directories: list[DirectoryData]


@struct
class DirectoryData:
    id: Uuid
    topics: list[TopicData]


@struct
class TopicData:
    topic_id: Uuid
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16 = field(default=0)
