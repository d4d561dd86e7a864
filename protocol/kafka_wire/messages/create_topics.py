"""CreateTopics (api key 19): create topics, or check whether they could be.

Version notes:

* 2: the oldest one served; per-topic error messages and ``validate_only`` are older.
* 3: a throttled broker answers first and then pauses (KIP-219).
* 4: partitions and replication factor may be -1, the broker's defaults (KIP-464).
* 5: flexible versions; the answer shows the topic as created, configs included (KIP-525).
* 6: THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).
* 7: the answer has the topic id (KIP-516).

Source: Kafka's CreateTopicsRequest.json and CreateTopicsResponse.json.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.primitives import NO_UUID, Boolean, Int8, Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct

BROKER_DEFAULT: Final = -1
"""As a number of partitions or a replication factor: the broker's own setting counts (KIP-464)."""


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """The topics to create; with ``validate_only`` nothing happens but the checks.

    ``timeout_ms`` is how long the answer may wait for the topics to exist.
    """

    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Boolean = field(default=False)


@struct
class CreatableTopic:
    """One topic, either by counts or by explicit ``assignments``; with those, both counts are -1."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@struct
class CreatableReplicaAssignment:
    """The brokers to hold one partition, preferred leader first."""

    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    """One config key of the new topic; a null value means the default."""

    name: String
    value: String | None


@message(key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    """How each topic fared."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[CreatableTopicResult]


@struct
class CreatableTopicResult:
    """One topic as created, or the reason why not.

    ``topic_config_error_code`` says why ``configs`` is missing, for a client that may create but not describe.
    """

    name: String
    topic_id: Uuid = field("7+", default=NO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", factory=list, ignorable=True)


@struct
class CreatableTopicConfigs:
    """One config of the new topic, as DescribeConfigs would show it."""

    name: String
    value: String | None
    read_only: Boolean
    config_source: Int8 = field(default=-1)
    is_sensitive: Boolean
