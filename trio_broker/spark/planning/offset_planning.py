"""The ranges that a query reads: from the options for its beginning and end to ranges cut into tasks.

A batch is planned by asking an ``OffsetSource``; a micro-batch of a stream by comparing the offsets in the checkpoint
with the present beginnings of the logs. Both follow the same rule of losses: requested records that are gone are a
``DataLoss`` under ``failOnDataLoss``, otherwise a warning, and the ranges are clipped. Gaps within a log are no loss:
compaction, markers and aborted transactions leave them.

Source: KafkaOffsetReaderAdmin, KafkaOffsetRangeCalculator and KafkaDataConsumer of Spark's connector.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.options.offset_specs import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    OffsetSource,
    OffsetSpec,
    SpecificOffsets,
    TimestampsByPartition,
    listed,
)
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.options.selection import Assign
from trio_broker.spark.ranges import OffsetRange

log = logging.getLogger(__name__)

Offsets = dict[TopicPartition, int]

FAIL_HINT: Final = "set failOnDataLoss to false to read on with what is there"


@attrs.frozen
class LogBounds:
    """The beginnings and ends of the logs of partitions; a partition that is gone is missing in one of them."""

    earliest: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]

    def has(self, partition: TopicPartition) -> bool:
        return partition in self.earliest and partition in self.latest


@attrs.frozen
class _RequestedRange:
    """The offsets of a partition that a query requests, whether they exist or not."""

    partition: TopicPartition
    start_offset: int
    end_offset: int


def plan_batch(options: ReadOptions, source: OffsetSource) -> list[OffsetRange]:
    """Return the ranges of a batch query: one for each partition that has records, sorted, not cut into tasks yet.

    Raises:
        OptionError: offsets or times are not named for exactly the existing partitions, no record is young enough, or
            a start is after its end.
        DataLoss: under ``failOnDataLoss``, requested records are gone.
        SourceUnavailable: no broker answers.
    """
    assert options.ending is not None, "a batch has an end"
    partitions = _partitions(options, source)
    starting = _StartOrEnd(options.starting, options.starting_option, partitions, source, is_start=True)
    ending = _StartOrEnd(options.ending, options.ending_option, partitions, source, is_start=False)
    bounds = LogBounds(source.earliest(partitions), source.latest(partitions))
    ranges, losses = [], []
    for partition in partitions:
        if not bounds.has(partition):
            losses.append(partition_is_gone(partition, 0))
            continue
        requested = _RequestedRange(partition, starting.offset(partition, bounds), ending.offset(partition, bounds))
        lost = _losses(requested, bounds)
        losses += lost
        if requested.start_offset > requested.end_offset and not lost:
            reason = f"{partition}: {requested.end_offset} is before the start, {requested.start_offset}"
            raise OptionError(options.ending_option, reason)
        ranges.append(_clip(requested, bounds))
    raise_or_log_losses(losses, options.fail_on_data_loss)
    return [offsets for offsets in ranges if offsets.offset_count]


def initial_offsets(options: ReadOptions, source: OffsetSource) -> Offsets:
    """Return the beginning of a new stream in every partition.

    Raises:
        OptionError: offsets or times are not named for exactly the existing partitions, or no record is young enough.
        SourceUnavailable: no broker answers; or a partition that there is has no offsets now, and would be taken for a
            new one later, to be read from its first record on.
    """
    partitions = _partitions(options, source)
    starting = _StartOrEnd(options.starting, options.starting_option, partitions, source, is_start=True)
    bounds = LogBounds(source.earliest(partitions), source.latest(partitions))
    unknown = {partition for partition in partitions if not bounds.has(partition)}
    if unknown and (unknown := unknown.intersection(source.partitions(options.selection))):
        raise SourceUnavailable(f"no broker says where the log begins and ends now: {listed(unknown)}")
    return {partition: starting.offset(partition, bounds) for partition in partitions if bounds.has(partition)}


def plan_stream(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    earliest: Mapping[TopicPartition, int],
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch from ``start`` to ``end``: one for each partition, sorted, not cut yet.

    ``earliest`` has the present log start offsets of the partitions with something between the two; those that it does
    not have are gone. A partition that is only in ``end`` is new: it begins at its earliest offset, which should be 0.

    Raises:
        DataLoss: under ``fail_on_data_loss``, records between the two are gone.
    """
    losses = [partition_is_gone(partition, start[partition]) for partition in start.keys() - end.keys()]
    bounds = LogBounds(earliest, end)
    ranges = []
    for partition in sorted(end):
        # A new partition is read from its first record on.
        start_offset = start.get(partition, 0)
        if start_offset == end[partition]:
            continue
        if not bounds.has(partition):
            losses.append(partition_is_gone(partition, start_offset))
            continue
        requested = _RequestedRange(partition, start_offset, max(start_offset, end[partition]))
        losses += _losses(requested, bounds)
        ranges.append(_clip(requested, bounds))
    raise_or_log_losses(losses, fail_on_data_loss)
    return [offsets for offsets in ranges if offsets.offset_count]


