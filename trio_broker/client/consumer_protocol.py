"""Decodes the subscriptions and assignments of a classic group's members for display.

The broker does not validate these bytes, so a member may have sent anything: what does not decode is shown as unknown.

Source: ``kafka_wire.consumer_protocol``.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.consumer_protocol import decode_assignment, decode_subscription
from kafka_wire.errors import WireError
from trio_broker.topic_partition import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of groups whose members speak this."""


def read_subscription(data: bytes) -> tuple[str, ...] | None:
    """Return the topics of a subscription in order, or None where the bytes are none."""
    try:
        return tuple(sorted(decode_subscription(data).topics))
    except WireError:
        return None


def read_assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of an assignment in order, or None where the bytes are none.

    No bytes are an empty assignment, as members have it until the leader has sent SyncGroup.
    """
    if not data:
        return ()
    try:
        assigned = decode_assignment(data).assigned_partitions
    except WireError:
        return None
    return tuple(sorted(TopicPartition(each.topic, partition) for each in assigned for partition in each.partitions))
