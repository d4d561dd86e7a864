"""The offsets of a partition: one rule moves the high watermark, and the last stable offset follows."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trio_broker.partition.state import Advance, PartitionState
from trio_broker.storage.open_transactions import OpenTransactions


def state(
    *, waits_for_disk: bool = False, end: int = 0, transactions: OpenTransactions | None = None
) -> PartitionState:
    return PartitionState(
        leader_epoch=0,
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        durable_offset=end,
        waits_for_disk=waits_for_disk,
        transactions=transactions or OpenTransactions(),
    )


def test_alone_and_with_the_page_cache_an_append_is_visible_at_once():
    alone = state()
    assert alone.appended(3, 100) is Advance.DECIDED
    assert (alone.last_stable_offset, alone.high_watermark, alone.visible_bytes) == (3, 3, 100)


def test_where_the_disk_counts_the_high_watermark_is_the_durable_offset():
    synced = state(waits_for_disk=True)
    assert synced.appended(2, 50) is Advance.NOTHING
    assert synced.appended(5, 70) is Advance.NOTHING
    assert synced.synced(2) is Advance.DECIDED
    assert (synced.high_watermark, synced.visible_bytes) == (2, 50)
    assert synced.synced(5) is Advance.DECIDED
    assert (synced.high_watermark, synced.visible_bytes) == (5, 120)


def test_a_sync_that_reaches_no_further_is_our_bug():
    synced = state(waits_for_disk=True, end=4)
    for offset in (4, 5):
        with pytest.raises(AssertionError):
            synced.synced(offset)


def test_the_slowest_in_sync_replica_holds_the_high_watermark_and_one_that_left_does_not():
    leader = state()
    leader.lead(1, {2: 0, 3: 0})
    assert leader.appended(10, 100) is Advance.NOTHING
    assert leader.set_in_sync_replicas({2: 10, 3: 4}) is Advance.DECIDED
    assert leader.high_watermark == 4
    assert leader.set_in_sync_replicas({2: 10}) is Advance.DECIDED
    assert leader.high_watermark == 10


def test_disk_and_replicas_count_both():
    leader = state(waits_for_disk=True)
    leader.lead(1, {2: 0})
    leader.appended(10, 100)
    assert leader.set_in_sync_replicas({2: 10}) is Advance.NOTHING
    assert leader.synced(7) is Advance.DECIDED
    assert leader.high_watermark == 7


def test_a_new_leader_keeps_its_high_watermark_until_all_replicas_have_reached_it():
    leader = state(end=8)
    assert leader.lead(3, {2: 0}) is Advance.NOTHING
    assert leader.high_watermark == 8
    assert leader.set_in_sync_replicas({2: 5}) is Advance.NOTHING
    leader.appended(9, 10)
    assert leader.set_in_sync_replicas({2: 9}) is Advance.DECIDED


def test_a_follower_sees_what_its_leader_says_as_far_as_its_log_goes():
    follower = state(end=4)
    follower.follow(1)
    assert follower.appended(6, 10) is Advance.NOTHING
    assert follower.leader_reported(5) is Advance.DECIDED
    assert follower.leader_reported(100) is Advance.DECIDED
    assert follower.high_watermark == 6
    assert follower.leader_reported(2) is Advance.NOTHING, "a new leader may be behind"
    assert follower.high_watermark == 6


def test_a_follower_that_is_cut_forgets_what_was_behind():
    follower = state(end=4)
    follower.follow(1)
    follower.appended(8, 40)
    follower.leader_reported(8)
    follower.truncated(0, 5, 4, OpenTransactions())
    assert (follower.durable_offset, follower.high_watermark, follower.log_end_offset) == (4, 5, 5)
    follower.truncated(90, 90, 90, OpenTransactions())
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (90, 90, 90)


def test_an_epoch_never_goes_back():
    partition = state()
    partition.lead(5, {})
    with pytest.raises(AssertionError):
        partition.lead(4, {})
    with pytest.raises(AssertionError):
        partition.follow(4)


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


class PartitionStateMachine(RuleBasedStateMachine):
    """Any order of events, against the rule written in another way."""

    @initialize(waits_for_disk=st.booleans(), end=st.integers(0, 5))
    def begin(self, waits_for_disk: bool, end: int) -> None:
        self.transactions = OpenTransactions()
        self.state = state(waits_for_disk=waits_for_disk, end=end, transactions=self.transactions)
        self.replicas: dict[int, int] = {}
        self.leader_high_watermark = end
        # First offset to the offset of its marker, None while it is open.
        self.begun: dict[int, int | None] = {}
        self.highest = end

    def bounds(self) -> list[int]:
        """Everything that the high watermark may not get past."""
        bounds = [self.state.log_end_offset]
        if self.state.waits_for_disk:
            bounds.append(self.state.durable_offset)
        return bounds + (list(self.replicas.values()) if self.state.is_leader else [self.leader_high_watermark])

    @rule(records=st.integers(1, 3))
    def append(self, records: int) -> None:
        self.state.appended(self.state.log_end_offset + records, records)

    @rule(records=st.integers(1, 3))
    def append_in_a_transaction(self, records: int) -> None:
        first_offset = self.state.log_end_offset
        self.transactions.begin(first_offset, producer_id=first_offset)
        self.begun[first_offset] = None
        self.state.appended(first_offset + records, records)

    @precondition(lambda self: None in self.begun.values())
    @rule(data=st.data())
    def end_a_transaction(self, data: st.DataObject) -> None:
        first_offset = data.draw(st.sampled_from([first for first, marker in self.begun.items() if marker is None]))
        marker_offset = self.state.log_end_offset
        self.transactions.decide(first_offset, marker_offset)
        self.begun[first_offset] = marker_offset
        self.state.appended(marker_offset + 1, 1)

    @precondition(lambda self: self.state.durable_offset < self.state.log_end_offset)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.state.synced(data.draw(st.integers(self.state.durable_offset + 1, self.state.log_end_offset)))

    @precondition(lambda self: self.state.is_leader)
    @rule(replica=st.integers(2, 4), data=st.data())
    def replica_fetches(self, replica: int, data: st.DataObject) -> None:
        self.replicas = {**self.replicas, replica: data.draw(st.integers(0, self.state.log_end_offset))}
        self.state.set_in_sync_replicas(self.replicas)

    @precondition(lambda self: self.state.is_leader and self.replicas)
    @rule(data=st.data())
    def replica_falls_behind(self, data: st.DataObject) -> None:
        gone = data.draw(st.sampled_from(sorted(self.replicas)))
        self.replicas = {replica: end for replica, end in self.replicas.items() if replica != gone}
        self.state.set_in_sync_replicas(self.replicas)

    @rule()
    def become_leader(self) -> None:
        self.replicas = {}
        self.state.lead(self.state.leader_epoch + 1, self.replicas)

    @rule()
    def become_follower(self) -> None:
        self.state.follow(self.state.leader_epoch + 1)
        self.leader_high_watermark = self.state.high_watermark

    @precondition(lambda self: not self.state.is_leader)
    @rule(offset=st.integers(0, 60))
    def hear_from_the_leader(self, offset: int) -> None:
        self.leader_high_watermark = offset
        self.state.leader_reported(offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        start, end = self.state.log_start_offset, self.state.high_watermark
        self.state.log_start_moved(data.draw(st.integers(start, end)))

    @precondition(lambda self: not self.state.is_leader and not self.begun)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.state.log_start_offset, self.state.log_end_offset))
        durable = min(self.state.durable_offset, end)
        self.state.truncated(self.state.log_start_offset, end, durable, self.transactions)
        self.highest = self.state.high_watermark
        self.leader_high_watermark = min(self.leader_high_watermark, end)

    @invariant()
    def offsets_are_in_order(self) -> None:
        now = self.state
        assert now.log_start_offset <= now.last_stable_offset <= now.high_watermark <= now.log_end_offset

    @invariant()
    def the_high_watermark_grows_up_to_what_bounds_it(self) -> None:
        self.highest = max(self.highest, min(self.bounds()))
        assert self.state.high_watermark == self.highest

    @invariant()
    def the_last_stable_offset_is_the_first_that_is_not_decided_and_safe(self) -> None:
        high_watermark = self.state.high_watermark
        unsafe = (first for first, marker in self.begun.items() if marker is None or marker >= high_watermark)
        stable = min(high_watermark, min(unsafe, default=high_watermark))
        assert self.state.last_stable_offset == max(stable, self.state.log_start_offset)


TestPartitionStateMachine = PartitionStateMachine.TestCase
