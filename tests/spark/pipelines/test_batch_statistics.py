"""The statistics of a log are the same however it was cut into slices, and what plain loops say."""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.primitives import NO_OFFSET
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import codec_name
from trio_broker.spark.pipelines.stats.batch_statistics import (
    BINS,
    BadBatch,
    BatchHeaderColumns,
    Gap,
    PartitionStatistics,
    bin_bounds,
    bins_of,
    joined,
    statistics_of,
)

PARTITION = TopicPartition("orders", 3)
CONTROL = 0x20
LOG_APPEND = 0x08


@attrs.frozen
class Batch:
    """One batch as a loop sees it; ``gap`` are offsets before it that no batch has."""

    gap: int = 0
    span: int = 1
    records: int = 1
    size: int = 100
    attributes: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    is_bad: bool = False


batches = st.builds(
    Batch,
    gap=st.sampled_from([0, 0, 0, 1, 5, 5]),
    span=st.integers(1, 5),
    records=st.integers(0, 6),
    size=st.sampled_from([61, 64, 127, 128, 2**31 + 11]),
    attributes=st.integers(0, 0x7F),
    base_timestamp=st.integers(-1, 12),
    max_timestamp=st.integers(-1, 12),
    producer_id=st.sampled_from([-1, 7]),
    is_bad=st.booleans(),
)


def offsets_of(log: list[Batch]) -> list[int]:
    """The base offset of each batch."""
    offsets, offset = [], 10
    for batch in log:
        offset += batch.gap
        offsets.append(offset)
        offset += batch.span
    return offsets


def headers_of(log: list[Batch]) -> BatchHeaderColumns:
    base_offsets = np.array(offsets_of(log), np.int64)

    def column(name: str) -> np.ndarray:
        return np.array([getattr(batch, name) for batch in log], np.int64)

    return BatchHeaderColumns(
        sizes=column("size"),
        base_offsets=base_offsets,
        last_offsets=base_offsets + column("span") - 1,
        attributes=column("attributes"),
        base_timestamps=column("base_timestamp"),
        max_timestamps=column("max_timestamp"),
        producer_ids=column("producer_id"),
        record_counts=column("records"),
    )


def cut(headers: BatchHeaderColumns, chosen: slice) -> BatchHeaderColumns:
    return BatchHeaderColumns(*(column[chosen] for column in attrs.astuple(headers, recurse=False)))


def folded(log: list[Batch], headers: BatchHeaderColumns, chosen: slice) -> PartitionStatistics:
    bad = tuple(
        BadBatch(offset, offset + batch.span - 1, batch.size, "there")
        for offset, batch in zip(offsets_of(log)[chosen], log[chosen], strict=True)
        if batch.is_bad
    )
    return statistics_of(PARTITION, cut(headers, chosen), bad_batches=bad)


@given(st.lists(batches, max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_slices_joined_are_the_whole(log: list[Batch], cuts: list[int]):
    headers = headers_of(log)
    borders = [0, *sorted(min(each, len(log)) for each in cuts), len(log)]
    slices = [folded(log, headers, slice(start, end)) for start, end in pairwise(borders)]
    assert joined(slices) == folded(log, headers, slice(0, len(log)))


@given(st.lists(batches, min_size=1, max_size=30))
def test_lateness_is_what_a_loop_finds(log: list[Batch]):
    highest, late, worst, worst_offset = -1, 0, 0, NO_OFFSET
    for offset, batch in zip(offsets_of(log), log, strict=True):
        if batch.attributes & CONTROL or not batch.records or batch.max_timestamp < 0:
            continue
        lag = highest - batch.max_timestamp
        late += lag > 0
        if lag > worst:
            worst, worst_offset = lag, offset
        highest = max(highest, batch.max_timestamp)
    order = folded(log, headers_of(log), slice(0, len(log))).order
    if order is None:
        assert highest == -1
        return
    assert order.highest == highest
    assert (order.late_count, order.worst_lag_ms, order.worst_offset) == (late, worst, worst_offset)


@given(st.lists(batches, min_size=1, max_size=30))
def test_counts_are_what_a_loop_finds(log: list[Batch]):
    data = [batch for batch in log if not batch.attributes & CONTROL]
    found = folded(log, headers_of(log), slice(0, len(log)))
    assert found.data_batches == len(data) == found.size_bins.sum() == found.record_bins.sum()
    assert found.control_batches == len(log) - len(data)
    assert found.record_count == sum(batch.records for batch in data) == found.codec_records.sum()
    assert found.data_bytes == sum(batch.size for batch in data) == found.codec_bytes.sum()
    assert found.data_bytes + found.control_bytes == sum(batch.size for batch in log)
    assert found.missing_between == sum(batch.gap for batch in log[1:])
    assert found.gap_count == sum(batch.gap > 0 for batch in log[1:])
    assert found.longest_gap.offsets == max((batch.gap for batch in log[1:]), default=0)
    assert found.missing_inside == sum(max(0, batch.span - batch.records) for batch in log)
    assert found.bad_count == len(found.bad_batches) == sum(batch.is_bad for batch in log)


def test_a_gap_at_the_border_of_two_slices_is_found():
    log = [Batch(span=5, records=5), Batch(gap=7)]
    headers = headers_of(log)
    whole = joined([folded(log, headers, slice(0, 1)), folded(log, headers, slice(1, 2))])
    assert (whole.gap_count, whole.missing_between, whole.longest_gap) == (1, 7, Gap(7, 15))


def test_a_slice_that_was_in_order_by_itself_is_late_behind_a_higher_one():
    log = [Batch(max_timestamp=9), *(Batch(max_timestamp=time) for time in (3, 8, 9, 12))]
    headers = headers_of(log)
    later = folded(log, headers, slice(1, 5))
    assert later.order is not None
    assert later.order.late_count == 0
    order = joined([folded(log, headers, slice(0, 1)), later]).order
    assert order is not None
    assert (order.late_count, order.worst_lag_ms, order.worst_offset) == (2, 6, 11)


def test_the_first_timestamp_is_no_delete_horizon_and_no_base_of_log_append_time():
    for attributes in (0x40, LOG_APPEND):
        log = [Batch(attributes=attributes, base_timestamp=1, max_timestamp=50)]
        assert folded(log, headers_of(log), slice(0, 1)).first_timestamp == 50


def test_each_bin_holds_the_values_that_it_says():
    values = np.array([0, 1, 2, 3, 4, 7, 8, 2**31 - 1, 2**31, 2**31 + 11])
    for value, index in zip(values.tolist(), bins_of(values).tolist(), strict=True):
        low, high = bin_bounds(index)
        assert low <= value <= high
        assert index < BINS


@pytest.mark.parametrize(("number", "name"), [(0, "none"), (4, "zstd"), (6, "unknown (6)")])
def test_codecs_have_kafka_s_names(number: int, name: str):
    assert codec_name(number) == name
