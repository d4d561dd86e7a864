"""DeleteTopics (api key 20): delete topics by name or by id.

Version notes:

* 1: the oldest one served; has throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: TOPIC_DELETION_DISABLED may be answered.
* 4: flexible versions.
* 5: error messages; THROTTLING_QUOTA_EXCEEDED may be answered (KIP-599).
* 6: ``topics`` with names or ids in place of ``topic_names`` (KIP-516).

Source: Kafka's DeleteTopicsRequest.json and DeleteTopicsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import NO_UUID, Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """The topics to delete: ``topic_names`` up to version 5, ``topics`` from 6 on.

    ``timeout_ms`` is how long the answer may wait for the topics to be gone.
    """

    topics: list[DeleteTopicState] = field("6+", factory=list)
    topic_names: list[String] = field("0-5", factory=list, ignorable=True)
    timeout_ms: Int32


@struct
class DeleteTopicState:
    """One topic, by name, or by id with a null name."""

    name: String | None = field(default=None)
    topic_id: Uuid


@message(key=20, versions="1-6", flexible="4+")
class DeleteTopicsResponse:
    """How each topic fared."""

    throttle_time_ms: Int32 = field(default=0)
    responses: list[DeletableTopicResult]


@struct
class DeletableTopicResult:
    """One topic, gone or not; the name is null when an id was asked for and is not known."""

    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=NO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field("5+", default=None, ignorable=True)
