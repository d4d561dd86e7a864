"""The other replicas of a partition as its leader sees them: how far each is, and which are in sync.

Offsets and times in, decisions out; no I/O. Times are readings of the monotonic clock, in seconds.

A replica is caught up while its log ends where the leader's does, or did within the last ``replica.lag.time.max.ms``.
It joins the in-sync replicas once its log has reached the high watermark and the beginning of the leader epoch: before
that, it could be elected without records that were committed under an earlier leader.

Source: Kafka's Replica, and Partition (``maybeExpandIsr``, ``getOutOfSyncReplicas``, ``maybeIncrementLeaderHW``);
KIP-841 and KIP-903 for brokers that may not join.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Protocol

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.partition.in_sync_replicas import (
    CommittedPartitionState,
    PendingExpandIsr,
    PendingPartitionChange,
    PendingShrinkIsr,
)
from trio_broker.partition.leader_and_isr import LeaderAndIsr

UNKNOWN_OFFSET = -1
"""Of a replica that has not fetched from this leader."""

NOT_AWAITED = 2**63 - 1
"""How far the other in-sync replicas are where there are none: larger than any offset."""

NOT_TO_BE_PASSED = 0
"""How far they count as being where they are too few: no high watermark moves up to it."""


class ReplicaBrokers(Protocol):
    """What the metadata say of the brokers that have replicas."""

    def registered_epoch(self, broker_id: int) -> int | None:
        """The epoch of its registration, fenced or not; None for one that is unknown."""
        ...

    def alive_epoch(self, broker_id: int) -> int | None:
        """The epoch of its registration, None for one that is unknown or fenced."""
        ...

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether it is in a controlled shutdown."""
        ...


@attrs.frozen
class FollowerFetch:
    """A Fetch of a replica as the leader sees it: its log begins at ``log_start_offset``, and it asks for what follows
    ``fetch_offset``, where it ends. The leader's log ended at ``leader_end``.

    ``broker_epoch`` is of its registration, -1 if it does not say it (KIP-903).
    """

    broker_id: int
    broker_epoch: int
    fetch_offset: int
    log_start_offset: int
    leader_end: int
    now: float


@attrs.define
class Replica:
    """One of them. ``last_fetch_leader_end`` is where the leader's log ended at its last fetch, ``sent_high_watermark``
    what it was sent last where consumers may be sent to it."""

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    last_fetch: float = -math.inf
    last_caught_up: float = -math.inf
    broker_epoch: int | None = None
    sent_high_watermark: int = UNKNOWN_OFFSET

    def fetched(self, fetch: FollowerFetch) -> None:
        """It has shown how far its log goes."""
        if fetch.fetch_offset >= fetch.leader_end:
            self.last_caught_up = max(self.last_caught_up, fetch.now)
        elif fetch.fetch_offset >= self.last_fetch_leader_end:
            # It had all that there was when it asked the last time; under constant load it never has more.
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_end_offset, self.log_start_offset = fetch.fetch_offset, fetch.log_start_offset
        self.last_fetch_leader_end = max(fetch.leader_end, self.last_fetch_leader_end)
        self.last_fetch, self.broker_epoch = fetch.now, fetch.broker_epoch

    def begin_epoch(self, leader_end: int, now: float, *, is_in_sync: bool, is_new_leader: bool) -> None:
        """A leader epoch begins; one that is in sync has the whole of ``replica.lag.time.max.ms`` to fetch."""
        if is_new_leader:
            self.log_end_offset = self.log_start_offset = self.last_fetch_leader_end = UNKNOWN_OFFSET
            self.last_fetch, self.broker_epoch = -math.inf, None
            self.sent_high_watermark = UNKNOWN_OFFSET
        else:
            self.last_fetch_leader_end = leader_end
            self.last_fetch = now if is_in_sync else -math.inf
        self.last_caught_up = now if is_in_sync else -math.inf

    def is_caught_up(self, leader_end: int, now: float, max_lag_seconds: float) -> bool:
        """See the head of the file."""
        return self.log_end_offset == leader_end or now - self.last_caught_up <= max_lag_seconds


