"""ListGroups (api key 16): the groups this broker coordinates.

Version notes:

* 1: throttle time.
* 2: a throttled broker answers first and then pauses (KIP-219).
* 3: flexible versions.
* 4: filter by state, and the state in the answer (KIP-518).
* 5: filter by type, and the type in the answer (KIP-848).

Source: Kafka's ListGroupsRequest.json and ListGroupsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Which states and types of group to list; an empty filter lets everything through."""

    states_filter: list[String] = field("4+", factory=list)
    types_filter: list[String] = field("5+", factory=list)


@message(key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: list[ListedGroup]


@struct
class ListedGroup:
    """One group. ``group_state`` is Kafka's word for it, such as ``Stable``; ``group_type`` is ``classic``,
    ``consumer``, ``share`` or ``streams``.
    """

    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)
