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

from trio_broker.config.config_key import LONG_MAX
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
    total_bytes = sum([segment.size_bytes for segment in segments])
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


@attrs.frozen
class RetentionForecast:
    """When a segment goes, if nothing changes but the time and the size of the log.

    ``reason`` is set when it may go at the next check. ``due_at_ms`` is when its time is over, None without a limit of
    time; ``due_after_bytes`` how much has to be appended before the limit of size takes it, None without one. Records
    that are not yet below the high watermark may keep it longer.
    """

    base_offset: int
    reason: RetentionReason | None
    due_at_ms: int | None
    due_after_bytes: int | None


def retention_forecast(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, high_watermark: int, log_start_offset: int
) -> list[RetentionForecast]:
    """Return when each segment goes, oldest first. A segment never goes before the one in front of it."""
    expired = {
        segment.base_offset: segment.reason
        for segment in expired_segments(
            segments, config, now_ms=now_ms, high_watermark=high_watermark, log_start_offset=log_start_offset
        )
    }
    forecasts = []
    due_at_ms = 0
    bytes_behind = sum(segment.size_bytes for segment in segments)
    by_time = config.cleanup_policy.delete and config.retention_ms >= 0
    by_size = config.cleanup_policy.delete and config.retention_bytes >= 0
    for segment in segments:
        bytes_behind -= segment.size_bytes
        is_last = segment is segments[-1]
        stays = is_last and not segment.size_bytes
        if by_time and not stays:
            due_at_ms = max(due_at_ms, min(segment.timestamp_ms() + config.retention_ms, LONG_MAX))
        forecasts.append(
            RetentionForecast(
                base_offset=segment.base_offset,
                reason=expired.get(segment.base_offset),
                due_at_ms=due_at_ms if by_time and not stays else None,
                # What is appended makes the last segment itself larger, not what is behind it.
                due_after_bytes=max(config.retention_bytes - bytes_behind, 0) if by_size and not is_last else None,
            )
        )
    return forecasts


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
