"""What the broker reads off itself at one moment.

Totals only grow, from the start of the process; rates are made of two readings, by ``history``. A worker's busy time
includes the work it is in the middle of, so that one long request does not look like idleness and then like more than
a whole second's work; that is how idle ratios above 1 come about elsewhere.

Whoever owns the parts (the broker) fills this in from their ``statistics()``; nothing here reaches into them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs


@attrs.frozen
class WorkerReading:
    """One network thread or handler slot.

    ``busy_seconds`` and ``started_at`` are on the clock of ``Reading.taken_at``. A pool that shrinks and grows may give
    a name to a new worker; its different ``started_at``, where it is known, tells it from the old one.
    """

    name: str
    busy_seconds: float
    started_at: float = -math.inf


@attrs.frozen
class PartitionReading:
    """One partition's log, for the series that are written only when asked for."""

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int


@attrs.frozen
class GroupCount:
    """How many groups of one type (``classic``, ``consumer``) are in one state."""

    type: str
    state: str
    count: int


@attrs.frozen
class GroupLagReading:
    """How far one group is behind in one partition, for the series that are written only when asked for."""

    group_id: str
    topic: str
    partition: int
    lag_records: int | None
    lag_seconds: float | None


@attrs.frozen(kw_only=True)
class GroupReading:
    """The groups that this broker coordinates. ``offset_commits`` and ``rebalances`` are totals, the others levels.

    ``loading_partitions`` are those of ``__consumer_offsets`` whose groups cannot be asked yet.
    """

    groups: tuple[GroupCount, ...] = ()
    members: int = 0
    committed_offsets: int = 0
    loading_partitions: int = 0
    offset_commits: int = 0
    rebalances: int = 0
    lags: tuple[GroupLagReading, ...] = ()


@attrs.frozen
class CompactionReading:
    """What compaction has done, and what it leaves alone. ``max_dirty_ratio`` is that of the dirtiest partition."""

    rounds: int
    bytes_read: int
    bytes_written: int
    max_dirty_ratio: float
    uncleanable_partitions: int


@attrs.frozen(kw_only=True)
class Reading:
    """The whole broker at ``taken_at`` (monotonic seconds) and ``taken_at_ms`` (wall clock).

    ``requests`` counts all requests answered, ``requests_by_api`` those of each API's name. ``queue_depth`` and
    ``parked_requests`` are levels: requests that wait for a handler, and requests that wait for something else without
    holding one.
    """

    taken_at: float
    taken_at_ms: int
    bytes_in: int
    bytes_out: int
    records_in: int
    requests: int
    connections: int
    connections_accepted: int
    network_workers: tuple[WorkerReading, ...]
    io_workers: tuple[WorkerReading, ...]
    queue_depth: int
    queue_capacity: int
    parked_requests: int
    event_loop_busy_seconds: float
    requests_by_api: Mapping[str, int] = attrs.field(factory=dict)
