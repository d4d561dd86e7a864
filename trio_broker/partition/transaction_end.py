"""The end of a producer's transaction, as it is written into each of its partitions."""

from __future__ import annotations

import functools
from typing import Final

import attrs

from kafka_wire.records.control import EndTransactionMarker, build_control_batch

EPOCH_BUMP_VERSION: Final = 2
"""The ``transaction.version`` from which on the end of a transaction raises the epoch."""


@attrs.frozen
class TransactionEnd:
    """Who ends it, and how. ``coordinator_epoch`` is the leader epoch of the coordinator's partition.

    With ``is_unfenced`` the coordinator is the only one there can be, since no other broker is registered: a partition
    that knows a higher epoch has it from a request that named one, or from the log of another broker. Otherwise that
    partition refuses the marker: a later coordinator has taken over.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int = 0
    is_unfenced: bool = False

    @property
    def has_raised_epoch(self) -> bool:
        """Whether the epoch is one that only this end has, and the producer goes on with (KIP-890)."""
        return self.transaction_version >= EPOCH_BUMP_VERSION

    def where_known(self, coordinator_epoch: int) -> TransactionEnd:
        """The same for a partition that knows ``coordinator_epoch``."""
        if not self.is_unfenced or coordinator_epoch <= self.coordinator_epoch:
            return self
        return attrs.evolve(self, coordinator_epoch=coordinator_epoch)

    def batch(self, now_ms: int) -> memoryview:
        """The control batch that says so, whose offset is still to be stamped."""
        return memoryview(bytearray(_encoded(self, now_ms)))


@functools.lru_cache(maxsize=1)
def _encoded(end: TransactionEnd, now_ms: int) -> bytes:
    """The bytes of the batch, which are the same for all partitions that get it in one millisecond."""
    marker = EndTransactionMarker(end.committed, end.coordinator_epoch)
    return build_control_batch(marker, timestamp=now_ms, producer_id=end.producer_id, producer_epoch=end.producer_epoch)
