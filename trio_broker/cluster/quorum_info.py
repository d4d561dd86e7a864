"""What DescribeQuorum says of the metadata log.

Source: Kafka's QuorumInfo.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class QuorumInfo:
    """The leader, and how far it has come: the only voter, with no observers.

    ``directory_id`` is that of its log directory, zero if that has none.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    directory_id: bytes
