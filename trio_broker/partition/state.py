"""How far one partition has come: who leads it, what is on the disk, and what its readers may see.

Offsets in, offsets out: no files, no clock, no waiting. Each method is an event; it returns which offsets of the
readers moved. The caller does the rest: syncs, answers, wakes. Always::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

``high_watermark`` only grows within a leader epoch, unless a follower's log is cut below it. One rule moves it: it is
the least of the log end offset, the ``replicated_offset`` and, in fsync mode, the durable offset. The replicated offset
of a leader is how far all replicas of the maximal ISR are, and nothing moves while the committed ISR is smaller than
``min.insync.replicas``; that of a follower is its leader's high watermark. A leader that is the only replica waits for
nobody else. ``last_stable_offset`` follows in the same step.

Source: Kafka's Partition (``maybeIncrementLeaderHW``) and UnifiedLog (``maybeIncrementFirstUnstableOffset``).
"""

from __future__ import annotations

import enum
from collections import deque

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.remote_replicas import NOT_AWAITED, FollowerFetch, RemoteReplicas
from trio_broker.storage.open_transactions import OpenTransactions

NO_EPOCH = -1
"""The leader epoch of a caller that does not want to be checked, and of a partition of which nothing is known yet."""


class Advance(enum.Enum):
    """What an event lets readers see that they did not before."""

    NOTHING = "nothing"
    UNDECIDED = "the high watermark moved, the last stable offset did not"
    DECIDED = "high watermark and last stable offset moved together: all that is visible is stable"
    RELEASED = "the last stable offset moved past what transactions had held back"


@attrs.frozen
class IsrChange:
    """What an event moved, and what is to be asked of the controller in consequence."""

    advance: Advance
    wanted: PendingPartitionChange | None = None


