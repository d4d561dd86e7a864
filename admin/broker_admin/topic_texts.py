"""What the pages of topics say in words: retention, rates, when a segment goes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker_admin.texts import bytes_text, duration_text, number_text
from broker_admin.views.cluster.topics import TopicSummary
from broker_admin.views.node.topic_segments import SegmentDetail


def rate_text(per_second: float) -> str:
    """A rate to about three digits: ``0``, ``0.25``, ``12.5``, ``3 210``."""
    if per_second == 0:
        return "0"
    if per_second < 10:
        return f"{per_second:.2f}"
    return f"{per_second:.1f}" if per_second < 100 else number_text(round(per_second))


def span_text(seconds: float) -> str:
    """A duration without a second unit of zero: ``7 d``, ``1 d 4 h``."""
    return re.sub(r"^(.+) 0 \w+$", r"\1", duration_text(seconds))


def retention_text(topic: TopicSummary) -> str:
    """How long records stay: ``7 d``, ``7 d or 1.0 GiB``, ``compacted``."""
    limits = []
    if topic.retention_ms >= 0:
        limits.append(span_text(topic.retention_ms / 1000))
    if topic.retention_bytes >= 0:
        limits.append(f"{bytes_text(topic.retention_bytes)} a partition")
    text = " or ".join(limits) or "for ever"
    if "compact" in topic.cleanup_policy:
        return f"compacted, {text}" if "delete" in topic.cleanup_policy else "compacted"
    return text


def kept_text(configs: Mapping[str, str]) -> str:
    """How long records of a topic with these settings stay: longer than retention says, since segments go whole."""
    if "delete" not in configs["cleanup.policy"]:
        return "The newest record of each key stays for ever."
    retention_ms, retention_bytes = int(configs["retention.ms"]), int(configs["retention.bytes"])
    if retention_ms < 0 and retention_bytes < 0:
        return "Records stay for ever."
    parts = []
    if retention_ms >= 0:
        longest_ms = retention_ms + int(configs["segment.ms"])
        parts.append(
            f"Records stay {span_text(retention_ms / 1000)}, and where few are written up to"
            f" {span_text(longest_ms / 1000)}, because they are deleted by whole segments (segment.ms)."
        )
    if retention_bytes >= 0:
        segment = bytes_text(int(configs["segment.bytes"]))
        parts.append(f"Each partition keeps the newest {bytes_text(retention_bytes)}, and up to {segment} more.")
    return " ".join(parts)


def segment_end_text(segment: SegmentDetail, now_ms: int) -> str:
    """What retention does to a segment, and when."""
    if segment.retention_reason is not None:
        return f"goes at the next check: {segment.retention_reason}"
    parts = []
    if segment.retention_due_at_ms is not None:
        seconds = (segment.retention_due_at_ms - now_ms) / 1000
        parts.append(f"in {span_text(seconds)}" if seconds > 0 else "at the next check")
    if segment.retention_due_after_bytes is not None:
        parts.append(f"after {bytes_text(segment.retention_due_after_bytes)} more")
    return " or ".join(parts) or "stays"
