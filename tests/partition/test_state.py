"""The offsets of a partition: one rule moves the high watermark, and the last stable offset follows."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.partition.real_logs import NODE_ID, FakeBrokers, followed, led
from trio_broker.partition.in_sync_replicas import PendingExpandIsr, PendingPartitionChange, PendingShrinkIsr
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.remote_replicas import FollowerFetch, RemoteReplicas
from trio_broker.partition.state import Advance, PartitionState
from trio_broker.storage.open_transactions import OpenTransactions

LAG_SECONDS = 30.0


def state(
    *,
    waits_for_disk: bool = False,
    end: int = 0,
    transactions: OpenTransactions | None = None,
    brokers: FakeBrokers | None = None,
    min_isr: int = 1,
) -> PartitionState:
    """One that leads alone in epoch 0; brokers 2 and 3 are alive in their epochs 20 and 30."""
    made = PartitionState(
        RemoteReplicas(NODE_ID, brokers or FakeBrokers({NODE_ID: 10, 2: 20, 3: 30}), LAG_SECONDS),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        durable_offset=end,
        waits_for_disk=waits_for_disk,
        transactions=transactions or OpenTransactions(),
        min_in_sync_replicas=min_isr,
    )
    made.lead(led(0), 0.0)
    return made


def fetch(
    leader: PartitionState, replica: int, offset: int, now: float = 0.0, *, epoch: int | None = None
) -> PendingPartitionChange | None:
    """A replica fetches from ``offset`` on."""
    broker_epoch = replica * 10 if epoch is None else epoch
    fetched = FollowerFetch(replica, broker_epoch, offset, 0, leader.log_end_offset, now)
    return leader.follower_fetched(fetched).wanted


def answer(leader: PartitionState, isr: set[int] | frozenset[int]) -> LeaderAndIsr:
    """What the controller says when it has made ``isr`` the in-sync replicas."""
    replicas = (NODE_ID, *leader.remote.replicas)
    partition_epoch = leader.remote.partition_epoch + 1
    return led(leader.leader_epoch, isr=tuple(isr), replicas=replicas, partition_epoch=partition_epoch)


# ---- one replica


def test_alone_and_with_the_page_cache_an_append_is_visible_at_once():
    alone = state()
    assert alone.appended(3, 100) is Advance.DECIDED
    assert (alone.last_stable_offset, alone.high_watermark, alone.newly_visible_bytes) == (3, 3, 100)


def test_where_the_disk_counts_the_high_watermark_is_the_durable_offset():
    synced = state(waits_for_disk=True)
    assert synced.appended(2, 50) is Advance.NOTHING
    assert synced.appended(5, 70) is Advance.NOTHING
    assert synced.synced(2) is Advance.DECIDED
    assert (synced.high_watermark, synced.newly_visible_bytes) == (2, 50)
    assert synced.synced(5) is Advance.DECIDED
    assert (synced.high_watermark, synced.newly_visible_bytes) == (5, 70)


def test_a_sync_that_reaches_no_further_is_our_bug():
    synced = state(waits_for_disk=True, end=4)
    for offset in (4, 5):
        with pytest.raises(AssertionError):
            synced.synced(offset)


def test_more_in_sync_replicas_than_there_are_replicas_are_not_demanded():
    """As Kafka has it since KIP-966: the setting of a cluster is good for a topic with one replica too."""
    alone = state(min_isr=2)
    assert (alone.is_under_min_isr, alone.min_in_sync_replicas) == (False, 1)
    assert alone.appended(3, 100) is Advance.DECIDED


def test_an_epoch_never_goes_back():
    partition = state()
    partition.lead(led(5), 0.0)
    with pytest.raises(AssertionError):
        partition.lead(led(4), 0.0)
    with pytest.raises(AssertionError):
        partition.follow(followed(4))


# ---- several replicas


def test_the_slowest_in_sync_replica_holds_the_high_watermark():
    leader = state()
    leader.lead(led(1, 2, 3), 0.0)
    assert leader.appended(10, 100) is Advance.NOTHING
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    fetch(leader, 3, 4)
    assert leader.high_watermark == 4


def test_one_that_is_to_leave_holds_it_until_the_controller_has_agreed():
    leader = state()
    leader.lead(led(1, 2, 3), 0.0)
    leader.appended(10, 100)
    fetch(leader, 2, 10, 40.0)
    change = leader.check_lag(40.0)
    assert isinstance(change.wanted, PendingShrinkIsr)
    assert set(change.wanted.wanted_isr) == {NODE_ID, 2}
    assert leader.high_watermark == 0
    assert leader.isr_altered(change.wanted, answer(leader, {NODE_ID, 2}), 40.0) is Advance.DECIDED
    assert leader.high_watermark == 10


def test_one_that_is_to_join_holds_it_at_once():
    leader = state(end=5)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    wanted = fetch(leader, 2, 5)
    assert isinstance(wanted, PendingExpandIsr)
    assert leader.in_sync_replica_count == 1
    assert leader.appended(8, 10) is Advance.NOTHING
    fetch(leader, 2, 8)
    assert leader.high_watermark == 8
    leader.isr_altered(wanted, answer(leader, wanted.wanted_isr), 0.0)
    assert leader.in_sync_replica_count == 2


def test_one_does_not_join_before_it_has_the_beginning_of_the_epoch():
    """What is between the high watermark and that may be committed, under an earlier leader."""
    leader = state(end=5)
    leader.appended(9, 10)
    leader.follow(followed(1))
    leader.high_watermark = leader.last_stable_offset = 5
    leader.lead(led(2, isr=(NODE_ID,), replicas=(NODE_ID, 2), partition_epoch=2), 0.0)
    leader.high_watermark = leader.last_stable_offset = 5
    assert fetch(leader, 2, 8) is None
    assert fetch(leader, 2, 9) is not None


@pytest.mark.parametrize(
    ("brokers", "epoch"),
    [
        (FakeBrokers({NODE_ID: 10}), 20),  # fenced
        (FakeBrokers({NODE_ID: 10, 2: 20}, {2}), 20),  # in its controlled shutdown
        (FakeBrokers({NODE_ID: 10, 2: 20}), 21),  # of a registration that has not been read here
    ],
)
def test_one_whose_broker_may_not_join_is_not_asked_for(brokers, epoch):
    leader = state(brokers=brokers)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    assert fetch(leader, 2, 0, epoch=epoch) is None


def test_a_fetch_of_an_earlier_life_of_a_broker_is_refused():
    leader = state()
    leader.lead(led(1, 2), 0.0)
    leader.appended(3, 10)
    with pytest.raises(KafkaError) as refused:
        fetch(leader, 2, 3, epoch=19)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.high_watermark == 0


def test_nothing_moves_while_too_few_are_in_sync():
    leader = state(min_isr=2)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2, 3)), 0.0)
    assert leader.is_under_min_isr
    assert leader.appended(3, 10) is Advance.NOTHING
    assert leader.set_min_in_sync_replicas(1, 0.0) is Advance.DECIDED
    assert leader.high_watermark == 3


def test_an_expansion_counts_as_in_sync_once_it_is_committed():
    leader = state(min_isr=2)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    leader.appended(3, 10)
    wanted = fetch(leader, 2, 3)
    assert wanted is not None
    assert leader.high_watermark == 0
    assert leader.isr_altered(wanted, answer(leader, wanted.wanted_isr), 0.0) is Advance.DECIDED


def test_disk_and_replicas_count_both():
    leader = state(waits_for_disk=True)
    leader.lead(led(1, 2), 0.0)
    leader.appended(10, 100)
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    assert leader.synced(7) is Advance.DECIDED
    assert leader.high_watermark == 7


def test_a_new_leader_keeps_its_high_watermark_until_all_in_sync_have_reached_it():
    leader = state(end=8)
    assert leader.lead(led(3, 2), 0.0) is Advance.NOTHING
    fetch(leader, 2, 5)
    assert leader.high_watermark == 8
    leader.appended(9, 10)
    fetch(leader, 2, 9)
    assert leader.high_watermark == 9


@pytest.mark.parametrize(
    ("code", "asks_again", "is_pending"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, False, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, False, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False, True),
        (ErrorCode.INVALID_REQUEST, False, True),
        (ErrorCode.NEW_LEADER_ELECTED, False, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, False, True),
        (ErrorCode.NOT_CONTROLLER, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True, True),
    ],
)
def test_only_an_answer_that_nothing_was_done_takes_a_change_back(code, asks_again, is_pending):
    leader = state()
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    wanted = fetch(leader, 2, 0)
    assert wanted is not None
    change = leader.isr_refused(wanted, code, 0.0)
    assert (change.wanted is wanted, leader.remote.state is wanted) == (asks_again, is_pending)


def test_an_answer_that_newer_metadata_have_overtaken_changes_nothing():
    leader = state()
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    wanted = fetch(leader, 2, 0)
    assert wanted is not None
    late = answer(leader, wanted.wanted_isr)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2), partition_epoch=9), 0.0)
    leader.isr_altered(wanted, late, 0.0)
    leader.isr_refused(wanted, ErrorCode.INELIGIBLE_REPLICA, 0.0)
    assert (leader.in_sync_replica_count, leader.remote.partition_epoch) == (1, 9)


def test_metadata_older_than_an_answer_change_nothing():
    leader = state()
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    wanted = fetch(leader, 2, 0)
    assert wanted is not None
    leader.isr_altered(wanted, answer(leader, wanted.wanted_isr), 0.0)
    leader.lead(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    assert leader.in_sync_replica_count == 2


def test_the_end_of_a_reassignment_takes_replicas_away_that_its_answer_does_not_name():
    leader = state()
    leader.lead(led(1, 2, 3), 0.0)
    fetch(leader, 2, 0, 40.0)
    wanted = leader.check_lag(40.0).wanted
    assert wanted is not None
    leader.isr_altered(wanted, answer(leader, wanted.wanted_isr), 40.0)
    completed = led(1, 2, partition_epoch=leader.remote.partition_epoch)
    leader.lead(completed, 40.0)
    assert (set(leader.remote.replicas), leader.in_sync_replica_count) == ({2}, 2)


def test_one_that_always_has_what_there_was_at_its_last_fetch_keeps_up():
    leader = state()
    leader.lead(led(1, 2), 0.0)
    for turn in range(1, 10):
        leader.appended(turn * 10, 10)
        fetch(leader, 2, (turn - 1) * 10, turn * 20.0)
        assert leader.check_lag(turn * 20.0 + 5).wanted is None
    assert leader.check_lag(10 * 20.0 + 5).wanted is not None


# ---- a follower


def test_a_follower_sees_what_its_leader_says_as_far_as_its_log_goes():
    follower = state(end=4)
    follower.follow(followed(1))
    assert follower.appended(6, 10) is Advance.NOTHING
    assert follower.leader_reported(5) is Advance.DECIDED
    assert follower.leader_reported(100) is Advance.DECIDED
    assert follower.high_watermark == 6
    assert follower.leader_reported(2) is Advance.NOTHING, "a new leader may be behind"
    assert follower.high_watermark == 6


def test_a_follower_that_is_cut_forgets_what_was_behind():
    follower = state(end=4)
    follower.follow(followed(1))
    follower.appended(8, 40)
    follower.leader_reported(8)
    follower.truncated(0, 5, 4, OpenTransactions())
    assert (follower.durable_offset, follower.high_watermark, follower.log_end_offset) == (4, 5, 5)
    follower.truncated(90, 90, 90, OpenTransactions())
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (90, 90, 90)


# ---- transactions


def test_an_open_transaction_holds_the_last_stable_offset_until_its_marker_is_below_the_high_watermark():
    transactions = OpenTransactions()
    synced = state(waits_for_disk=True, transactions=transactions)
    synced.appended(2, 10)
    assert synced.synced(2) is Advance.DECIDED
    transactions.begin(2, 7)
    synced.appended(4, 10)
    assert synced.synced(4) is Advance.UNDECIDED
    assert (synced.last_stable_offset, synced.high_watermark) == (2, 4)
    transactions.decide(2, 4)
    synced.appended(5, 10)
    assert synced.last_stable_offset == 2, "the marker may still be lost"
    assert synced.synced(5) is Advance.RELEASED
    assert (synced.last_stable_offset, synced.high_watermark) == (5, 5)


def test_the_first_advance_into_an_open_transaction_releases_what_is_before_it():
    transactions = OpenTransactions()
    synced = state(waits_for_disk=True, transactions=transactions)
    synced.appended(2, 10)
    transactions.begin(2, 7)
    synced.appended(4, 10)
    assert synced.synced(4) is Advance.RELEASED
    assert synced.last_stable_offset == 2
