"""Statistics of a partition from the headers of its record batches, in parts that any number of tasks can count.

``statistics_of`` counts some batches, ``joined`` adds up the statistics of slices that follow one another, and gives
exactly what the whole would: slices are scanned in parallel. What depends on all earlier batches, whether timestamps
grow, is computed from the joined timestamps (``TimestampOrder``).

Histograms have one bin for each number of binary digits: 0, 1, 2 to 3, 4 to 7 … Transaction markers (control batches)
are counted apart and are in no histogram, since applications never see them.

Source: kafka_wire.records.batch for the fields; docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import attrs
import numpy as np

from kafka_wire.primitives import NO_OFFSET
from kafka_wire.records.batch import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import CODECS, BatchTable, Int64Array

BINS: Final = 33
"""A batch's size is an int32 plus its prefix, so it has at most 32 binary digits; a zero has none."""

MAX_LISTED: Final = 1000
"""How many bad batches and unreadable stretches of a partition are listed; all are counted."""


@attrs.frozen(eq=False)
class BatchHeaderColumns:
    """The columns of a ``BatchTable`` that are counted, for some of its batches or those of several tables."""

    sizes: Int64Array
    base_offsets: Int64Array
    last_offsets: Int64Array
    attributes: Int64Array
    base_timestamps: Int64Array
    max_timestamps: Int64Array
    producer_ids: Int64Array
    record_counts: Int64Array

    def __len__(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, table: BatchTable, chosen: slice) -> BatchHeaderColumns:
        """Return the headers of the ``chosen`` batches."""
        return cls(*(getattr(table, name)[chosen] for name in _HEADER_COLUMNS))

    @classmethod
    def joined(cls, parts: Sequence[BatchHeaderColumns]) -> BatchHeaderColumns:
        """Return the headers of all ``parts``, one after the other; there is at least one."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _HEADER_COLUMNS))


_HEADER_COLUMNS: Final = tuple(field.name for field in attrs.fields(BatchHeaderColumns))


@attrs.frozen
class BadBatch:
    """A batch whose checksum is not that of its bytes; ``origin`` is the file or broker it was read from."""

    base_offset: int
    last_offset: int
    size_bytes: int
    origin: str


@attrs.frozen
class Damage:
    """Offsets that cannot be read because bytes are no batch; ``end_offset`` is exclusive."""

    start_offset: int
    end_offset: int
    reason: str


@attrs.frozen
class Gap:
    """The longest stretch of offsets between two batches; ``offset`` is its first."""

    offsets: int = 0
    offset: int = NO_OFFSET


@attrs.frozen
class TimestampOrder:
    """How far timestamps grow with the offsets; they are milliseconds since 1970.

    A batch is *late* when its timestamp is below that of any batch before it; its lag is the difference to the highest
    of them. ``worst_offset`` is the base offset of the first batch with the greatest lag. Late batches cause surprises
    in lookups by time, retention by time and windows of stream jobs.
    """

    late_count: int
    worst_lag_ms: int
    worst_offset: int
    highest: int


_SAME_ITEMS: Final = attrs.cmp_using(eq=np.array_equal)
_SUMMED_ARRAY: Final[dict[str, Any]] = {"eq": _SAME_ITEMS, "metadata": {"is_summed": True}}


def _summed(report_name: str | None = None) -> Any:
    """Declare a number that is added when slices are joined; ``report_name`` is its name in the report, if it is
    there."""
    return attrs.field(default=0, metadata={"is_summed": True, "report_name": report_name})


@attrs.frozen
class PartitionStatistics:
    """Counts of a slice of one partition. Sizes are bytes as in the log; offsets are absolute.

    Transaction markers are counted in ``control_batches`` and ``control_bytes`` only. ``size_bins`` counts batches by
    codec and size, ``record_bins`` by records. ``missing_between`` are the offsets between batches, in ``gap_count``
    gaps; ``missing_inside`` are offsets within batches that have no record, which compaction leaves. ``first_offset``
    is -1 while there are no batches. ``timeline`` has two rows, with a column for each batch that has a timestamp: the
    highest one, in milliseconds since 1970, and the base offset. ``first_timestamp`` is the lowest that a batch begins
    with, None where no batch has one.
    """

    partition: TopicPartition
    data_batches: int = _summed("batches")
    control_batches: int = _summed("control_batches")
    record_count: int = _summed("records")
    data_bytes: int = _summed()
    control_bytes: int = _summed()
    transactional_batches: int = _summed("transactional_batches")
    idempotent_batches: int = _summed("idempotent_batches")
    log_append_time_batches: int = _summed("log_append_time_batches")
    size_bins: Int64Array = attrs.field(factory=lambda: np.zeros((CODECS, BINS), np.int64), **_SUMMED_ARRAY)
    record_bins: Int64Array = attrs.field(factory=lambda: np.zeros(BINS, np.int64), **_SUMMED_ARRAY)
    codec_bytes: Int64Array = attrs.field(factory=lambda: np.zeros(CODECS, np.int64), **_SUMMED_ARRAY)
    codec_records: Int64Array = attrs.field(factory=lambda: np.zeros(CODECS, np.int64), **_SUMMED_ARRAY)
    first_offset: int = NO_OFFSET
    last_offset: int = NO_OFFSET
    gap_count: int = _summed("gaps")
    missing_between: int = _summed("offsets_missing_between")
    missing_inside: int = _summed("offsets_missing_inside")
    longest_gap: Gap = Gap()
    first_timestamp: int | None = None
    timeline: Int64Array = attrs.field(factory=lambda: np.empty((2, 0), np.int64), eq=_SAME_ITEMS, repr=False)
    bad_count: int = _summed("bad_batches")
    bad_batches: tuple[BadBatch, ...] = ()
    damage_count: int = _summed("unreadable_stretches")
    damages: tuple[Damage, ...] = ()

    @cached_property
    def order(self) -> TimestampOrder | None:
        """The order of the timestamps; None where no batch has one."""
        return order_of(*self.timeline) if self.timeline.size else None

    @property
    def has_batches(self) -> bool:
        """Whether there is any batch, markers included."""
        return self.first_offset != NO_OFFSET


_SUMMED: Final = tuple(each.name for each in attrs.fields(PartitionStatistics) if each.metadata.get("is_summed"))

REPORTED: Final[Mapping[str, str]] = {
    each.metadata["report_name"]: each.name
    for each in attrs.fields(PartitionStatistics)
    if each.metadata.get("report_name")
}
"""The summed fields that the report has for each partition, by their names there."""


def joined(parts: Sequence[PartitionStatistics]) -> PartitionStatistics:
    """Return the statistics of slices of one partition, given in the order of their offsets; there is at least one."""
    found = [part for part in parts if part.has_batches]
    between = [
        Gap(later.first_offset - earlier.last_offset - 1, earlier.last_offset + 1)
        for earlier, later in pairwise(found)
        if earlier.last_offset + 1 < later.first_offset
    ]
    sums = {name: sum(getattr(part, name) for part in parts) for name in _SUMMED}
    sums["gap_count"] += len(between)
    sums["missing_between"] += sum(gap.offsets for gap in between)
    damages = _whole_damages(parts)
    sums["damage_count"] -= sum(len(part.damages) for part in parts) - len(damages)
    return PartitionStatistics(
        partition=parts[0].partition,
        **sums,
        first_offset=found[0].first_offset if found else NO_OFFSET,
        last_offset=found[-1].last_offset if found else NO_OFFSET,
        longest_gap=max((*(part.longest_gap for part in parts), *between), key=lambda gap: (gap.offsets, -gap.offset)),
        first_timestamp=min((part.first_timestamp for part in parts if part.first_timestamp is not None), default=None),
        timeline=np.concatenate([part.timeline for part in parts], axis=1),
        bad_batches=tuple(bad for part in parts for bad in part.bad_batches)[:MAX_LISTED],
        damages=tuple(damages[:MAX_LISTED]),
    )


def _whole_damages(parts: Iterable[PartitionStatistics]) -> list[Damage]:
    """Return the damages of all parts; one that lies across the border of two becomes one."""
    whole: list[Damage] = []
    for damage in (damage for part in parts for damage in part.damages):
        if whole and whole[-1].end_offset == damage.start_offset:
            whole[-1] = attrs.evolve(whole[-1], end_offset=damage.end_offset)
        else:
            whole.append(damage)
    return whole


def order_of(timestamps: Int64Array, base_offsets: Int64Array) -> TimestampOrder:
    """Return the order of batches that all have a timestamp, given in the order of their offsets."""
    assert timestamps.min() >= 0, f"{timestamps.min()}"  # so that no difference overflows
    highest = np.maximum.accumulate(timestamps)
    lags = highest - timestamps
    worst = int(lags.argmax())
    return TimestampOrder(
        late_count=int(np.count_nonzero(lags)),
        worst_lag_ms=int(lags[worst]),
        worst_offset=int(base_offsets[worst]) if lags[worst] else NO_OFFSET,
        highest=int(highest[-1]),
    )


def statistics_of(
    partition: TopicPartition,
    batches: BatchHeaderColumns,
    *,
    bad_batches: tuple[BadBatch, ...] = (),
) -> PartitionStatistics:
    """Count the headers in ``batches``, which are in the order of their offsets.

    ``bad_batches`` are those whose checksum is wrong.
    """
    if not len(batches):
        return PartitionStatistics(partition)
    is_data = (batches.attributes & CONTROL_BIT) == 0
    attributes, sizes = batches.attributes[is_data], batches.sizes[is_data]
    records, codecs = batches.record_counts[is_data], batches.attributes[is_data] & CODEC_MASK
    spans = batches.last_offsets - batches.base_offsets + 1
    gaps = batches.base_offsets[1:] - batches.last_offsets[:-1] - 1
    timed = is_data & (batches.record_counts > 0) & (batches.max_timestamps >= 0)
    return PartitionStatistics(
        partition=partition,
        data_batches=len(sizes),
        control_batches=len(batches) - len(sizes),
        record_count=int(records.sum()),
        data_bytes=int(sizes.sum()),
        control_bytes=int(batches.sizes.sum() - sizes.sum()),
        transactional_batches=int(np.count_nonzero(attributes & TRANSACTIONAL_BIT)),
        idempotent_batches=int(np.count_nonzero(batches.producer_ids[is_data] >= 0)),
        log_append_time_batches=int(np.count_nonzero(attributes & TIMESTAMP_TYPE_BIT)),
        size_bins=_counts(codecs * BINS + bins_of(sizes), CODECS * BINS).reshape(CODECS, BINS),
        record_bins=_counts(bins_of(records), BINS),
        codec_bytes=_sums(codecs, sizes),
        codec_records=_sums(codecs, records),
        first_offset=int(batches.base_offsets[0]),
        last_offset=int(batches.last_offsets[-1]),
        gap_count=int(np.count_nonzero(gaps)),
        missing_between=int(gaps.sum()),
        missing_inside=int(np.maximum(spans - batches.record_counts, 0).sum()),
        longest_gap=_longest_gap(gaps, batches.last_offsets),
        first_timestamp=int(_begins(batches)[timed].min()) if timed.any() else None,
        timeline=np.stack([batches.max_timestamps[timed], batches.base_offsets[timed]]),
        bad_count=len(bad_batches),
        bad_batches=bad_batches[:MAX_LISTED],
    )


def bins_of(values: Int64Array) -> Int64Array:
    """Return the number of binary digits of each value, the number of its bin."""
    # The exponent of a float is exact up to 2**53, far above the values in a header.
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def bin_bounds(index: int) -> tuple[int, int]:
    """Return the smallest and the largest value of a bin."""
    return (1 << index >> 1, (1 << index) - 1) if index else (0, 0)


def _begins(batches: BatchHeaderColumns) -> Int64Array:
    """Return each batch's first timestamp: its last one, where the base timestamp is not that of a record."""
    no_record_s = (batches.attributes & (TIMESTAMP_TYPE_BIT | DELETE_HORIZON_BIT)) != 0
    no_record_s |= batches.base_timestamps < 0
    return np.where(no_record_s, batches.max_timestamps, batches.base_timestamps)


def _longest_gap(gaps: Int64Array, last_offsets: Int64Array) -> Gap:
    if not gaps.any():
        return Gap()
    longest = int(gaps.argmax())
    return Gap(int(gaps[longest]), int(last_offsets[longest]) + 1)


def _counts(indexes: Int64Array, length: int) -> Int64Array:
    return np.bincount(indexes, minlength=length).astype(np.int64)


def _sums(indexes: Int64Array, values: Int64Array) -> Int64Array:
    sums = np.zeros(CODECS, np.int64)
    np.add.at(sums, indexes, values)
    return sums
