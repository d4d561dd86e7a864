"""How far one partition has come: who leads it, what is on the disk, and what its readers may see.

Offsets in, offsets out: no files, no clock, no waiting. Each method is an event; it returns which offsets of the
readers moved. The caller does the rest: syncs, answers, wakes. Always::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

``high_watermark`` only grows within a leader epoch, unless a follower's log is cut below it. One rule moves it: it is
the least of the log end offset, the ``replicated_offset`` and, in fsync mode, the durable offset. A leader that is the
only in-sync replica, as every leader of a single node is, waits for nobody else; how many replicas there must be is
asked before an append. ``last_stable_offset`` follows in the same step.

Source: Kafka's Partition (``maybeIncrementLeaderHW``) and UnifiedLog (``maybeIncrementFirstUnstableOffset``).
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Mapping

from kafka_wire.errors import KafkaError
from trio_broker.storage.open_transactions import OpenTransactions

NO_EPOCH = -1
"""The leader epoch of a caller that does not want to be checked."""

NOT_AWAITED = 2**63 - 1
"""The replicated offset of a leader whose in-sync replicas are itself alone: larger than any offset."""


class Advance(enum.Enum):
    """What an event lets readers see that they did not before."""

    NOTHING = "nothing"
    UNDECIDED = "the high watermark moved, the last stable offset did not"
    DECIDED = "high watermark and last stable offset moved together: all that is visible is stable"
    RELEASED = "the last stable offset moved past what transactions had held back"


class PartitionState:
    """See the head of the file. ``transactions`` are those of the log, which has noted them before it reports an
    append."""

    __slots__ = (
        "_invisible",
        "_transactions",
        "durable_offset",
        "failure",
        "high_watermark",
        "in_sync_replicas",
        "is_leader",
        "last_stable_offset",
        "leader_epoch",
        "leads_since_epoch",
        "log_end_offset",
        "log_start_offset",
        "min_in_sync_replicas",
        "replicated_offset",
        "visible_bytes",
        "waits_for_disk",
    )

    def __init__(
        self,
        *,
        leader_epoch: int,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        durable_offset: int,
        waits_for_disk: bool,
        transactions: OpenTransactions,
        min_in_sync_replicas: int = 1,
    ) -> None:
        """Begin as the leader, and its only in-sync replica."""
        self.leader_epoch = leader_epoch
        self.is_leader = True
        # The epoch in which this leadership began; the later ones followed it without another leader in between.
        self.leads_since_epoch = leader_epoch
        # ``min.insync.replicas``
        self.min_in_sync_replicas = min_in_sync_replicas
        # What every request gets once the partition was deleted or its disk failed; set once, and never cleared.
        self.failure: KafkaError | None = None
        # Where the logs of the other in-sync replicas end; a leader's.
        self.in_sync_replicas: Mapping[int, int] = {}
        # How far the records are safe as far as others are concerned: on a leader the least end offset of the other
        # in-sync replicas, on a follower its leader's high watermark.
        self.replicated_offset = NOT_AWAITED
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        # Everything before it survives a power cut.
        self.durable_offset = durable_offset
        # ``log.durability=fsync``: no reader sees what a power cut can take back.
        self.waits_for_disk = waits_for_disk
        self.high_watermark = high_watermark
        # Bytes that became visible since this object was made.
        self.visible_bytes = 0
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

    # ---- who leads

    @property
    def in_sync_replica_count(self) -> int:
        """How many replicas are in sync, this leader included."""
        return 1 + len(self.in_sync_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than acks=all demands."""
        return self.in_sync_replica_count < self.min_in_sync_replicas

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether this is the leader, as it was in ``leader_epoch``, and there was no other in between."""
        return self.is_leader and self.leads_since_epoch <= leader_epoch

    def lead(self, leader_epoch: int, in_sync_replicas: Mapping[int, int]) -> Advance:
        """Lead from now on, with these other in-sync replicas and where their logs end, as far as that is known.

        The high watermark stays where it is until all of them have reached it.
        """
        assert leader_epoch >= self.leader_epoch, f"{self!r}: epoch {leader_epoch}"
        self.leader_epoch = leader_epoch
        if not self.is_leader:
            self.is_leader, self.leads_since_epoch = True, leader_epoch
        return self.set_in_sync_replicas(in_sync_replicas)

    def follow(self, leader_epoch: int) -> None:
        """Follow a leader from now on: what it says of its high watermark counts."""
        assert leader_epoch >= self.leader_epoch, f"{self!r}: epoch {leader_epoch}"
        self.leader_epoch = leader_epoch
        self.is_leader = False
        self.in_sync_replicas = {}
        self.replicated_offset = self.high_watermark

    def set_in_sync_replicas(self, in_sync_replicas: Mapping[int, int]) -> Advance:
        """A leader's: the other in-sync replicas are these, and their logs end there; or an end has moved."""
        assert self.is_leader, f"{self!r} has no replicas"
        self.in_sync_replicas = in_sync_replicas
        self.replicated_offset = min(in_sync_replicas.values(), default=NOT_AWAITED)
        return self._advance()

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
            self.visible_bytes += size_bytes
            return self._advance()
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
        while invisible and invisible[0][0] <= offset:
            self.visible_bytes += invisible.popleft()[1]
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
