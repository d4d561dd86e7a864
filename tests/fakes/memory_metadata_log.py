"""A metadata store without a disk, in which broker 1 has the claim: keeps each batch that a controller appends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import trio

from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import decode_metadata_record, encode_metadata_record
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import Claim, CommittedBatch, LeaderAndEpoch, PreparedBatch


class MemoryMetadataLog:
    """Implements ``MetadataStore``; ``failure``, once set, is what every append raises."""

    max_batch_bytes = 1024 * 1024
    problem = ""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self._committed: list[CommittedBatch] = []
        self._appended = trio.Event()
        self.failure: OSError | None = None
        self.leader_epoch = 1

    @property
    def log_end_offset(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def records(self) -> list[Any]:
        """All records, as a replay would give them."""
        return [record for batch in self.batches for record in batch]

    def held(self) -> Claim:
        """The claim of broker 1."""
        return Claim(1, self.leader_epoch, self.log_end_offset)

    async def append(self, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        assert expected_end == self.log_end_offset
        # Through bytes and back, so that a record that cannot be encoded does not pass a test.
        records = [decode_metadata_record(encode_metadata_record(record)) for record in batch.records]
        self.batches.append(records)
        last_offset = self.log_end_offset - 1
        self._committed.append(CommittedBatch(expected_end, last_offset, claim.epoch, 0, records, b""))
        self._appended.set()
        self._appended = trio.Event()
        return expected_end

    def controller(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(1, self.leader_epoch)

    async def end_offset(self) -> int:
        return self.log_end_offset

    async def claim(self, node_id: int, incarnation_id: bytes = NO_UUID) -> Claim:
        raise NotImplementedError

    async def wait_lost(self, claim: Claim) -> None:
        raise NotImplementedError

    async def resign(self, claim: Claim) -> None:
        raise NotImplementedError

    async def tail(self, from_offset: int) -> AsyncIterator[CommittedBatch]:
        position = 0
        while True:
            while position < len(self._committed):
                batch = self._committed[position]
                position += 1
                if batch.base_offset >= from_offset:
                    yield batch
            await self._appended.wait()

    async def snapshot(self) -> MetadataSnapshot | None:
        raise NotImplementedError

    async def take_snapshot(self, snapshot: MetadataSnapshot, *, claim: Claim) -> None:
        raise NotImplementedError
