"""What the page of disks says in sentences: pure functions."""

from __future__ import annotations

from broker_admin.texts import bytes_text, duration_text, number_text
from broker_admin.views.node.storage import DirectoryReport, RecoverySummary, RetentionOutlook


def forecast_text(directory: DirectoryReport) -> str:
    """When a disk will be full, or why that cannot be said."""
    seen = duration_text(directory.sampled_seconds)
    if directory.full_in_seconds is not None:
        days = directory.full_in_seconds / 86_400
        when = f"{days:.0f} days" if days >= 2 else duration_text(directory.full_in_seconds)
        return f"Full in ~{when}, if it goes on as in the last {seen}: {growth_text(directory)}."
    match directory.growth:
        case "none":
            return f"It does not fill up: over the last {seen} it would take more than a year."
        case "unsteady":
            return f"It fills and empties in turns; no forecast from the last {seen}."
        case _:
            return "Too early to tell when it will be full: that takes five minutes of samples."


def growth_text(directory: DirectoryReport) -> str:
    """Which files a disk fills up with."""
    logs = directory.log_growth_bytes_per_second or 0.0
    others = (directory.growth_bytes_per_second or 0.0) - logs
    return f"logs grow by {bytes_text(max(0.0, logs))}/s, other files by {bytes_text(max(0.0, others))}/s"


def retention_text(outlook: RetentionOutlook, now_ms: int) -> str:
    """What retention takes next, and when."""
    if outlook.next_check_at_ms is None:
        return "Never: log.retention.check.interval.ms is the largest number there is."
    check = f"in {duration_text(max(0, outlook.next_check_at_ms - now_ms) / 1000)}"
    then = ""
    if outlook.then_due_at_ms is not None:
        waits = duration_text(max(0, outlook.then_due_at_ms - now_ms) / 1000)
        then = f" The next segment after that is due in {waits} ({outlook.then_partition})."
    if not outlook.segments:
        return f"The next check, {check}, deletes nothing.{then}"
    segments = f"{number_text(outlook.segments)} segment{'s' if outlook.segments > 1 else ''}"
    partitions = f"{number_text(outlook.partitions)} partition{'s' if outlook.partitions > 1 else ''}"
    return f"Next: {segments} of {partitions}, {bytes_text(outlook.size_bytes)}, {check}.{then}"


def recovery_text(recovery: RecoverySummary) -> str:
    """How the last start found the logs."""
    if not recovery.logs and not recovery.unopened:
        return "There were no logs to open."
    opened = f"{number_text(recovery.logs)} logs were opened in {recovery.seconds:.1f} s"
    if recovery.was_clean:
        return f"The stop before it was clean: {opened}, and nothing had to be checked."
    return (
        f"The stop before it was not clean: {opened}; {number_text(recovery.recovered_logs)} were checked in "
        f"{number_text(recovery.recovered_segments)} segments, and {bytes_text(recovery.cut_bytes)} of torn batches "
        "were cut off."
    )
