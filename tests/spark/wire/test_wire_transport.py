"""Reading a range from its leader: what is asked, how large, how far ahead, and what becomes of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.messages.fetch import FetchRequest
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from tests.fakes.scripted_kafka import served_up_to
from tests.spark.scripted_partition import (
    ORDERS_0,
    TOPIC,
    TOPIC_ID,
    Reading,
    ScriptedPartition,
    Transaction,
    base_offsets,
    batch,
    batches,
    reading,
)
from tests.waits import within
from trio_broker.spark.chunk import AbortedTransactionStart, Chunk, Decoding
from trio_broker.spark.decoder import decode
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.wire.transport import LEAST_FETCH_BYTES, WireTransport

ONE_BATCH_BYTES = 1
"""So little that every answer has a single batch."""

SECONDS = 10.0


# What comes


def test_a_range_comes_whole_and_once_over_many_answers():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
        chunks = each.chunks(0, 100, kafka=small)
        assert base_offsets(chunks) == list(range(0, 100, 10))
        assert len(chunks) == 10
        assert b"".join(chunk.data for chunk in chunks) == b"".join(each.partition.batches)
        assert each.wanted_offsets == list(range(0, 100, 10))


def test_a_range_that_fits_into_one_answer_is_asked_for_once():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        [chunk] = each.chunks(0, 100, ask_ahead=True)
        assert chunk.origin == f"broker {each.server.address}"
        assert len(chunk.table) == 10
        assert len(each.fetches) == 1


def test_an_empty_range_is_not_asked_for():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        assert each.chunks(50, 50) == []
        assert each.server.asked == []


def test_the_first_batch_may_begin_before_the_range_and_nothing_behind_it_is_asked_for():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
        assert base_offsets(each.chunks(25, 41, kafka=small)) == [20, 30, 40]
        assert each.wanted_offsets == [25, 30, 40]


def test_gaps_that_compaction_left_are_crossed():
    with reading(ScriptedPartition([batch(0), batch(50), batch(95, count=50)])) as each:
        assert base_offsets(each.chunks(5, 100)) == [0, 50, 95]


def test_a_range_that_ends_within_a_gap_ends_with_the_batch_behind_it():
    with reading(ScriptedPartition([batch(0), batch(50)])) as each:
        small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
        assert base_offsets(each.chunks(0, 30, kafka=small)) == [0, 50]


def test_the_records_are_views_of_the_received_bytes():
    with reading(ScriptedPartition(batches(0, 20))) as each, each.opened(0, 20) as chunks:
        [chunk] = chunks
        assert isinstance(chunk.data.obj, bytearray)


# How much is asked for


def test_a_short_range_is_not_asked_for_in_full_size():
    with reading(ScriptedPartition(batches(0, 1000))) as each:
        each.chunks(0, 10)
        [wanted] = each.wanted_bytes
        assert LEAST_FETCH_BYTES <= wanted < 1024 * 1024


def test_the_end_of_a_range_is_asked_for_in_the_size_that_its_records_had():
    large = batches(0, 1000, value=b"x" * 5_000)
    with reading(ScriptedPartition(large)) as each:
        each.chunks(0, 600)
        first, second, *_ = each.wanted_bytes
        assert first == 600 * 1024 * 1.25
        assert 2_000_000 < second < 4_000_000


def test_no_answer_is_asked_for_beyond_the_limits():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        limited = each.with_settings(max_partition_fetch_bytes=100_000, fetch_max_bytes=90_000, fetch_min_bytes=7)
        each.chunks(0, 100, kafka=limited)
        [request] = each.fetches
        assert (each.wanted_bytes, request.max_bytes, request.min_bytes) == ([100_000], 90_000, 7)


def test_one_batch_comes_even_if_it_is_larger_than_all_limits():
    huge = batch(0, value=b"x" * 200_000)
    with reading(ScriptedPartition([huge, batch(10)])) as each:
        limited = each.with_settings(max_partition_fetch_bytes=1000, fetch_max_bytes=1000)
        assert base_offsets(each.chunks(0, 20, kafka=limited)) == [0, 10]


# How far ahead


def test_the_next_answer_is_under_way_while_the_last_one_is_used_and_no_further():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
        with each.opened(0, 100, kafka=small, ask_ahead=True) as chunks:
            next(chunks)
            assert within(lambda seconds: each.partition.fetched.acquire(timeout=seconds), SECONDS)
            assert within(lambda seconds: each.partition.fetched.acquire(timeout=seconds), SECONDS)
            assert each.wanted_offsets == [0, 10]
            next(chunks)
            assert within(lambda seconds: each.partition.fetched.acquire(timeout=seconds), SECONDS)
            assert each.wanted_offsets == [0, 10, 20]


def test_reading_ahead_changes_nothing_of_what_comes():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
        ahead = each.chunks(3, 97, kafka=small, ask_ahead=True)
        assert base_offsets(ahead) == base_offsets(each.chunks(3, 97, kafka=small)) == list(range(0, 100, 10))


def test_a_closed_transport_has_no_connection_left():
    with reading(ScriptedPartition(batches(0, 100))) as each:
        chunks = WireTransport(each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)).chunks(
            OffsetRange(ORDERS_0, 0, 100)
        )
        next(chunks)
        chunks.close()
        # Leaving the server waits for its connections, which end with ours: unclosed sockets are errors besides.
        for thread in each.server._threads[1:]:
            within(thread.join, SECONDS)
            assert not thread.is_alive()


# How it is asked


@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 15, 18])
def test_every_version_of_fetch_is_spoken(version: int):
    with reading(ScriptedPartition(batches(0, 20)), served=served_up_to(ApiKey.FETCH, version)) as each:
        assert base_offsets(each.chunks(0, 20)) == [0, 10]
        assert each.server.versions(FetchRequest) == [version]
        [request] = each.fetches
        assert (request.topics[0].topic, request.topics[0].topic_id) == (
            (TOPIC, NO_UUID) if version < 13 else ("", TOPIC_ID)
        )


def test_a_topic_without_an_id_goes_by_name():
    with reading(ScriptedPartition(batches(0, 20), topic_id=NO_UUID)) as each:
        assert base_offsets(each.chunks(0, 20)) == [0, 10]
        assert each.server.versions(FetchRequest) == [12]


@pytest.mark.parametrize("read_committed", [True, False])
def test_the_isolation_level_is_sent(read_committed: bool):
    with reading(ScriptedPartition(batches(0, 20))) as each:
        each.chunks(0, 20, read_committed=read_committed)
        assert each.fetches[0].isolation_level == int(read_committed)


def test_the_leader_epoch_is_sent():
    with reading(ScriptedPartition(batches(0, 20), leader_epoch=5)) as each:
        each.chunks(0, 20)
        assert each.fetches[0].topics[0].partitions[0].current_leader_epoch == 5


def test_the_transport_travels():
    with reading(ScriptedPartition(batches(0, 20))) as each:
        copy: Any = pickle.loads(pickle.dumps(each.transport))
        assert copy == each.transport
        assert [len(chunk.table) for chunk in copy.chunks(OffsetRange(ORDERS_0, 0, 20))] == [2]


# Aborted transactions


def test_every_answer_tells_the_aborted_transactions_that_go_on_in_it():
    partition = ScriptedPartition(batches(0, 50), aborted=[Transaction(7, 15, 35), Transaction(8, 31, 49)])
    with reading(partition) as each:
        chunks = each.chunks(0, 50, kafka=each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES))
        seven, eight = AbortedTransactionStart(7, 15), AbortedTransactionStart(8, 31)
        assert [chunk.aborted for chunk in chunks] == [(), (seven,), (seven,), (seven, eight), (eight,)]
        assert [chunk.resumes_at for chunk in chunks] == [0, 10, 20, 30, 40]


def test_a_transaction_that_began_before_the_range_is_reported():
    with reading(ScriptedPartition(batches(0, 100), aborted=[Transaction(7, 15, 55)])) as each:
        [chunk] = each.chunks(43, 50)
        assert (chunk.aborted, chunk.resumes_at) == ((AbortedTransactionStart(7, 15),), 43)


def committed_offsets(each: Reading, start: int, end: int, between: Callable[[int], None]) -> list[int]:
    """The offsets of the rows, one batch in each answer; ``between`` is called before each but the first one."""

    def one_by_one(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for index, chunk in enumerate(chunks):
            yield chunk
            between(index)

    small = each.with_settings(max_partition_fetch_bytes=ONE_BATCH_BYTES)
    with each.opened(start, end, kafka=small) as chunks:
        rows = decode(one_by_one(chunks), OffsetRange(ORDERS_0, start, end), Decoding(columns=("offset",)))
        return [offset for found in rows for offset in found.column("offset").to_pylist()]


OF_SEVEN: Any = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}


def test_an_abort_ends_with_its_marker_and_does_not_come_back():
    marker = build_control_batch(
        EndTransactionMarker(committed=False, coordinator_epoch=0),
        timestamp=1000,
        base_offset=30,
        producer_id=7,
        producer_epoch=0,
    )
    partition = ScriptedPartition(
        [batch(0), batch(10, **OF_SEVEN), batch(20, **OF_SEVEN), marker, batch(31, **OF_SEVEN), batch(41)],
        aborted=[Transaction(7, 10, 30)],
    )
    with reading(partition) as each:
        found = committed_offsets(each, 0, 51, lambda index: None)
        assert found == [*range(10), *range(31, 51)]


def test_an_abort_whose_marker_was_compacted_away_meanwhile_takes_nothing_that_was_committed():
    """All of the transaction may go with one cleaning, between two answers, after the first of them has named it."""
    partition = ScriptedPartition(
        [batch(0), batch(10, **OF_SEVEN), batch(20, **OF_SEVEN), batch(31, **OF_SEVEN)],
        aborted=[Transaction(7, 10, 30)],
        names_early=True,
    )

    def clean(index: int) -> None:
        partition.aborted = []
        partition.batches = [batch(0), batch(31, **OF_SEVEN)]

    with reading(partition) as each:
        assert committed_offsets(each, 0, 41, clean) == [*range(10), *range(31, 41)]
