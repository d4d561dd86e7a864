"""DeleteGroups (api key 42): delete groups that are empty, with their offsets (KIP-229).

Version notes:

* 1: a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.
* 3: why a group was not deleted.

Source: Kafka's DeleteGroupsRequest.json and DeleteGroupsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """The groups to delete; the field's odd name is Kafka's."""

    groups_names: list[String]


@message(key=42, versions="0-3", flexible="2+")
class DeleteGroupsResponse:
    """How each group fared."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult]


@struct
class DeletableGroupResult:
    group_id: String
    error_code: Int16 = field(default=0)
    error_message: String | None = field("3+", default=None, ignorable=True)
