"""Which followers the high watermarks of a broker wait for, at one moment."""

from __future__ import annotations

from collections.abc import Iterable

from trio_broker.metrics.history import FollowerLag
from trio_broker.partition.partition import Partition


def awaited_followers(partitions: Iterable[Partition]) -> dict[int, FollowerLag]:
    """By broker the partitions whose high watermark waits for it: of their replicas in sync it is furthest behind."""
    awaited: dict[int, FollowerLag] = {}
    for partition in partitions:
        state = partition.writer.state
        if not state.is_leader or state.high_watermark >= state.log_end_offset:
            continue
        remote, end = state.remote, state.log_end_offset
        behind = [each for each in remote.replicas.values() if each.broker_id in remote.state.isr]
        last = min(behind, key=lambda each: each.log_end_offset, default=None)
        if last is not None and last.log_end_offset < end:
            lag = FollowerLag(1, end - max(last.log_end_offset, 0))
            awaited[last.broker_id] = lag.plus(awaited.get(last.broker_id, FollowerLag()))
    return awaited
