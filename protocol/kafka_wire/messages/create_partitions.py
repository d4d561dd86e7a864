"""CreatePartitions (api key 37): give topics more partitions.

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).

Source: Kafka's CreatePartitionsRequest.json and CreatePartitionsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Boolean, Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """The topics to grow; with ``validate_only`` nothing happens but the checks.

    ``timeout_ms`` is how long the answer may wait for the partitions to exist.
    """

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


@struct
class CreatePartitionsTopic:
    """One topic. ``count`` is the new total; ``assignments`` places the added partitions, or is null for the broker to
    choose.
    """

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@struct
class CreatePartitionsAssignment:
    """The brokers to hold one added partition, preferred leader first."""

    broker_ids: list[Int32]


@message(key=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """How each topic fared."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult]


@struct
class CreatePartitionsTopicResult:
    name: String
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
