"""How full the disks of the data directories are, over the last day, and when they will be full.

A forecast is a straight line through what was sampled. It is given only where a line describes it: after some minutes,
and not for a disk that fills and empties in turns, as one does on which retention deletes whole segments.
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from statistics import fmean

import attrs

from trio_broker.storage.log_directory import LogDirectory

DISK_USAGE_INTERVAL_MS = 30_000
"""Between two samples: one system call for each directory."""

MAX_SAMPLES = 2880
"""A day; some 300 KB for each directory."""

MIN_SAMPLES = 10
"""Five minutes: a line through fewer is noise."""

MIN_FIT = 0.8
"""The share of the variation (R squared) that the line has to explain."""

FORECAST_SECONDS = 365 * 86_400
"""Beyond a year a forecast says nothing."""


class Growth(enum.Enum):
    """What the samples of a disk look like."""

    UNKNOWN = "unknown"
    """There are too few samples."""
    UNSTEADY = "unsteady"
    """It fills and empties in turns."""
    STEADY = "steady"
    """It fills evenly: it will be full."""
    NONE = "none"
    """It does not grow, or so slowly that it will not be full within a year."""


@attrs.frozen
class DiskUsageSample:
    """Bytes of a disk that are taken, by whatever program; ``log_bytes`` of them by the logs of a data directory."""

    at_ms: int
    used_bytes: int
    log_bytes: int


@attrs.frozen
class DiskForecast:
    """When a disk will be full, from samples of ``sampled_seconds``.

    ``full_in_seconds`` is None unless the growth is STEADY; ``bytes_per_second``, and what of it is of logs, are None
    where it is UNKNOWN.
    """

    growth: Growth
    sampled_seconds: float
    bytes_per_second: float | None = None
    log_bytes_per_second: float | None = None
    full_in_seconds: float | None = None


def forecast_disk(samples: Sequence[DiskUsageSample], usable_bytes: int) -> DiskForecast:
    """When a disk with ``usable_bytes`` left is full, by ``samples``, oldest first."""
    if len(samples) < MIN_SAMPLES or samples[-1].at_ms <= samples[0].at_ms:
        return DiskForecast(Growth.UNKNOWN, sampled_seconds=0.0 if not samples else seconds_of(samples))
    # Relative to the first sample: squares of milliseconds since 1970 and of terabytes would lose their last digits.
    times = [(each.at_ms - samples[0].at_ms) / 1000 for each in samples]
    slope, fit = line_through(times, [float(each.used_bytes - samples[0].used_bytes) for each in samples])
    log_slope, _ = line_through(times, [float(each.log_bytes - samples[0].log_bytes) for each in samples])
    found = partial(
        DiskForecast, sampled_seconds=seconds_of(samples), bytes_per_second=slope, log_bytes_per_second=log_slope
    )
    if fit is None or (slope > 0 and usable_bytes / slope > FORECAST_SECONDS):
        return found(Growth.NONE)
    if fit < MIN_FIT:
        return found(Growth.UNSTEADY)
    return found(Growth.NONE) if slope <= 0 else found(Growth.STEADY, full_in_seconds=usable_bytes / slope)


def line_through(times: Sequence[float], sizes: Sequence[float]) -> tuple[float, float | None]:
    """The slope of the line that fits best, and the share of the variation that it explains; None without any."""
    mean_time, mean_size = fmean(times), fmean(sizes)
    time_variance = sum((time - mean_time) ** 2 for time in times)
    size_variance = sum((size - mean_size) ** 2 for size in sizes)
    covariance = sum((time - mean_time) * (size - mean_size) for time, size in zip(times, sizes, strict=True))
    return covariance / time_variance, covariance**2 / (time_variance * size_variance) if size_variance else None


def seconds_of(samples: Sequence[DiskUsageSample]) -> float:
    return (samples[-1].at_ms - samples[0].at_ms) / 1000


class DiskUsageHistory:
    """The samples of each directory. ``sample`` blocks for a moment and runs in a worker thread.

    ``log_bytes`` tells how large the logs in each are.
    """

    def __init__(self, directories: Sequence[LogDirectory], log_bytes: Callable[[], Mapping[PurePath, int]]) -> None:
        self._directories = directories
        self._log_bytes = log_bytes
        self._samples: dict[PurePath, deque[DiskUsageSample]] = {
            directory.path: deque(maxlen=MAX_SAMPLES) for directory in directories
        }

    def sample(self, now_ms: int) -> None:
        """Take one sample of each directory whose disk works."""
        log_bytes = self._log_bytes()
        for directory in self._directories:
            if directory.failure is not None:
                continue
            # A disk that cannot be asked leaves a gap; the next write finds out what is wrong.
            with contextlib.suppress(OSError):
                space = directory.volume_space()
                used_bytes = space.total_bytes - space.usable_bytes
                self._samples[directory.path].append(DiskUsageSample(now_ms, used_bytes, log_bytes[directory.path]))

    def samples(self, directory: LogDirectory) -> Sequence[DiskUsageSample]:
        """The samples of one directory, oldest first."""
        return list(self._samples[directory.path])
