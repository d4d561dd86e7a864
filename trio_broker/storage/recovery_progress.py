"""How far a start is with the logs, as a value: what the log, the readiness, the metrics and the page show.

Source: Kafka's ``remainingLogsToRecover`` and ``remainingSegmentsToRecover``.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class DirectoryRecovery:
    """How far the logs of one data directory are loaded.

    ``segments``, of ``size_bytes`` together, are those that are read whole because the stop before was not clean; both
    are 0 after a clean one. A segment that is being read counts only at its end.
    """

    path: str
    was_clean: bool
    logs: int
    loaded_logs: int
    segments: int
    recovered_segments: int
    size_bytes: int
    recovered_bytes: int

    @property
    def remaining_logs(self) -> int:
        return self.logs - self.loaded_logs

    @property
    def remaining_segments(self) -> int:
        return self.segments - self.recovered_segments

    @property
    def remaining_bytes(self) -> int:
        return self.size_bytes - self.recovered_bytes


@attrs.frozen
class RecoveryProgress:
    """How far all directories are, ``seconds`` after loading began; at the end ``is_over``, and the seconds stay.

    Without ``directories`` nothing is known yet.
    """

    directories: tuple[DirectoryRecovery, ...] = ()
    seconds: float = 0.0
    is_over: bool = False


def progress_text(progress: RecoveryProgress) -> str:
    """``progress`` in one line."""
    directories = progress.directories
    if not directories:
        return "the broker is starting"
    loaded, logs = sum(each.loaded_logs for each in directories), sum(each.logs for each in directories)
    if progress.is_over:
        return f"the broker is starting: {logs:,} logs are loaded"
    recovered, size = sum(each.recovered_bytes for each in directories), sum(each.size_bytes for each in directories)
    verb = "loading" if all(each.was_clean for each in directories) else "recovering"
    read = f", {recovered >> 20:,} of {size >> 20:,} MiB read" if size else ""
    return f"{verb} {loaded:,} of {logs:,} logs{read}, after {progress.seconds:.0f} s"