def check_topics(
    known_ids: Mapping[str, str],
    ids: Mapping[str, str],
    position: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
) -> Offsets:
    """Return ``position`` with the partitions of topics that were deleted and created again set to 0.

    Raises:
        DataLoss: under ``fail_on_data_loss``, there is such a topic.
    """
    recreated = {topic for topic, known in known_ids.items() if known and ids.get(topic) and ids[topic] != known}
    losses = [
        DataLoss(partition, offset, f"the topic was deleted and created again: its id was {known_ids[partition.topic]}")
        for partition, offset in position.items()
        if partition.topic in recreated
    ]
    raise_or_log_losses(losses, fail_on_data_loss)
    return {each: 0 if each.topic in recreated else offset for each, offset in position.items()}


def known_topic_ids(known_ids: Mapping[str, str], ids: Mapping[str, str]) -> dict[str, str]:
    """Return ``known_ids`` with those of ``ids``, except where a topic that was known is not named now."""
    return {**ids, **known_ids, **{topic: topic_id for topic, topic_id in ids.items() if topic_id}}


def split(
    ranges: Iterable[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut ``ranges`` into tasks of up to ``max_records`` offsets each, and into about ``min_partitions`` of them.

    The order stays, empty ranges are dropped. First each range is cut into equal parts for ``max_records``. If there
    are fewer parts than ``min_partitions`` then, the large ones are cut again, in proportion to their offsets; which
    ones are large is decided first, so that many small ones do not keep them from being cut. Rounding may make a few
    tasks more or less.
    """
    parts = [offsets for offsets in ranges if offsets.offset_count]
    if max_records is not None:
        parts = [part for offsets in parts for part in _cut(offsets, -(-offsets.offset_count // max_records))]
    if min_partitions is None or len(parts) >= min_partitions:
        return parts
    total = sum(part.offset_count for part in parts)
    large = {part for part in parts if _share(part.offset_count, total, min_partitions) > 1}
    for_large = max(min_partitions - (len(parts) - len(large)), 1)
    total_large = sum(part.offset_count for part in large)
    return [
        piece
        for part in parts
        for piece in _cut(part, _share(part.offset_count, total_large, for_large) if part in large else 1)
    ]


def raise_or_log_losses(losses: Iterable[DataLoss], fail_on_data_loss: bool) -> None:
    """Raise the first of ``losses``, or log all of them.

    Raises:
        DataLoss: there is one, and ``fail_on_data_loss``.
    """
    ordered = sorted(losses, key=lambda loss: loss.partition)
    if ordered and fail_on_data_loss:
        more = f" (and {len(ordered) - 1} more partitions)" if len(ordered) > 1 else ""
        raise DataLoss(ordered[0].partition, ordered[0].offset, f"{ordered[0].reason}{more}; {FAIL_HINT}")
    for loss in ordered:
        log.warning("data may be lost: %s", loss)


class _StartOrEnd:
    """The beginning or the end of a batch, or the beginning of a stream.

    Times are looked up first, before the ends of the logs: a record that is found is then within them.
    """

    def __init__(
        self, spec: OffsetSpec, option: str, partitions: list[TopicPartition], source: OffsetSource, *, is_start: bool
    ) -> None:
        self._spec = spec
        self._option = option
        self._is_start = is_start
        self._times: Mapping[TopicPartition, int] = {}
        self._found: Mapping[TopicPartition, int | None] = {}
        match spec:
            case SpecificOffsets(offsets):
                _check_named(offsets, partitions, option)
            case TimestampsByPartition(timestamps_ms):
                _check_named(timestamps_ms, partitions, option)
                self._times = timestamps_ms
            case GlobalTimestamp(timestamp_ms):
                self._times = dict.fromkeys(partitions, timestamp_ms)
        if self._times:
            self._found = source.for_times(self._times)

    def offset(self, partition: TopicPartition, bounds: LogBounds) -> int:
        """Return the offset in ``partition``, which may be outside of ``bounds``.

        Raises:
            OptionError: no record is young enough, and this is not the end of a batch.
        """
        match self._spec:
            case Earliest():
                return bounds.earliest[partition]
            case Latest():
                return bounds.latest[partition]
            case SpecificOffsets(offsets):
                sentinels = {EARLIEST_OFFSET: bounds.earliest[partition], LATEST_OFFSET: bounds.latest[partition]}
                return sentinels.get(offsets[partition], offsets[partition])
            case GlobalTimestamp(no_match=no_match) | TimestampsByPartition(no_match=no_match):
                if (found := self._found.get(partition)) is not None:
                    return found
                if self._is_start and no_match is NoMatch.ERROR:
                    raise OptionError(
                        self._option,
                        f"{partition}: no record is as young as {self._times[partition]}; with"
                        " startingOffsetsByTimestampStrategy=latest such a partition begins at its end",
                    )
                return bounds.latest[partition]


def _partitions(options: ReadOptions, source: OffsetSource) -> list[TopicPartition]:
    partitions = source.partitions(options.selection)
    if isinstance(options.selection, Assign) and (missing := set(options.selection.partitions) - set(partitions)):
        log.warning("assigned partitions that do not exist are left out: %s", listed(missing))
    elif not partitions:
        log.warning("there is nothing to read: %s", options.selection)
    return partitions


def _check_named(named: Collection[TopicPartition], partitions: Iterable[TopicPartition], option: str) -> None:
    """Refuse values for some partitions only, and for partitions that are not read: neither can be intended."""
    existing = set(partitions)
    if missing := existing - set(named):
        raise OptionError(option, f"names nothing for {listed(missing)}; all partitions must be named")
    if extra := set(named) - existing:
        raise OptionError(option, f"names {listed(extra)}, which is not read or does not exist")


def partition_is_gone(partition: TopicPartition, offset: int) -> DataLoss:
    """Return the loss of a partition of which everything from ``offset`` on was to be read."""
    return DataLoss(partition, offset, "the partition is gone")


def _losses(requested: _RequestedRange, bounds: LogBounds) -> list[DataLoss]:
    """Return the loss of the requested records that are gone, at most one."""
    partition, start, end = requested.partition, requested.start_offset, requested.end_offset
    earliest, latest = bounds.earliest[partition], bounds.latest[partition]
    if start > latest:
        return [
            DataLoss(
                partition, start, f"the log ends at {latest}: it was truncated or created again, or never got there"
            )
        ]
    if end > latest:
        return [DataLoss(partition, latest, f"records up to {end} were asked for, the log ends at {latest}")]
    # The second case: from the earliest offset to one before it.
    if start < min(end, earliest) or end < start == earliest:
        return [DataLoss(partition, min(start, end), f"the records are gone, the log begins at {earliest}")]
    return []


def _clip(requested: _RequestedRange, bounds: LogBounds) -> OffsetRange:
    """Return the part of the requested range that exists, perhaps empty."""
    end = min(requested.end_offset, bounds.latest[requested.partition])
    start = min(max(requested.start_offset, bounds.earliest[requested.partition]), end)
    return OffsetRange(requested.partition, start, end)


def _share(offset_count: int, total: int, parts: int) -> int:
    """Return how many of ``parts`` a range gets in proportion, half rounded up, at least one."""
    return max((2 * offset_count * parts + total) // (2 * total), 1)


def _cut(offsets: OffsetRange, parts: int) -> list[OffsetRange]:
    """Cut into ``parts`` whose sizes differ by at most one, the larger ones last; fewer where there are not enough."""
    parts = min(parts, offsets.offset_count)
    size, larger = divmod(offsets.offset_count, parts)
    sizes = [size] * (parts - larger) + [size + 1] * larger
    edges = accumulate(sizes, initial=offsets.start_offset)
    return [OffsetRange(offsets.partition, start, end) for start, end in pairwise(edges)]
