"""Whether the producer snapshots of a partition say what its batches say.

Each snapshot is compared with the producers that the log has up to its offset. A snapshot may lack producers: those
that were silent for ``producer.id.expiration.ms`` are forgotten. The coordinator epoch is not compared, since one that
was forgotten and wrote again has none; nor is the timestamp, which only tells when to forget.

Source: Kafka's ProducerStateManager; docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

import attrs

from trio_broker.runtime.disk import Disk
from trio_broker.storage import file_names, producer_snapshot
from trio_broker.storage.errors import CorruptSnapshot
from trio_broker.storage.producer_state import BatchMetadata, ProducerEntry


@attrs.frozen
class ProducerFacts:
    """What of a producer must be the same in a snapshot and in the batches before it."""

    producer_epoch: int
    last_batch: BatchMetadata | None
    transaction_first_offset: int | None

    @classmethod
    def of(cls, entry: ProducerEntry) -> ProducerFacts:
        last = entry.batches[-1] if entry.batches else None
        # A marker moves the time, which is that of the last batch in a snapshot.
        same_time = None if last is None else attrs.evolve(last, timestamp_ms=0)
        return cls(entry.producer_epoch, same_time, entry.transaction_first_offset)

    def __str__(self) -> str:
        sequence, offset = (self.last_batch.last_sequence, self.last_batch.last_offset) if self.last_batch else (-1, -1)
        since = (
            "" if self.transaction_first_offset is None else f", in a transaction since {self.transaction_first_offset}"
        )
        return f"epoch {self.producer_epoch}, sequence {sequence} at offset {offset}{since}"


class ProducerSnapshotCheck:
    """Takes the snapshots at ``offsets``, ascending, one after the other while the batches are read."""

    def __init__(self, disk: Disk, directory: PurePath, offsets: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = deque(offsets)

    def give_up(self) -> None:
        """Compare no more: what the batches before the next snapshots say is not known."""
        self._offsets.clear()

    def problems_up_to(self, offset: int, producers: Mapping[int, ProducerEntry]) -> Iterator[tuple[PurePath, str]]:
        """What is wrong with the snapshots up to ``offset``; no batch lies between them and it.

        One that cannot be read is another check's.
        """
        while self._offsets and self._offsets[0] <= offset:
            path = file_names.segment_path(self._directory, self._offsets.popleft(), file_names.SNAPSHOT_SUFFIX)
            try:
                entries = producer_snapshot.decode(self._disk.read_file(path), str(path))
            except CorruptSnapshot:
                continue
            if problem := problem_with_entries(entries, producers):
                yield path, problem


def problem_with_entries(entries: Iterable[ProducerEntry], producers: Mapping[int, ProducerEntry]) -> str | None:
    """Return in what the entries of a snapshot contradict the ``producers`` of its log, None when in nothing."""
    for entry in entries:
        known = producers.get(entry.producer_id)
        if known is None:
            return f"no batch before it is of producer {entry.producer_id}"
        says, has = ProducerFacts.of(entry), ProducerFacts.of(known)
        if says != has:
            return f"producer {entry.producer_id} is at {says}; in the log at {has}"
    return None
