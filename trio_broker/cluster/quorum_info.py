"""What DescribeQuorum says of the metadata log.

Source: Kafka's QuorumInfo.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class QuorumInfo:
    """The leader, and how far it has come: the only voter. ``observers`` has how far each other broker in contact has
    come, by its last heartbeat.

    ``directory_id`` is that of the leader's log directory, zero if that has none.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    directory_id: bytes
    observers: Mapping[int, int] = attrs.field(factory=dict)
