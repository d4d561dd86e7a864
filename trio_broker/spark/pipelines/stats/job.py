"""The pipeline ``stats``: the health of topics' logs, from the headers of their batches.

It counts codecs and sizes of batches, records in a batch, offsets without records and timestamps out of order; with
``verify_crc`` batches with a wrong checksum; with ``keys`` also the records that compaction could drop, for which keys
are decoded. Without ``keys`` nothing is decompressed, and a log is scanned as fast as it can be read.

Partitions are cut into slices; each slice is one task (``damage_scan``). The driver joins the statistics of the slices
(``batch_statistics``), and ``report`` makes the report of them.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.options.option import Mode, with_defaults
from trio_broker.spark.options.read_options import ReadOptions, read_options
from trio_broker.spark.pipelines.stats.batch_statistics import PartitionStatistics, joined
from trio_broker.spark.pipelines.stats.damage_scan import scan_headers
from trio_broker.spark.pipelines.stats.key_statistics import KeyStatistics, count_keys
from trio_broker.spark.pipelines.task_runner import Result, TaskRunner
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.task_planning import plan_batch_tasks
from trio_broker.spark.tasks import ReadTask

COLUMNS: Final = ("key",)
"""The columns that are decoded where keys are counted."""

SLICES_PER_CORE: Final = 4
"""More than one, because slices of equally many offsets differ in bytes: a core that is done early takes another."""

MOST_SLICE_OFFSETS: Final = 50_000_000
"""Offsets of a slice: some minutes at most, which a failed task repeats, and a few MiB of results."""

DEFAULTS: Final[Mapping[str, str]] = {"kafka.isolation.level": "read_uncommitted"}
"""All batches are scanned, those of open transactions as well."""

FASTEST: Final = 1
"""The level of zlib for results: mostly timestamps that grow slowly, which any level compresses well."""


@attrs.frozen
class StatsSettings:
    """What is read besides headers: the bytes of batches for their checksums, and keys."""

    verify_crc: bool = True
    keys: bool = False


@attrs.frozen
class PartitionHealth:
    """What was found in one partition; ``offsets`` is the range scanned, ``keys`` is None unless they were counted."""

    offsets: OffsetRange
    batches: PartitionStatistics
    keys: KeyStatistics | None


def stats(
    runner: TaskRunner,
    source_options: Mapping[str, str],
    settings: StatsSettings,
    on_plan: Callable[[int], Callable[[int], None]] | None = None,
) -> list[PartitionHealth]:
    """Scan the batches that ``source_options`` (of the data source) select; return partitions sorted.

    ``on_plan`` is called with the number of tasks, and returns a function that is called with the number of those done.

    Raises:
        SparkJobError: an option is wrong, or the logs cannot be read. Damage in a log is a finding, not an error.
    """
    tasks = plan(source_options, runner.parallelism())
    on_done = on_plan(len(tasks)) if on_plan is not None else None
    results = runner.run(tasks, StatsScope(settings, first_slices(tasks)), on_done)
    return join(tasks, results)


def plan(source_options: Mapping[str, str], parallelism: int) -> list[ReadTask]:
    """Return the slices to scan, in the order of their offsets.

    Raises:
        SparkJobError: an option is wrong, or no broker answers.
    """
    options = read_options(with_defaults(source_options, DEFAULTS), Mode.BATCH)
    return plan_batch_tasks(with_slices(options, parallelism), COLUMNS)


def with_slices(options: ReadOptions, parallelism: int) -> ReadOptions:
    """Return options that cut the logs into enough slices for ``parallelism`` cores, unless they set a number."""
    return attrs.evolve(
        options,
        min_partitions=options.min_partitions or SLICES_PER_CORE * parallelism,
        max_records_per_partition=options.max_records_per_partition or MOST_SLICE_OFFSETS,
    )


def first_slices(tasks: Sequence[ReadTask]) -> frozenset[int]:
    """Return the numbers of the tasks with the first slice of a partition."""
    firsts: dict[TopicPartition, int] = {}
    for number, task in enumerate(tasks):
        firsts.setdefault(task.offsets.partition, number)
    return frozenset(firsts.values())


@attrs.frozen
class StatsScope:
    """The function of the tasks: scans a slice. Its result is compressed, as it has a number for nearly every batch."""

    settings: StatsSettings
    first_slices: frozenset[int]

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        batches = scan_headers(
            task, includes_cut_batch=number in self.first_slices, verify_crc=self.settings.verify_crc
        )
        keys = count_keys(task, batches) if self.settings.keys else None
        return [{"found": zlib.compress(pickle.dumps((batches, keys)), FASTEST)}]


def join(tasks: Sequence[ReadTask], results: Sequence[Sequence[Result]]) -> list[PartitionHealth]:
    """Join the results of ``tasks``, which are in the order of their offsets."""
    by_partition: dict[TopicPartition, list[tuple[OffsetRange, PartitionStatistics, KeyStatistics | None]]] = {}
    for task, [result] in zip(tasks, results, strict=True):
        found = pickle.loads(zlib.decompress(result["found"]))
        by_partition.setdefault(task.offsets.partition, []).append((task.offsets, *found))
    return [_health(by_partition[partition]) for partition in sorted(by_partition)]


def _health(slices: Sequence[tuple[OffsetRange, PartitionStatistics, KeyStatistics | None]]) -> PartitionHealth:
    ranges, batches, found_keys = zip(*slices, strict=True)
    keys = [each for each in found_keys if each is not None]
    scanned = attrs.evolve(ranges[0], end_offset=ranges[-1].end_offset)
    return PartitionHealth(scanned, joined(batches), reduce(KeyStatistics.then, keys) if keys else None)
