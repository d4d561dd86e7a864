"""Which replicas are in sync, as the leader of a partition goes by it while the controller has not answered.

An expansion counts at once: one replica more makes the high watermark later, which is safe whatever becomes of it. A
shrink counts once it is committed: the controller might refuse it, and then what the missing replica does not have
would have been given out as safe. ``maximal_isr`` is that set; ``isr`` is what is committed, which decides whether
there are enough.

Source: Kafka's PartitionState, CommittedPartitionState, PendingExpandIsr, PendingShrinkIsr; KIP-497.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs


@attrs.frozen
class CommittedPartitionState:
    """The controller has answered all that was asked."""

    isr: frozenset[int]

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr


@attrs.frozen(eq=False)
class PendingExpandIsr:
    """The controller is asked to take one more replica in."""

    new_in_sync_replica: int
    last_committed: CommittedPartitionState

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr | {self.new_in_sync_replica}

    @property
    def wanted_isr(self) -> frozenset[int]:
        return self.maximal_isr


@attrs.frozen(eq=False)
class PendingShrinkIsr:
    """The controller is asked to take some replicas out."""

    out_of_sync_replicas: frozenset[int]
    last_committed: CommittedPartitionState

    @property
    def isr(self) -> frozenset[int]:
        return self.last_committed.isr

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr

    @property
    def wanted_isr(self) -> frozenset[int]:
        return self.isr - self.out_of_sync_replicas


PendingPartitionChange: TypeAlias = PendingExpandIsr | PendingShrinkIsr
"""What the controller is asked for; compared by identity, since an answer is about one question."""
