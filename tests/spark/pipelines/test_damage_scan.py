"""A sweep counts every batch once, in whichever slices, and goes on behind damage."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.records.compression import Codec
from tests.spark.pipelines.memory_log import (
    InMemory,
    batch,
    task_on,
    with_wrong_checksum,
    with_wrong_header,
)
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.pipelines.stats.batch_statistics import Damage, PartitionStatistics, joined
from trio_broker.spark.pipelines.stats.damage_scan import scan_headers

LOG = tuple(batch(offset, 10, codec=Codec((offset // 10) % 5)) for offset in range(0, 100, 10))


def scanned(transport: InMemory, start: int = 0, end: int = 100, *, first: bool = True) -> PartitionStatistics:
    return scan_headers(task_on(transport, start, end), includes_cut_batch=first, verify_crc=True)


def test_all_batches_of_a_log_are_counted():
    found = scanned(InMemory(LOG))
    assert (found.data_batches, found.record_count) == (10, 100)
    assert found.data_bytes == sum(len(each.data) for each in LOG)
    assert (found.first_offset, found.last_offset, found.bad_count) == (0, 99, 0)
    assert found.codec_records.tolist() == [20, 20, 20, 20, 20, 0, 0, 0]


@pytest.mark.parametrize("border", [1, 9, 10, 11, 45, 50, 99])
def test_each_batch_belongs_to_one_of_two_slices(border: int):
    transport = InMemory(LOG, index_every=3, batches_per_chunk=4)
    halves = joined([scanned(transport, 0, border), scanned(transport, border, 100, first=False)])
    assert halves == scanned(transport)


def test_the_batch_that_the_start_of_the_log_cuts_belongs_to_the_first_slice():
    assert scanned(InMemory(LOG), 25, 50).data_batches == 3
    assert scanned(InMemory(LOG), 25, 50, first=False).data_batches == 2


def test_a_batch_with_a_wrong_checksum_is_named_and_stepped_over():
    log = (*LOG[:4], with_wrong_checksum(LOG[4]), *LOG[5:])
    found = scanned(InMemory(log))
    assert found.data_batches == 10
    assert [(bad.base_offset, bad.last_offset, bad.origin) for bad in found.bad_batches] == [(40, 49, "memory")]


def test_checksums_are_left_alone_unless_asked_for():
    found = scan_headers(
        task_on(InMemory((with_wrong_checksum(LOG[0]),)), 0, 10), includes_cut_batch=True, verify_crc=False
    )
    assert found.bad_count == 0


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("batches_per_chunk", [1, 3])
def test_reading_goes_on_behind_a_header_that_is_none(batches_per_chunk: int, raises: bool):
    log = (*LOG[:4], with_wrong_header(LOG[4]), *LOG[5:])
    found = scanned(InMemory(log, batches_per_chunk=batches_per_chunk, raises=raises))
    assert found.data_batches == 9
    assert found.damage_count == 1
    [damage] = found.damages
    assert (damage.start_offset, damage.end_offset) == (40, 50)
    assert "orders-0 at offset 40: magic 119" in damage.reason


def test_what_the_index_cannot_reach_is_reported_as_unreadable():
    log = (*LOG[:4], with_wrong_header(LOG[4]), *LOG[5:])
    found = scanned(InMemory(log, index_every=3))
    assert [(damage.start_offset, damage.end_offset) for damage in found.damages] == [(40, 60)]
    assert found.data_batches == 8


def test_damage_up_to_the_end_of_a_slice_does_not_end_the_sweep():
    log = (*LOG[:8], with_wrong_header(LOG[8]), with_wrong_header(LOG[9]))
    found = scanned(InMemory(log))
    assert [(damage.start_offset, damage.end_offset) for damage in found.damages] == [(80, 100)]


def test_damage_in_two_places_is_reported_twice():
    log = tuple(with_wrong_header(each) if each.base_offset in (20, 70) else each for each in LOG)
    found = scanned(InMemory(log))
    assert [attrs.evolve(each, reason="") for each in found.damages] == [Damage(20, 30, ""), Damage(70, 80, "")]


def test_damage_behind_the_slice_is_no_damage():
    log = (*LOG[:5], with_wrong_header(LOG[5]))
    assert scanned(InMemory(log, batches_per_chunk=10), 0, 50).damage_count == 0


def test_a_source_that_does_not_answer_ends_the_sweep():
    @attrs.frozen
    class Silent(InMemory):
        def chunks(self, offsets):
            raise SourceUnavailable("nobody answers")
            yield

    with pytest.raises(SourceUnavailable):
        scanned(Silent(()))
