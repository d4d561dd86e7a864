"""What the next run of a job would read, found without Spark and without changing anything.

Its size in bytes of log can only be estimated over the wire: one answer of each partition is measured, and the rest is
assumed to be like it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import attrs

from trio_broker.spark.pipelines.commit_log import read_last_commit
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.table_jobs.positions import find_target, next_batch, remaining_ranges
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.planning.offset_planning import check_topics, initial_offsets
from trio_broker.spark.ranges import OffsetRange

MAX_SAMPLES: Final = 16
"""Partitions that are measured, the largest ones; each costs an answer of some MiB."""


@attrs.frozen
class ReadPlan:
    """What would be read: ranges, sorted, the number of batches, and an estimate of the log's bytes, if known."""

    ranges: tuple[OffsetRange, ...]
    batches: int
    log_bytes: int | None

    @property
    def offset_count(self) -> int:
        """How many offsets the ranges have; there may be fewer records."""
        return sum(each.offset_count for each in self.ranges)


def plan_job(source: JobSource, checkpoint: Path, trigger: Trigger) -> ReadPlan:
    """Return what a job with the checkpoint would read now.

    Raises:
        SparkJobError: as the job itself.
    """
    last = read_last_commit(checkpoint)
    if last is None:
        position = initial_offsets(source.options, source.offset_source)
    else:
        known = last.facts.get("topic_ids", {})
        ids = source.offset_source.topic_ids(sorted(known))
        position = check_topics(known, ids, last.offsets, fail_on_data_loss=source.options.fail_on_data_loss)
    target = find_target(source.options, source.offset_source, position)
    return ReadPlan(
        target.ranges, _count_batches(target.ranges, trigger.batch_records), estimate_bytes(source, target.ranges)
    )


def _count_batches(ranges: Sequence[OffsetRange], batch_records: int) -> int:
    count, remaining = 0, list(ranges)
    while remaining:
        remaining = remaining_ranges(remaining, next_batch(remaining, batch_records))
        count += 1
    return count


def estimate_bytes(source: JobSource, ranges: Sequence[OffsetRange]) -> int | None:
    """Return an estimate of the bytes of log in ``ranges``; None when nothing could be measured."""
    samples = sorted(ranges, key=lambda each: -each.offset_count)[:MAX_SAMPLES]
    sampled_offsets = sampled_bytes = 0
    for task in source.tasks(
        samples, ("offset",), 1, source.offset_source.topic_ids({each.partition.topic for each in ranges})
    ):
        with closing(task.transport.chunks(task.offsets)) as chunks:
            table = next((chunk.table for chunk in chunks if len(chunk.table)), None)
        if table is not None:
            sampled_offsets += int(table.last_offsets[-1] + 1 - table.base_offsets[0])
            sampled_bytes += int(table.sizes.sum())
    if not sampled_offsets:
        return None
    return sampled_bytes * sum(each.offset_count for each in ranges) // sampled_offsets
