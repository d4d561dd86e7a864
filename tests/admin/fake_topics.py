"""The topics of a ``FakeBroker``."""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen(kw_only=True)
class PartitionInfo:
    """One partition's log, by its offsets: start ≤ last stable ≤ high watermark ≤ end."""

    partition: int
    leader: int
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


@attrs.frozen
class TopicInfo:
    """One topic; ``configs`` holds only what was set on the topic itself."""

    name: str
    topic_id: str
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str] = attrs.field(factory=dict)
    internal: bool = False
