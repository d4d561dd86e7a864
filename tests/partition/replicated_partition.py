"""A partition with three replicas as a model: a real ``PartitionState`` in broker 1, and around it a controller, two
other brokers with logs of their own, answers that are late or lost, and elections. All of it from a seed.

What must hold does not repeat the rules of the state: whatever the controller has as in-sync replicas at any moment may
be elected, so each of them has all that was ever visible.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs

from kafka_wire.error_codes import ErrorCode
from tests.partition.real_logs import NODE_ID, FakeBrokers
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.remote_replicas import FollowerFetch, RemoteReplicas
from trio_broker.partition.state import PartitionState
from trio_broker.storage.open_transactions import OpenTransactions

OTHERS = (2, 3)
REPLICAS = (NODE_ID, *OTHERS)
LAG_SECONDS = 30.0

LOST_ANSWERS = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NEW_LEADER_ELECTED)
"""What a leader may get that asks again for what was done, and whose first answer it has missed."""


@attrs.define
class Question:
    """An AlterPartition under way; ``outcome`` is set once the controller has dealt with it."""

    pending: PendingPartitionChange
    leader_epoch: int
    partition_epoch: int
    outcome: LeaderAndIsr | ErrorCode | None = None


class ReplicatedPartition:
    """See the head of the file. ``run`` raises AssertionError where something is lost."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.waits_for_disk = self.random.random() < 0.5
        self.min_isr = self.random.choice((1, 2, 3))
        self.now = 0.0
        self.state = PartitionState(
            RemoteReplicas(NODE_ID, FakeBrokers({1: 1, 2: 2, 3: 3}), LAG_SECONDS),
            log_start_offset=0,
            log_end_offset=0,
            high_watermark=0,
            durable_offset=0,
            waits_for_disk=self.waits_for_disk,
            transactions=OpenTransactions(),
            min_in_sync_replicas=self.min_isr,
        )
        # What the controller has decided, and the logs of the other brokers.
        self.leader = NODE_ID
        self.leader_epoch = self.partition_epoch = 0
        self.isr = frozenset(REPLICAS)
        self.ends = dict.fromkeys(OTHERS, 0)
        self.questions: list[Question] = []
        # Of this broker's log: what is on its disk.
        self.durable = 0
        # The largest high watermark that any leader has shown.
        self.visible = 0
        self.story: list[str] = []
        self._publish()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            before = (self.state.leader_epoch, self.state.is_leader, self.state.high_watermark)
            step = self.random.choice(self.steps())
            step()
            self.story.append(f"{step.__name__}: {self.state!r} isr {sorted(self.isr)} ends {self.ends}")
            self._compare(*before)
        self._settle()

    def steps(self) -> list[Callable[[], None]]:
        if self.leader != NODE_ID or not self.state.is_leader:
            return [self._follow_on, self._change_elsewhere, self._elect, self._elect]
        return [
            *[self._append, self._fetch, self._fetch, self._fetch, self._sync, self._wait, self._check_lag],
            *[self._decide, self._answer, self._publish, self._elect],
        ]

    # ---- this broker leads

    def _append(self) -> None:
        self.state.appended(self.state.log_end_offset + self.random.randint(1, 3), 10)

    def _sync(self) -> None:
        if self.durable < self.state.log_end_offset:
            self.durable = self.random.randint(self.durable + 1, self.state.log_end_offset)
            self.state.synced(self.durable)

    def _fetch(self, replica: int | None = None) -> None:
        """A follower says how far its log is, and then gets what the leader has, or a part of it, or nothing."""
        replica = replica or self.random.choice(OTHERS)
        leader_end = self.state.log_end_offset
        # One that has more than its leader learns that from the epochs, and cuts its log first.
        self.ends[replica] = min(self.ends[replica], leader_end)
        change = self.state.follower_fetched(
            FollowerFetch(replica, replica, self.ends[replica], 0, leader_end, self.now)
        )
        self._ask(change.wanted)
        self.ends[replica] = self.random.randint(self.ends[replica], leader_end)

    def _wait(self) -> None:
        self.now += self.random.choice((1.0, 20.0, 40.0))

    def _check_lag(self) -> None:
        self._ask(self.state.check_lag(self.now).wanted)

    def _ask(self, wanted: PendingPartitionChange | None) -> None:
        if wanted is not None:
            self.questions.append(Question(wanted, self.state.leader_epoch, self.state.remote.partition_epoch))

    # ---- the controller

    def _decide(self) -> None:
        """Do what is asked, or refuse it."""
        question = next((each for each in self.questions if each.outcome is None), None)
        if question is None:
            return
        if question.leader_epoch != self.leader_epoch or question.partition_epoch != self.partition_epoch:
            question.outcome = self.random.choice(LOST_ANSWERS)
        elif self.random.random() < 0.3:
            question.outcome = ErrorCode.INELIGIBLE_REPLICA
        else:
            self.isr, self.partition_epoch = question.pending.wanted_isr, self.partition_epoch + 1
            question.outcome = self._decided()
            if self.random.random() < 0.3:
                question.outcome = self.random.choice(LOST_ANSWERS)

    def _answer(self) -> None:
        if not (answered := [each for each in self.questions if each.outcome is not None]):
            return
        question = self.random.choice(answered)
        self.questions.remove(question)
        assert question.outcome is not None
        if isinstance(question.outcome, LeaderAndIsr):
            self.state.isr_altered(question.pending, question.outcome, self.now)
        else:
            self._ask(self.state.isr_refused(question.pending, question.outcome, self.now).wanted)

    def _decided(self) -> LeaderAndIsr:
        return LeaderAndIsr(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=tuple(self.isr),
            replicas=REPLICAS,
            partition_epoch=self.partition_epoch,
        )

    def _publish(self) -> None:
        """This broker reads what has been decided."""
        if self.leader == NODE_ID:
            self.state.lead(self._decided(), self.now)
        else:
            self.state.follow(self._decided())

    def _elect(self) -> None:
        """One of the in-sync replicas leads from now on; at least one that is not this broker, if there is."""
        self.leader = self.random.choice(sorted(self.isr))
        self.leader_epoch += 1
        self.partition_epoch += 1
        if self.leader != NODE_ID:
            self.state.follow(self._decided())
            self._follow_on()
        elif self.random.random() < 0.8:
            self._publish()

    # ---- another broker leads

    def _follow_on(self) -> None:
        """The leader appends, and the others, this one included, have some of it."""
        if self.leader == NODE_ID:
            self._publish()
            return
        end = self.ends[self.leader] = self.ends[self.leader] + self.random.randint(0, 2)
        state = self.state
        kept = min(state.log_end_offset, end)
        state.truncated(0, kept, min(state.durable_offset, kept), OpenTransactions())
        state.appended(self.random.randint(kept, end), 10)
        self.durable = state.log_end_offset
        if state.durable_offset < state.log_end_offset:
            state.synced(state.log_end_offset)
        for each in OTHERS:
            self.ends[each] = self.random.randint(min(self.ends[each], end), end) if each != self.leader else end
        if len(self.isr) >= self.min_isr:
            self.visible = max(self.visible, min(self._end_of(each) for each in self.isr))
        # Of which this broker hears late, or not at all.
        if self.random.random() < 0.5:
            state.leader_reported(self.random.randint(min(state.high_watermark, self.visible), self.visible))

    def _change_elsewhere(self) -> None:
        if self.leader == NODE_ID:
            return
        replica = self.random.choice(REPLICAS)
        if self._end_of(replica) == self.ends[self.leader]:
            self.isr |= {replica}
        elif replica != self.leader:
            self.isr -= {replica}
        self.partition_epoch += 1

    def _end_of(self, replica: int) -> int:
        return self.state.log_end_offset if replica == NODE_ID else self.ends[replica]

    # ---- what must hold

    def _compare(self, epoch: int, led: bool, high_watermark: int) -> None:
        state = self.state
        if state.is_leader and state.leader_epoch == self.leader_epoch:
            self.visible = max(self.visible, state.high_watermark)
            if led and state.leader_epoch == epoch:
                assert state.high_watermark >= high_watermark, "the high watermark falls within an epoch"
            if state.high_watermark > high_watermark:
                assert len(state.remote.state.isr) >= self.min_isr, "too few replicas are in sync"
                if self.waits_for_disk:
                    assert state.high_watermark <= self.durable, "a power cut could take back what is visible"
        for each in self.isr:
            assert self._end_of(each) >= self.visible, f"broker {each} may be elected, and has not all that is visible"

    def _settle(self) -> None:
        """Nothing is lost or late any more: all becomes visible."""
        if self.leader != NODE_ID:
            return
        self.questions.clear()
        self._publish()
        self.state.lead(attrs.evolve(self._decided(), partition_epoch=self.partition_epoch + 1), self.now)
        self.partition_epoch += 1
        for _ in range(6):
            for replica in OTHERS:
                self._fetch(replica)
                self.ends[replica] = self.state.log_end_offset
                self._fetch(replica)
                for question in self.questions:
                    self.isr, self.partition_epoch = question.pending.wanted_isr, self.partition_epoch + 1
                    question.outcome = self._decided()
                    self._answer()
        if self.durable < self.state.log_end_offset:
            self.state.synced(self.state.log_end_offset)
        assert self.state.high_watermark == self.state.log_end_offset, "what all have is not visible"
        assert self.state.in_sync_replica_count == len(REPLICAS)
