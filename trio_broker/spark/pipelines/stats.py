"""The pipeline ``stats``: how healthy the logs of some topics are, told from the headers of their batches.

Codecs and sizes of batches, records in a batch, offsets without records, timestamps out of order, and with
``verify_crc`` every batch's checksum; with ``keys`` also how many records compaction could drop, for which keys are
decoded. Without keys nothing is inflated, and a log is looked at as fast as it can be read.

Partitions are cut into slices; each slice is one task (``header_scan``). The driver joins the statistics of the slices
(``batch_statistics``); ``stats_report`` makes a document of them.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from trio_broker.spark.options.option import Mode, with_defaults
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.pipelines.batch_statistics import PartitionStatistics
from trio_broker.spark.pipelines.batch_statistics import joined as joined_statistics
from trio_broker.spark.pipelines.header_scan import scan_headers
from trio_broker.spark.pipelines.key_statistics import KeyStatistics, count_keys
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_planning import plan_batch_tasks
from trio_broker.spark.tasks import ReadTask
from trio_broker.topic_partition import TopicPartition

COLUMNS: Final = ("key",)
"""What is decoded where keys are counted."""

SLICES_PER_CORE: Final = 4
"""So that a core which is done early finds something else to do, though slices of a log differ in bytes."""

MOST_SLICE_OFFSETS: Final = 50_000_000
"""Of one slice: some minutes at most, and a few MiB of results; what a task that fails has to do again."""

DEFAULTS: Final[Mapping[str, str]] = {"kafka.isolation.level": "read_uncommitted"}
"""Batches are looked at wherever they lie, those of open transactions as well."""

FASTEST: Final = 1
"""The level of zlib for results: most of them are timestamps that grow slowly, which any level packs well."""


@attrs.frozen
class StatsSettings:
    """What to look at besides headers."""

    verify_crc: bool = True
    keys: bool = False


@attrs.frozen
class PartitionHealth:
    """What was found in one partition; ``offsets`` is what was looked at, ``keys`` is None unless they were counted."""

    offsets: OffsetRange
    batches: PartitionStatistics
    keys: KeyStatistics | None


def stats(
    runner: TaskRunner,
    source_options: Mapping[str, str],
    settings: StatsSettings,
    on_plan: Callable[[int], Callable[[int], None]] | None = None,
) -> list[PartitionHealth]:
    """Look at the batches that ``source_options`` (of the data source) ask for; return partitions sorted.

    ``on_plan`` is told how many tasks there are, and returns whom to tell how many of them are done.

    Raises:
        SparkJobError: an option is wrong, or the logs cannot be read. What is damaged in them is no error.
    """
    tasks = plan(source_options, runner.parallelism())
    on_done = on_plan(len(tasks)) if on_plan is not None else None
    results = runner.run(tasks, StatsScope(settings, first_slices(tasks)), on_done)
    return join(tasks, results)


def plan(source_options: Mapping[str, str], parallelism: int) -> list[ReadTask]:
    """Return the slices to look at, in the order of their offsets.

    Raises:
        SparkJobError: an option is wrong, or nobody answers.
    """
    options = read_options(with_defaults(source_options, DEFAULTS), Mode.BATCH)
    return plan_batch_tasks(with_slices(options, parallelism), COLUMNS)


def with_slices(options: ReadOptions, parallelism: int) -> ReadOptions:
    """Return options that cut the logs finely enough for so many cores, unless it was said how to cut them."""
    return attrs.evolve(
        options,
        min_partitions=options.min_partitions or SLICES_PER_CORE * parallelism,
        max_records_per_partition=options.max_records_per_partition or MOST_SLICE_OFFSETS,
    )


def first_slices(tasks: Sequence[ReadTask]) -> frozenset[int]:
    """Return the numbers of the tasks that have the first slice of a partition."""
    firsts: dict[TopicPartition, int] = {}
    for number, task in enumerate(tasks):
        firsts.setdefault(task.offsets.partition, number)
    return frozenset(firsts.values())


@attrs.frozen
class StatsScope:
    """What a task does: look at one slice. Its result is packed, since it has a number for nearly every batch."""

    settings: StatsSettings
    first_slices: frozenset[int]

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        batches = scan_headers(
            task, includes_cut_batch=number in self.first_slices, verify_crc=self.settings.verify_crc
        )
        keys = count_keys(task, batches) if self.settings.keys else None
        return [{"found": zlib.compress(pickle.dumps((batches, keys)), FASTEST)}]


def join(tasks: Sequence[ReadTask], results: Sequence[Sequence[Result]]) -> list[PartitionHealth]:
    """Join what the tasks found, in the order of ``tasks``."""
    ranges: dict[TopicPartition, OffsetRange] = {}
    keys: dict[TopicPartition, KeyStatistics] = {}
    slices: list[PartitionStatistics] = []
    for task, [result] in zip(tasks, results, strict=True):
        batches, slice_keys = pickle.loads(zlib.decompress(result["found"]))
        slices.append(batches)
        partition = task.offsets.partition
        known = ranges.get(partition, task.offsets)
        ranges[partition] = attrs.evolve(known, end_offset=task.offsets.end_offset)
        if slice_keys is not None:
            keys[partition] = keys[partition].then(slice_keys) if partition in keys else slice_keys
    return [
        PartitionHealth(ranges[each.partition], each, keys.get(each.partition)) for each in joined_statistics(slices)
    ]
