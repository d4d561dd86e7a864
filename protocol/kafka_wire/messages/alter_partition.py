"""AlterPartition (api key 56): the leader of partitions asks the controller for other in-sync replicas (KIP-497).

Version notes:

* 2: topics by id; INELIGIBLE_REPLICA, NEW_LEADER_ELECTED and UNKNOWN_TOPIC_ID may be answered (KIP-841).
* 3: each in-sync replica with the epoch of its broker (KIP-903).

Source: Kafka's AlterPartitionRequest.json and AlterPartitionResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int8, Int16, Int32, Int64, Uuid
from kafka_wire.schema import Request, field, message, struct


@struct
class BrokerState:
    """A broker, and the epoch of its registration; -1 where that is not checked."""

    broker_id: Int32
    broker_epoch: Int64 = field("3+", default=-1)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    """The broker that leads, in the epoch of its registration, and what it asks for."""

    # Inside the class, because Kafka gives the structs of the response the same names.

    @struct
    class PartitionData:
        """``leader_recovery_state`` is 1 while the leader recovers from an unclean election (KIP-704)."""

        partition_index: Int32
        leader_epoch: Int32
        new_isr: list[Int32] = field("0-2", factory=list)
        new_isr_with_epochs: list[BrokerState] = field("3+", factory=list)
        leader_recovery_state: Int8 = field(default=0)
        partition_epoch: Int32

    @struct
    class TopicData:
        topic_id: Uuid
        partitions: list[AlterPartitionRequest.PartitionData]

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[AlterPartitionRequest.TopicData]


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    """What the controller has written of each partition, if the request as a whole was taken."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    topics: list[TopicData]


@struct
class TopicData:
    topic_id: Uuid
    partitions: list[PartitionData]


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    isr: list[Int32] = field(factory=list)
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32 = field(default=0)