class PartitionState:
    """See the head of the file. ``transactions`` are those of the log, which has noted them before it reports an
    append."""

    __slots__ = (
        "_invisible",
        "_min_in_sync_replicas",
        "_transactions",
        "durable_offset",
        "failure",
        "high_watermark",
        "is_leader",
        "is_under_min_isr",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "leads_since_epoch",
        "log_end_offset",
        "log_start_offset",
        "newly_visible_bytes",
        "remote",
        "replicated_offset",
        "waits_for_disk",
    )

    def __init__(
        self,
        remote: RemoteReplicas,
        *,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        durable_offset: int,
        waits_for_disk: bool,
        transactions: OpenTransactions,
        min_in_sync_replicas: int = 1,
    ) -> None:
        """Begin without a leader: ``lead`` or ``follow`` is next."""
        self.leader: int | None = None
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        # The epoch in which this leadership began; the later ones followed it without another leader in between.
        self.leads_since_epoch = NO_EPOCH
        self.remote = remote
        self._min_in_sync_replicas = min_in_sync_replicas
        # Whether fewer replicas are in sync than acks=all demands; an attribute, since each append asks.
        self.is_under_min_isr = False
        # What every request gets once the partition was deleted or its disk failed; set once, and never cleared.
        self.failure: KafkaError | None = None
        # How far the records are safe as far as others are concerned.
        self.replicated_offset = high_watermark
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # Everything before it survives a power cut.
        self.durable_offset = durable_offset
        # ``log.durability=fsync``: no reader sees what a power cut can take back.
        self.waits_for_disk = waits_for_disk
        self.high_watermark = high_watermark
        # Bytes that the last move of the high watermark let be seen.
        self.newly_visible_bytes = 0
        # The end offset and the size of each append behind the high watermark.
        self._invisible: deque[tuple[int, int]] = deque()
        self._transactions = transactions
        self.last_stable_offset = log_start_offset
        self._move_last_stable_offset()
        self._check()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return (
            f"<PartitionState {role} of epoch {self.leader_epoch}: {self.log_start_offset} <="
            f" {self.last_stable_offset} <= {self.high_watermark} <= {self.log_end_offset}>"
        )

    def require_online(self) -> None:
        """Refuse when the partition cannot be used, led or not.

        Raises:
            KafkaError: its failure.
        """
        if (failure := self.failure) is not None:
            # A new one each time: an exception that is raised twice drags all its tracebacks along.
            raise KafkaError(str(failure), code=failure.code)

    # ---- who leads

    @property
    def in_sync_replica_count(self) -> int:
        """How many replicas are in sync, this leader included."""
        return len(self.remote.state.isr)

    @property
    def min_in_sync_replicas(self) -> int:
        """How many must be in sync for acks=all: ``min.insync.replicas``, as far as there are so many (KIP-966)."""
        return min(self._min_in_sync_replicas, 1 + len(self.remote.replicas))

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether this is the leader, as it was in ``leader_epoch``, and there was no other in between."""
        return self.is_leader and self.leads_since_epoch <= leader_epoch

    def lead(self, decided: LeaderAndIsr, now: float) -> Advance:
        """Lead from now on; the high watermark stays where it is until all of the ISR have reached it.

        What is older than what is known changes nothing: the answer to an AlterPartition may have come before it.
        """
        assert decided.leader_epoch >= self.leader_epoch, f"{self!r}: epoch {decided.leader_epoch}"
        if decided.partition_epoch < self.remote.partition_epoch:
            return Advance.NOTHING
        is_new_leader, is_new_epoch = not self.is_leader, decided.leader_epoch > self.leader_epoch
        self.leader, self.leader_epoch, self.is_leader = decided.leader, decided.leader_epoch, True
        if is_new_leader:
            self.leads_since_epoch = decided.leader_epoch
        self.remote.lead(decided)
        if is_new_epoch or is_new_leader:
            self.remote.begin_epoch(self.log_end_offset, now, is_new_leader=is_new_leader)
        return self._follow_replicas(now)

    def follow(self, decided: LeaderAndIsr) -> None:
        """Follow a leader from now on: what it says of its high watermark counts."""
        assert decided.leader_epoch >= self.leader_epoch, f"{self!r}: epoch {decided.leader_epoch}"
        self.leader, self.leader_epoch, self.is_leader = decided.leader, decided.leader_epoch, False
        self.remote.follow(decided)
        self.is_under_min_isr = False
        self.replicated_offset = self.high_watermark

    def set_min_in_sync_replicas(self, count: int, now: float) -> Advance:
        """``min.insync.replicas`` is another from now on."""
        self._min_in_sync_replicas = count
        return self._follow_replicas(now) if self.is_leader else Advance.NOTHING

    def _follow_replicas(self, now: float) -> Advance:
        """Something has changed of the other replicas."""
        remote, min_isr = self.remote, self.min_in_sync_replicas
        self.is_under_min_isr = len(remote.state.isr) < min_isr
        self.replicated_offset = remote.replicated_offset(self.log_end_offset, now, min_isr)
        return self._advance()

    # ---- what replicas and the controller say to a leader

    def follower_fetched(self, fetch: FollowerFetch) -> IsrChange:
        """A replica has fetched.

        Raises:
            KafkaError: ``NOT_LEADER_OR_FOLLOWER``: the request is of an earlier life of its broker.
        """
        remote = self.remote
        has_moved = remote.fetched(fetch)
        wanted = remote.wanted_expansion(fetch.broker_id, self.high_watermark)
        return IsrChange(self._follow_replicas(fetch.now) if has_moved or wanted else Advance.NOTHING, wanted)

    def check_lag(self, now: float) -> IsrChange:
        """Time has passed: replicas may have fallen behind."""
        wanted = self.remote.wanted_shrink(self.log_end_offset, now)
        return IsrChange(self._follow_replicas(now), wanted)

    def isr_altered(self, pending: PendingPartitionChange, answer: LeaderAndIsr, now: float) -> Advance:
        """The controller has done what was asked."""
        is_news = self.is_leader and answer.leader_epoch == self.leader_epoch
        if is_news and self.remote.altered(pending, answer):
            return self._follow_replicas(now)
        return Advance.NOTHING

    def isr_refused(self, pending: PendingPartitionChange, code: ErrorCode, now: float) -> IsrChange:
        """The controller has answered with an error, after which it may be asked again."""
        asks_again = self.remote.refused(pending, code)
        advance = self._follow_replicas(now) if self.is_leader else Advance.NOTHING
        return IsrChange(advance, pending if asks_again else None)

    def leader_reported(self, high_watermark: int) -> Advance:
        """A follower's: the leader says where its high watermark is. It may be behind this one after an election."""
        assert not self.is_leader, f"{self!r} has no leader"
        self.replicated_offset = high_watermark
        return self._advance()

    # ---- what happened to the log

    def appended(self, log_end_offset: int, size_bytes: int) -> Advance:
        """The log ends at ``log_end_offset`` now, by ``size_bytes`` more."""
        self.log_end_offset = log_end_offset
        if self.replicated_offset == NOT_AWAITED and not self.waits_for_disk:
            advance = self._advance()
            self.newly_visible_bytes += size_bytes
            return advance
        self._invisible.append((log_end_offset, size_bytes))
        # No append moves the durable offset, and nothing gets past it.
        return Advance.NOTHING if self.waits_for_disk else self._advance()

    def synced(self, durable_offset: int) -> Advance:
        """A sync ended: everything before ``durable_offset`` survives a power cut."""
        assert self.durable_offset < durable_offset <= self.log_end_offset, f"{self!r}: a sync reached {durable_offset}"
        self.durable_offset = durable_offset
        return self._advance()

    def log_start_moved(self, log_start_offset: int) -> None:
        """Records were deleted: the log begins at ``log_start_offset``, at most at the high watermark."""
        self.log_start_offset = log_start_offset
        # An open transaction whose beginning was deleted holds back what is left of it.
        self.last_stable_offset = max(self.last_stable_offset, log_start_offset)
        self._check()

    def truncated(
        self, log_start_offset: int, log_end_offset: int, durable_offset: int, transactions: OpenTransactions
    ) -> None:
        """A follower's log was cut, because it differed from its leader's, or began anew elsewhere."""
        assert not self.is_leader, f"{self!r} is never cut"
        self.log_start_offset, self.log_end_offset = log_start_offset, log_end_offset
        self.durable_offset = durable_offset
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)
        self.replicated_offset = min(self.replicated_offset, self.high_watermark)
        # Of one that was cut in two, too many bytes will count: that costs a fetch a look, too few cost it its timeout.
        self._invisible = deque((min(end_offset, log_end_offset), size) for end_offset, size in self._invisible)
        self._transactions = transactions
        self.last_stable_offset = log_start_offset
        self._move_last_stable_offset()
        self._check()

    def log_moved(self, durable_offset: int, transactions: OpenTransactions) -> Advance:
        """The log is another one, which has the same and lies elsewhere; all of it is durable."""
        self.durable_offset, self._transactions = durable_offset, transactions
        return self._advance()

    # ---- what readers see

    def _advance(self) -> Advance:
        """Move the high watermark, and with it the last stable offset, as far as they may go."""
        offset = self.log_end_offset
        if self.replicated_offset < offset:
            offset = self.replicated_offset
        if self.waits_for_disk and self.durable_offset < offset:
            offset = self.durable_offset
        # Not back: a replica that has just become in-sync, or a new leader, may be behind it.
        if offset <= self.high_watermark:
            return Advance.NOTHING
        was_stable, stable_before = self.last_stable_offset == self.high_watermark, self.last_stable_offset
        self.high_watermark = offset
        invisible = self._invisible
        self.newly_visible_bytes = 0
        while invisible and invisible[0][0] <= offset:
            self.newly_visible_bytes += invisible.popleft()[1]
        transactions = self._transactions
        # Hardly any log has transactions; this spares those without two calls for each append.
        if transactions.undecided or transactions.decided:
            self._move_last_stable_offset()
        else:
            self.last_stable_offset = offset
        if self.last_stable_offset == stable_before:
            return Advance.UNDECIDED
        return Advance.DECIDED if was_stable and self.last_stable_offset == offset else Advance.RELEASED

    def _move_last_stable_offset(self) -> None:
        stable = self._transactions.last_stable_offset(self.high_watermark)
        self.last_stable_offset = max(stable, self.log_start_offset)

    def _check(self) -> None:
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark <= self.log_end_offset, repr(
            self
        )
