"""How much a micro-batch of a pipeline reads, and when the next one begins."""

from __future__ import annotations

from typing import Final

import attrs

DEFAULT_BATCH_RECORDS: Final = 10_000_000
"""Records of a micro-batch: enough to fill files, and few enough that a killed job repeats minutes, not hours."""


@attrs.frozen
class Trigger:
    """How many records a micro-batch reads, and whether the job waits for more.

    With ``interval_seconds`` the job runs until it is stopped: it reads up to the ends of the logs, and looks for new
    records that long after the last look. Without, it ends at the ends that the logs had when it started.
    """

    batch_records: int = DEFAULT_BATCH_RECORDS
    interval_seconds: float | None = None
