"""ListPartitionReassignments (api key 46): the partitions that are on the move between brokers (KIP-455).

Version notes:

* 0: flexible from the start.

Source: Kafka's ListPartitionReassignmentsRequest.json and ListPartitionReassignmentsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """The partitions asked about; null stands for all there are."""

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


@struct
class ListPartitionReassignmentsTopics:
    name: String
    partition_indexes: list[Int32]


@message(key=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """Those of the partitions that are on the move."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None
    topics: list[OngoingTopicReassignment]


@struct
class OngoingTopicReassignment:
    name: String
    partitions: list[OngoingPartitionReassignment]


@struct
class OngoingPartitionReassignment:
    """One move: ``replicas`` are all that hold the partition now, those that come and those that leave included."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]