class RemoteReplicas:
    """See the head of the file. ``state`` is of this broker's leadership; a follower knows nothing of the others."""

    __slots__ = (
        "_brokers",
        "broker_id",
        "epoch_start_offset",
        "max_lag_seconds",
        "partition_epoch",
        "replicas",
        "state",
    )

    def __init__(self, broker_id: int, brokers: ReplicaBrokers, max_lag_seconds: float) -> None:
        self.broker_id = broker_id
        self._brokers = brokers
        self.max_lag_seconds = max_lag_seconds
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        self.replicas: dict[int, Replica] = {}
        self.state: CommittedPartitionState | PendingPartitionChange = CommittedPartitionState(frozenset())

    # ---- what the controller has decided

    def lead(self, decided: LeaderAndIsr) -> None:
        """This broker leads, in this epoch or a new one."""
        others = [each for each in decided.replicas if each != self.broker_id]
        self.replicas = {each: self.replicas.get(each) or Replica(each) for each in others}
        # What is known already must not take a pending change back: it may be made yet.
        if decided.partition_epoch > self.partition_epoch:
            self._commit(decided.isr, decided.partition_epoch)

    def begin_epoch(self, log_end_offset: int, now: float, *, is_new_leader: bool) -> None:
        """The leader epoch begins at the end of the log."""
        self.epoch_start_offset = log_end_offset
        for replica in self.replicas.values():
            is_in_sync = replica.broker_id in self.state.isr
            replica.begin_epoch(log_end_offset, now, is_in_sync=is_in_sync, is_new_leader=is_new_leader)

    def follow(self, decided: LeaderAndIsr) -> None:
        """Another broker leads."""
        self.replicas = {}
        self._commit((), decided.partition_epoch)

    def _commit(self, isr: Iterable[int], partition_epoch: int) -> None:
        self.partition_epoch = partition_epoch
        self.state = CommittedPartitionState(frozenset(isr))

    def altered(self, pending: PendingPartitionChange, answer: LeaderAndIsr) -> bool:
        """The controller has done ``pending``; return whether that counts: newer metadata may have come before."""
        if self.state is not pending or answer.partition_epoch < self.partition_epoch:
            return False
        self._commit(answer.isr, answer.partition_epoch)
        return True

    def refused(self, pending: PendingPartitionChange, code: ErrorCode) -> bool:
        """The controller has answered ``pending`` with an error; return whether it is to be asked again.

        With two of them it says that the partition epoch is right and nothing was done. After any other the change
        stays pending: it may have been made, by this controller or another, and new metadata tell.
        """
        if self.state is not pending:
            return False
        if code in (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA):
            self.state = pending.last_committed
            return False
        return code not in AWAITS_METADATA

    # ---- what replicas do

    def fetched(self, fetch: FollowerFetch) -> bool:
        """A replica has fetched; return whether its log end is another than before.

        Raises:
            KafkaError: ``NOT_LEADER_OR_FOLLOWER``: it is of an earlier life of its broker.
        """
        replica, alive_epoch = self.replicas[fetch.broker_id], self._brokers.alive_epoch(fetch.broker_id)
        if fetch.broker_epoch != NO_BROKER_EPOCH and alive_epoch is not None and fetch.broker_epoch < alive_epoch:
            text = (
                f"{fetch.broker_id} fetches with broker epoch {fetch.broker_epoch}, and has registered in {alive_epoch}"
            )
            raise KafkaError(f"broker {text}", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        before = replica.log_end_offset
        replica.fetched(fetch)
        return before != fetch.fetch_offset

    def _may_join(self, replica: Replica) -> bool:
        """Whether the controller would have the replica among those in sync: not one that restarts, since it may have
        lost what it had."""
        alive_epoch = self._brokers.alive_epoch(replica.broker_id)
        if alive_epoch is None or self._brokers.is_shutting_down(replica.broker_id) or replica.broker_epoch is None:
            return False
        return replica.broker_epoch in (NO_BROKER_EPOCH, alive_epoch)

    # ---- what follows from it

    def replicated_offset(self, leader_end: int, now: float, min_isr: int) -> int:
        """How far the records are safe as far as the other replicas are concerned.

        Also one that may join at any moment is waited for: the leader alone would always be ahead of it.
        """
        if not self.replicas:
            return NOT_AWAITED
        if len(self.state.isr) < min_isr:
            return NOT_TO_BE_PASSED
        maximal_isr, offset = self.state.maximal_isr, NOT_AWAITED
        for replica in self.replicas.values():
            if replica.log_end_offset < offset and (
                replica.broker_id in maximal_isr
                or (replica.is_caught_up(leader_end, now, self.max_lag_seconds) and self._may_join(replica))
            ):
                offset = replica.log_end_offset
        return offset

    def least_log_start_offset(self) -> int:
        """Where the first log of those of the others begins that are alive, -1 if one of them has not fetched yet."""
        offset = NOT_AWAITED
        for replica in self.replicas.values():
            if replica.log_start_offset < offset and self._brokers.alive_epoch(replica.broker_id) is not None:
                offset = replica.log_start_offset
        return offset

    def preferred_read_replica(self, brokers: Collection[int], fetch_offset: int) -> int | None:
        """The replica of ``brokers`` that is in sync, has what follows ``fetch_offset``, and is furthest; None if there
        is none.

        One that is not in sync would be left for its leader, and chosen again, without an end.
        """
        able = [
            each
            for each in self.replicas.values()
            if each.broker_id in brokers
            and each.broker_id in self.state.isr
            and each.log_start_offset <= fetch_offset <= each.log_end_offset
        ]
        if not able:
            return None
        return max(able, key=lambda each: (each.log_end_offset, each.last_caught_up, each.broker_id)).broker_id

    def wanted_expansion(self, replica_id: int, high_watermark: int) -> PendingExpandIsr | None:
        """What to ask the controller for after a fetch of this replica. It counts from now on."""
        replica, state = self.replicas[replica_id], self.state
        if (
            not isinstance(state, CommittedPartitionState)
            or replica_id in state.isr
            or replica.log_end_offset < max(high_watermark, self.epoch_start_offset)
            or not self._may_join(replica)
        ):
            return None
        self.state = PendingExpandIsr(replica_id, state)
        return self.state

    def wanted_shrink(self, leader_end: int, now: float) -> PendingShrinkIsr | None:
        """What to ask the controller for now and then."""
        state = self.state
        if not isinstance(state, CommittedPartitionState):
            return None
        behind = frozenset(
            each
            for each in state.isr - {self.broker_id}
            if each not in self.replicas or not self.replicas[each].is_caught_up(leader_end, now, self.max_lag_seconds)
        )
        if not behind:
            return None
        self.state = PendingShrinkIsr(behind, state)
        return self.state

    def broker_epochs(self, broker_ids: Iterable[int]) -> dict[int, int]:
        """The epochs in which these replicas have fetched from this leader, -1 for those that have not."""
        epochs = {}
        for each in broker_ids:
            replica = self.replicas.get(each)
            known = None if replica is None else replica.broker_epoch
            epochs[each] = NO_BROKER_EPOCH if known is None else known
        return epochs


AWAITS_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Answers to AlterPartition after which new metadata are to come, and asking again says nothing new."""
