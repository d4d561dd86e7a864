"""A metadata log without a disk: keeps each batch that a controller appends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio

from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import decode_metadata_record, encode_metadata_record
from trio_broker.cluster.quorum_info import QuorumInfo


class MemoryMetadataLog:
    """Has the methods a Controller needs; ``failure``, once set, is what every append raises."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.failure: OSError | None = None
        self.leader_epoch = 1

    @property
    def log_end_offset(self) -> int:
        return sum(len(batch) for batch in self.batches)

    @property
    def quorum(self) -> QuorumInfo:
        return QuorumInfo(1, self.leader_epoch, self.log_end_offset, self.log_end_offset, NO_UUID)

    @property
    def records(self) -> list[Any]:
        """All records, as a replay would give them."""
        return [record for batch in self.batches for record in batch]

    async def append(self, records: Sequence[Any]) -> int:
        await trio.lowlevel.checkpoint()
        if self.failure is not None:
            raise self.failure
        offset = self.log_end_offset
        # Through bytes and back, so that a record that cannot be encoded does not pass a test.
        self.batches.append([decode_metadata_record(encode_metadata_record(record)) for record in records])
        return offset
