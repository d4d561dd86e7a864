"""What the members of a classic group told each other, as far as it can be shown.

To the broker these are bytes, and whoever sent them may have sent anything: what does not decode is shown as unknown.

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

    No bytes at all are an assignment of nothing: so it stands until the leader of the group has spoken.
    """
    if not data:
        return ()
    try:
        assigned = decode_assignment(data).assigned_partitions
    except WireError:
        return None
    return tuple(sorted(TopicPartition(each.topic, partition) for each in assigned for partition in each.partitions))
