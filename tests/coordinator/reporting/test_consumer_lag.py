"""Lag is reported in records and in seconds, from what the broker itself saw, and from the log for what was before."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.offset_commits import encode_commit_key, encode_commit_value
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch, make_replicas
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.reporting.lag import consumer_lags
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupSnapshot, GroupType, MemberSnapshot
from trio_broker.partition.append_times import AppendTimes
from trio_broker.storage.log_reader import LogReader


@pytest.fixture
async def replicas(tmp_path, nursery):
    made = make_replicas(tmp_path / "data", log_durability="page-cache")
    await nursery.start(made.run)
    yield made
    made.log_manager.close(clean=False)


def committed(*commits: tuple[str, int, int], group_id: str = "g") -> CommittedOffsets:
    offsets = CommittedOffsets()
    for topic, index, offset in commits:
        offsets.put(encode_commit_key(group_id, topic, index), encode_commit_value(offset, 0, "", NOW_MS))
    return offsets


def described(**assignments: dict[str, tuple[int, ...]] | None) -> GroupSnapshot:
    members = tuple(
        MemberSnapshot(
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topics=(),
            assignment=assignment,
        )
        for member_id, assignment in assignments.items()
    )
    return GroupSnapshot(
        group_id="g",
        type=GroupType.CLASSIC,
        protocol_type="consumer",
        protocol="range",
        state="Stable",
        generation=1,
        leader=None,
        member_count=len(members),
        members=members,
    )


async def append(replicas, partition, *values: bytes, at_ms: int) -> None:
    replicas.clock.time_ms = at_ms
    await append_to_leader(replicas, partition, batch(*values, timestamp=at_ms - 500))


WEEK_MS = 7 * 24 * 3_600_000


def a_week_later(group_id: str, topic: str, commit: OffsetAndMetadata) -> int:
    return commit.commit_timestamp_ms + WEEK_MS


async def test_an_offset_says_when_it_expires(replicas):
    await add_topic(replicas, partitions=2)
    found = await lags(replicas, committed(("orders", 0, 0)), described(m1={"orders": (0, 1)}))
    committed_at_ms = found["orders", 0].committed_at_ms
    assert committed_at_ms is not None
    assert found["orders", 0].expires_at_ms == committed_at_ms + WEEK_MS
    assert found["orders", 1].expires_at_ms is None


async def lags(
    replicas, offsets, description=None, *, now_ms: int = NOW_MS + 60_000
) -> dict[tuple[str, int], ConsumerLag]:
    found = await consumer_lags(description or described(), offsets, replicas, now_ms, a_week_later)
    return {(lag.topic, lag.partition): lag for lag in found}


async def one_lag(replicas, offset: int, **options) -> tuple[int | None, float | None]:
    lag = (await lags(replicas, committed(("orders", 0, offset)), **options))["orders", 0]
    return lag.lag_records, lag.lag_seconds


async def test_lag_in_seconds_is_the_age_of_the_first_record_that_is_not_consumed(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", b"b", at_ms=NOW_MS)
    await append(replicas, partition, b"c", at_ms=NOW_MS + 20_000)
    assert await one_lag(replicas, 0) == (3, 60.0)
    assert await one_lag(replicas, 1) == (2, 60.0)
    assert await one_lag(replicas, 2) == (1, 40.0)


async def test_a_group_that_has_caught_up_lags_by_nothing_however_old_the_last_record(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", at_ms=NOW_MS)
    assert await one_lag(replicas, 1) == (0, 0.0)
    assert await one_lag(replicas, 7) == (0, 0.0)


async def test_after_a_restart_the_batch_tells_its_own_time(replicas):
    """The timestamp is the producer's, half a second before the append that nobody remembers."""
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", b"b", at_ms=NOW_MS)
    await append(replicas, partition, b"c", at_ms=NOW_MS + 10_000)
    partition.writer.append_times = AppendTimes()
    await append(replicas, partition, b"d", at_ms=NOW_MS + 20_000)
    assert await one_lag(replicas, 1) == (3, 60.5)
    assert await one_lag(replicas, 2) == (2, 50.5)
    assert await one_lag(replicas, 3) == (1, 40.0)


async def test_records_without_timestamps_lag_by_an_unknown_time(replicas):
    [partition] = await add_topic(replicas)
    await append_to_leader(replicas, partition, batch(b"a", timestamp=-1))
    partition.writer.append_times = AppendTimes()
    assert await one_lag(replicas, 0) == (1, None)


async def test_a_clock_that_was_set_back_makes_no_negative_lag(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", at_ms=NOW_MS)
    assert await one_lag(replicas, 0, now_ms=NOW_MS - 5000) == (1, 0.0)


async def test_what_was_deleted_before_it_was_read_counts_from_the_first_record_that_is_left(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", at_ms=NOW_MS)
    await append(replicas, partition, b"b", at_ms=NOW_MS + 30_000)
    await partition.writer.delete_before(1)
    assert await one_lag(replicas, 0) == (2, 30.0)


async def test_a_commit_before_the_start_of_an_empty_log_waits_for_nothing(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", b"b", b"c", at_ms=NOW_MS)
    await partition.writer.delete_before(3)
    for now_ms in (NOW_MS, NOW_MS + 60_000):
        assert await one_lag(replicas, 1, now_ms=now_ms) == (2, 0.0), "records by their offsets, as in Kafka"


async def test_partitions_come_in_order_with_their_owners_committed_or_not(replicas):
    for partition in await add_topic(replicas, partitions=11):
        await append(replicas, partition, b"a", at_ms=NOW_MS)
    description = described(m1={"orders": (10, 0)}, m2={"orders": (1,)}, m3=None)
    found = await consumer_lags(
        description, committed(("orders", 2, 1), ("orders", 0, 0)), replicas, NOW_MS, a_week_later
    )
    assert [(lag.partition, lag.member_id, lag.committed_offset, lag.lag_records) for lag in found] == [
        (0, "m1", 0, 1),
        (1, "m2", None, None),
        (2, None, 1, 0),
        (10, "m1", None, None),
    ]
    assert [lag.log_end_offset for lag in found] == [1] * 4


async def test_a_topic_that_is_gone_has_a_commit_and_no_lag(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", at_ms=NOW_MS)
    found = await lags(replicas, committed(("gone", 0, 5), ("orders", 7, 3), ("orders", 0, 0)))
    for place in (("gone", 0), ("orders", 7)):
        lag = found[place]
        assert (lag.log_end_offset, lag.lag_records, lag.lag_seconds) == (None, None, None)
    partition.fail(KafkaError("its disk failed", code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert await one_lag(replicas, 0) == (None, None)


async def test_a_record_that_goes_while_it_is_looked_up_lags_by_an_unknown_time(replicas, monkeypatch):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", at_ms=NOW_MS)
    partition.writer.append_times = AppendTimes()

    def gone(*args, **options):
        raise FileNotFoundError("00000000000000000000.log")

    monkeypatch.setattr(LogReader, "read", gone)
    assert await one_lag(replicas, 0) == (1, None)


async def test_only_the_high_watermark_counts_since_nobody_can_read_beyond(replicas):
    [partition] = await add_topic(replicas)
    await append(replicas, partition, b"a", b"b", at_ms=NOW_MS)
    partition.writer.state.high_watermark = 1
    assert await one_lag(replicas, 0) == (1, 60.0)
    assert await one_lag(replicas, 1) == (0, 0.0)
