"""Decodes the subscriptions and assignments of a classic group's members for display.

The broker passes these bytes on without validating them, so a member may have sent anything. Bytes that cannot be
decoded are shown as unknown.

Source: ``kafka_wire.consumer_protocol``.
"""

from __future__ import annotations

from kafka_wire.consumer_protocol import decode_assignment, decode_subscription
from kafka_wire.errors import WireError
from trio_broker.common.topic_partition import TopicPartition


def read_subscription(data: bytes) -> tuple[str, ...] | None:
    """Return the topics of a subscription in order, or None if the bytes are not a subscription."""
    try:
        return tuple(sorted(decode_subscription(data).topics))
    except WireError:
        return None


def read_assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of an assignment in order, or None if the bytes are not an assignment."""
    # A member's assignment is empty bytes until the group's leader has sent SyncGroup: no partitions, and no error.
    if not data:
        return ()
    try:
        assigned = decode_assignment(data).assigned_partitions
    except WireError:
        return None
    return tuple(sorted(TopicPartition(each.topic, partition) for each in assigned for partition in each.partitions))
