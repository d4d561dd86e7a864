"""Followers copy their leaders: records arrive, in-sync replicas leave and return, and logs that differ are cut."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from tests.partition.replica_cluster import replica_cluster
from tests.running_broker import until
from trio_broker.common.request_phase import ignore_release
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.partition.replica_fetcher import truncation_offset
from trio_broker.storage.leader_epochs import EpochEndOffset

MODES = pytest.mark.parametrize("durability", ["page-cache", "fsync"])


@MODES
async def test_records_arrive_and_are_visible_when_all_in_sync_have_them(tmp_path, durability):
    async with replica_cluster(tmp_path, 3, log_durability=durability) as cluster:
        await cluster.append(b"a", b"b", b"c")
        await cluster.until_visible(3)
        assert [cluster.values(each) for each in (1, 2, 3)] == [[b"a", b"b", b"c"]] * 3
        await until(lambda: {cluster.partition(each).high_watermark for each in (1, 2, 3)} == {3})
        assert {cluster.partition(each).log.latest_epoch for each in (1, 2, 3)} == {0}
        if durability == "fsync":
            assert {cluster.partition(each).state.durable_offset for each in (1, 2, 3)} == {3}


async def test_acks_all_waits_for_the_followers(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        cluster.cut_off.add(2)
        await cluster.append(b"a")
        appends = cluster.managers[1].appends
        required = [RequiredOffset(cluster.partition(1), 1)]
        [code] = await appends.wait_until_replicated(required, timeout_seconds=0.1, release_handler=ignore_release)
        assert code is ErrorCode.REQUEST_TIMED_OUT
        cluster.cut_off.clear()
        [code] = await appends.wait_until_replicated(required, timeout_seconds=20, release_handler=ignore_release)
        assert code is ErrorCode.NONE


async def test_in_sync_replicas_shrink_and_expand(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        leader, manager = cluster.partition(1), cluster.managers[1]
        await cluster.append(b"a")
        await cluster.until_visible(1)
        cluster.cut_off.add(2)
        await cluster.append(b"b")
        assert leader.high_watermark == 1
        cluster.advance(31)
        await manager.check_lag()
        await cluster.until_visible(2)
        assert (cluster.altered, leader.state.in_sync_replica_count) == ([(1,)], 1)
        cluster.cut_off.clear()
        await until(lambda: cluster.altered == [(1,), (1, 2)])
        assert cluster.values(2) == [b"a", b"b"]
        await cluster.append(b"c")
        await cluster.until_visible(3)
        assert cluster.values(2)[-1] == b"c"


@MODES
async def test_what_a_leader_had_alone_is_cut_when_it_follows(tmp_path, durability):
    """And what it had acknowledged with acks=all is not."""
    async with replica_cluster(tmp_path, log_durability=durability) as cluster:
        await cluster.append(b"kept", b"kept too")
        await cluster.until_visible(2)
        cluster.cut_off.add(1)
        await cluster.append(b"lost", b"lost too")
        assert cluster.values(1) == [b"kept", b"kept too", b"lost", b"lost too"]
        new = await cluster.elect(2)
        await append_to_leader(cluster.managers[2], new, batch(b"new"))
        cluster.cut_off.clear()
        await cluster.publish(1)
        await until(lambda: cluster.values(1) == [b"kept", b"kept too", b"new"])
        await cluster.until_visible(3)
        assert cluster.partition(1).log.epochs.entries == new.log.epochs.entries
        assert cluster.partition(1).failure is None
        with pytest.raises(KafkaError) as refused:
            await append_to_leader(cluster.managers[1], cluster.partition(1), batch(b"no"))
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_that_appended_nothing_follows_without_an_epoch_of_its_own(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        await cluster.append(b"a")
        await cluster.until_visible(1)
        await cluster.elect(2)
        await cluster.partition(2).writer.ready_to_append()
        await cluster.elect(1)
        await cluster.append(b"b")
        await cluster.until_visible(2)
        assert cluster.values(2) == [b"a", b"b"]
        assert cluster.partition(2).log.epochs.entries == cluster.partition(1).log.epochs.entries


async def test_a_follower_behind_the_start_of_its_leader_begins_anew_there(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        cluster.cut_off.add(2)
        await cluster.append(*(b"%d" % number for number in range(6)))
        await cluster.elect(1, isr=[1])
        assert await cluster.managers[1].delete_records({cluster.partition(1): 4}) == {cluster.partition(1): 4}
        cluster.cut_off.clear()
        await cluster.publish(2)
        await until(lambda: cluster.values(2) == [b"4", b"5"])
        assert cluster.partition(2).log_start_offset == 4
        await until(lambda: cluster.altered == [(1, 2)])


async def test_the_start_of_the_leader_s_log_is_the_start_of_its_followers(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        await cluster.append(b"a", b"b", b"c")
        await cluster.until_visible(3)
        await cluster.managers[1].delete_records({cluster.partition(1): 2})
        await until(lambda: cluster.partition(2).log_start_offset == 2)


async def test_a_follower_with_more_than_an_uncleanly_elected_leader_is_cut_to_it(tmp_path):
    async with replica_cluster(tmp_path, 3, log_durability="page-cache") as cluster:
        cluster.cut_off.add(3)
        await cluster.elect(1, isr=[1, 2])
        await cluster.append(b"a", b"b")
        await cluster.until_visible(2)
        cluster.cut_off.add(1)
        cluster.cut_off.remove(3)
        await cluster.elect(3, isr=[3])
        await until(lambda: cluster.values(2) == [])
        await cluster.append(b"new")
        await until(lambda: cluster.values(2) == [b"new"])


async def test_an_uncleanly_elected_leader_that_is_not_reached_stops_nothing_else(tmp_path):
    async with replica_cluster(tmp_path, 3, log_durability="page-cache") as cluster:
        cluster.cut_off.add(3)
        await cluster.append(b"a")
        await until(lambda: cluster.values(2) == [b"a"])


async def test_the_number_of_fetchers_is_live(tmp_path):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        manager = cluster.managers[2]
        manager.config.replication = manager.config.replication.__class__(
            num_replica_fetchers=7, replica_fetch_wait_max_ms=20
        )
        manager.reconfigure(manager.config)
        [fetcher] = manager.fetchers.fetchers()
        assert list(fetcher.partitions) == [cluster.partition(2).topic_partition]
        await cluster.append(b"a")
        await cluster.until_visible(1)
        await cluster.elect(2)
        assert manager.fetchers.fetchers() == []


@pytest.mark.parametrize(
    ("end", "offset"),
    [
        (EpochEndOffset(0, 1), 1),  # the leader had less of an epoch that both have
        (EpochEndOffset(0, 9), 2),  # or more
        (EpochEndOffset(1, 7), 2),  # an epoch that is unknown here: the one below it, and the leader is asked again
        (EpochEndOffset(3, 4), 4),
    ],
)
async def test_logs_are_cut_where_the_last_epoch_of_both_ends(tmp_path, end, offset):
    async with replica_cluster(tmp_path, log_durability="page-cache") as cluster:
        await cluster.append(b"a", b"b")
        for _ in range(3):
            await cluster.elect(1)
        await cluster.append(b"c", b"d", b"e")
        log = cluster.partition(1).log
        assert [each.epoch for each in log.epochs.entries] == [0, 3]
        assert truncation_offset(log, end) == offset
