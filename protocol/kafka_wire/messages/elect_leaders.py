"""ElectLeaders (api key 43): elect leaders of partitions, the preferred ones or, at a loss of records, any (KIP-183).

Version notes:

* 1: the type of the election, and an error code for the whole request (KIP-460).
* 2: flexible versions.

Source: Kafka's ElectLeadersRequest.json and ElectLeadersResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int8, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """The partitions that need an election; null stands for all there are.

    ``election_type`` is 0 for the preferred replica and 1 for the first live replica where none in sync is left.
    """

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = field(default=60000)


@struct
class TopicPartitions:
    topic: String
    partitions: list[Int32]


@message(key=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """How each election went. Asked for all, partitions that need none are left out."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


@struct
class ReplicaElectionResult:
    topic: String
    partition_result: list[PartitionResult]


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16 = field(default=0)
    error_message: String | None
