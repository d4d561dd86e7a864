"""How far a start is with the logs, as Prometheus metrics. Once they are loaded all is 0, but the seconds stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from trio_broker.storage.recovery_progress import DirectoryRecovery, RecoveryProgress

OF_DIRECTORIES: Mapping[str, tuple[str, Callable[[DirectoryRecovery], int]]] = {
    "logs": ("Logs that the start has yet to load", lambda each: each.remaining_logs),
    "segments": ("Segments that the start has yet to read whole", lambda each: each.remaining_segments),
    "bytes": ("Bytes of those segments", lambda each: each.remaining_bytes),
}
"""By the last part of their name: what it is, and its value."""


def recovery_metrics(prefix: str, progress: RecoveryProgress) -> Iterator[Metric]:
    """What remains in each data directory, and the seconds so far."""
    for name, (documentation, value) in OF_DIRECTORIES.items():
        family = GaugeMetricFamily(f"{prefix}_recovery_remaining_{name}", documentation, labels=["directory"])
        for each in progress.directories:
            family.add_metric([each.path], value(each))
        yield family
    yield GaugeMetricFamily(
        f"{prefix}_recovery_seconds", "Seconds of loading logs at the start", value=progress.seconds
    )
