"""Which of a log's oldest segments may go: a decision over facts, with the time as a value.

Three rules; the first that holds gives the reason. They are applied oldest first and stop at the first segment that
none holds for, so that a log only ever loses its beginning. A segment must lie wholly below the high watermark:
records that are not yet safe on all replicas are not old.

* log start: the segment ends at or before the log start offset (DeleteRecords moved it), and is not the last one;
* size: without it the log would still have ``retention.bytes``;
* time: its largest timestamp is more than ``retention.ms`` ago. Wall clock against message time: a record dated in
  the future keeps its segment until then.

Source: Kafka's UnifiedLog.deleteOldSegments; docs/formats/segment.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import attrs

from trio_broker.config.log_config import LogConfig


class RetentionReason(enum.Enum):
    """Why a segment may go."""

    LOG_START = "before the log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@attrs.frozen
class SegmentFacts:
    """What the decision needs to know of one segment.

    ``end_offset`` is exclusive. ``timestamp_ms`` gives the largest timestamp, or the file's time where there is none;
    a function, since it may have to be read and most often is not asked for.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    timestamp_ms: Callable[[], int]


@attrs.frozen
class ExpiredSegment:
    """A segment that is no longer part of its log."""

    base_offset: int
    end_offset: int
    size_bytes: int
    reason: RetentionReason


def expired_segments(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int
) -> list[ExpiredSegment]:
    """Return the segments that may go now, oldest first. An empty last segment always stays."""
    retired: list[ExpiredSegment] = []
    total_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments:
        is_last = segment is segments[-1]
        if segment.end_offset > high_watermark or (is_last and not segment.size_bytes):
            break
        reason = _reason(segment, config, now_ms, total_bytes, -1 if is_last else log_start_offset)
        if reason is None:
            break
        retired.append(ExpiredSegment(segment.base_offset, segment.end_offset, segment.size_bytes, reason))
        total_bytes -= segment.size_bytes
    return retired


def _reason(
    segment: SegmentFacts, config: LogConfig, now_ms: int, total_bytes: int, log_start_offset: int
) -> RetentionReason | None:
    if segment.end_offset <= log_start_offset:
        return RetentionReason.LOG_START
    if not config.cleanup_policy.delete:
        return None
    if config.retention_bytes >= 0 and total_bytes - config.retention_bytes >= segment.size_bytes:
        return RetentionReason.SIZE
    if config.retention_ms >= 0 and now_ms - segment.timestamp_ms() > config.retention_ms:
        return RetentionReason.TIME
    return None
