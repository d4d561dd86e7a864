"""ConsumerGroupDescribe (api key 69): the state and the members of KIP-848 groups.

Version notes:

* 1: which protocol a member speaks (KIP-1099).

Source: Kafka's ConsumerGroupDescribeRequest.json and ConsumerGroupDescribeResponse.json.
"""

from __future__ import annotations

from kafka_wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED
from kafka_wire.primitives import Boolean, Int8, Int16, Int32, String, Uuid
from kafka_wire.schema import Request, field, message, struct


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """The groups to describe."""

    group_ids: list[String]
    include_authorized_operations: Boolean


@message(key=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """One description for each group asked for."""

    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedGroup]


@struct
class DescribedGroup:
    """One group; beside an error all but its id is empty. GROUP_ID_NOT_FOUND is answered for a classic group, too.

    ``assignment_epoch`` is behind ``group_epoch`` while a new target is to be computed. ``authorized_operations`` is a
    bit field, or ``OPERATIONS_NOT_REQUESTED``.
    """

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=OPERATIONS_NOT_REQUESTED)


@struct
class Member:
    """One member; ``client_host`` starts with a slash, as Java writes addresses. ``member_type`` is 0 for one that
    speaks the classic protocol, 1 for one that speaks KIP-848's, -1 for unknown.
    """

    member_id: String
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field("1+", default=-1, ignorable=True)


@struct
class Assignment:
    """What a member has, or shall have."""

    topic_partitions: list[TopicPartitions]


@struct
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]
