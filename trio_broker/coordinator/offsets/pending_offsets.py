"""Offsets that were committed in transactions which have not ended.

A commit in a transaction counts when the transaction is committed, and never if it is aborted. Until then the partition
has a *pending* offset: a consumer that wants stable offsets (KIP-447) has to wait, since it would read records again
whose results are committed a moment later.

Of several commits for one partition the last one in the log counts, as compaction would have it: one that is pending
is superseded by a commit that was written after it, and gone with a tombstone.

Source: Kafka's OffsetMetadataManager (pendingTransactionalOffsets, replayEndTransactionMarker).
"""

from __future__ import annotations

import attrs

from trio_broker.coordinator.runtime.log import EncodedRecord


@attrs.define
class PendingPartition:
    """One partition of one group: the transactions that have commits for it, and the place in the log, as
    ``PendingOffsets`` counts, of the newest commit that counts already.
    """

    producer_ids: set[int]
    newest: int = 0


@attrs.frozen
class PendingOffset:
    """A commit, and its place in the log as ``PendingOffsets`` counts."""

    group_id: str
    value: bytes
    place: int


class PendingOffsets:
    """Pending commits by producer, and the partitions that have any, by the keys of the commits' records."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[bytes, PendingOffset]] = {}
        self._partitions: dict[bytes, PendingPartition] = {}
        self._count_by_group: dict[str, int] = {}
        self._place = 0

    def add(self, producer_id: int, group_id: str, key: bytes, value: bytes) -> None:
        """A commit of ``group_id`` is in the log, in the transaction of ``producer_id``."""
        self._place += 1
        commits = self._producers.setdefault(producer_id, {})
        if key not in commits:
            self._partitions.setdefault(key, PendingPartition(set())).producer_ids.add(producer_id)
            self._count_by_group[group_id] = self._count_by_group.get(group_id, 0) + 1
        commits[key] = PendingOffset(group_id, value, self._place)

    def supersede(self, key: bytes) -> None:
        """A commit outside of transactions is in the log behind what is pending under ``key``."""
        if (partition := self._partitions.get(key)) is not None:
            self._place += 1
            partition.newest = self._place

    def discard(self, key: bytes) -> None:
        """A tombstone is in the log behind what is pending under ``key``, which never counts now."""
        if (partition := self._partitions.pop(key, None)) is not None:
            for producer_id in partition.producer_ids:
                self._uncount(self._producers[producer_id].pop(key))

    def end(self, producer_id: int, *, committed: bool) -> list[EncodedRecord]:
        """The transaction of ``producer_id`` has ended. Returns the commits that count now."""
        counting: list[EncodedRecord] = []
        for key, pending in self._producers.pop(producer_id, {}).items():
            partition = self._partitions[key]
            if committed and pending.place > partition.newest:
                partition.newest = pending.place
                counting.append((key, pending.value))
            partition.producer_ids.discard(producer_id)
            if not partition.producer_ids:
                del self._partitions[key]
            self._uncount(pending)
        return counting

    def _uncount(self, pending: PendingOffset) -> None:
        self._count_by_group[pending.group_id] -= 1
        if not self._count_by_group[pending.group_id]:
            del self._count_by_group[pending.group_id]

    def __contains__(self, key: bytes) -> bool:
        """Whether a transaction that has not ended has a commit for the partition that ``key`` names."""
        return key in self._partitions

    def has_group(self, group_id: str) -> bool:
        """Whether a transaction that has not ended has a commit of ``group_id``."""
        return group_id in self._count_by_group

    def count_of(self, group_id: str) -> int:
        """How many commits of ``group_id`` are pending; two transactions may each have one for a partition."""
        return self._count_by_group.get(group_id, 0)

    def groups(self) -> list[str]:
        """The groups with pending commits."""
        return list(self._count_by_group)

    def commits_of(self, group_id: str) -> list[EncodedRecord]:
        """The pending commits of ``group_id``; a key may be in several transactions."""
        return [
            (key, pending.value)
            for commits in self._producers.values()
            for key, pending in commits.items()
            if pending.group_id == group_id
        ]

    @property
    def is_empty(self) -> bool:
        return not self._producers
