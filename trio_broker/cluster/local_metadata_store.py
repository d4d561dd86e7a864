"""The metadata store of one process: a metadata log on a disk of this machine.

A broker alone has it in its own data directory. Several brokers of one event loop share one, whose log lies in a
directory of its own and belongs to none of them, so that each may be killed.

An append counts once the log has synced it. Whether a broker that has the claim still lives is not found out here: it
resigns, or who has ended it calls ``expire``.

Source: docs/decisions/0090-one-contract-for-metadata-stores.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakSet

import trio

from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import read_batches
from trio_broker.cluster.metadata_log import SEGMENT_BYTES, MetadataLog
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import (
    BelowLogStart,
    Claim,
    ClaimLost,
    CommittedBatch,
    LeaderAndEpoch,
    PreparedBatch,
    UnexpectedEnd,
)
from trio_broker.concurrency.free_lock import FreeLock
from trio_broker.runtime.workers import Workers

MAX_PENDING_BATCHES: Final = 64
"""Kept in memory for a tail that is behind; it reads the others from the disk. A loader that publishes one decision has
some more waiting at most, unless a part of its broker hangs."""


class LocalMetadataStore:
    """Implements ``MetadataStore`` on a ``MetadataLog``, which nobody else appends to."""

    max_batch_bytes: Final = SEGMENT_BYTES
    """A batch does not go over the end of a segment."""

    problem = ""

    def __init__(self, log: MetadataLog, workers: Workers) -> None:
        self.log = log
        self._workers = workers
        self._committed_end = log.log_end_offset
        # Its token is the incarnation of the claimant.
        self._claim: Claim | None = None
        self._claim_over = trio.Event()
        # Held by what changes the log.
        self._lock = FreeLock()
        self._tails: WeakSet[LocalTail] = WeakSet()
        log.log.bind_to_thread()

    # --- The claim ---

    async def claim(self, node_id: int, incarnation_id: bytes = NO_UUID) -> Claim:
        claimant = (node_id, incarnation_id)
        while True:
            async with self._lock:
                if self._claim is None or (self._claim.node_id, self._claim.token) == claimant:
                    self._end_claim()
                    # Shielded: an epoch that has begun in the log has begun here.
                    with trio.CancelScope(shield=True):
                        return await self._begin_epoch(node_id, incarnation_id)
                claim_over = self._claim_over
            await claim_over.wait()

    async def _begin_epoch(self, node_id: int, incarnation_id: bytes) -> Claim:
        try:
            data = await self._workers.run(partial(self.log.begin_epoch, node_id))
        finally:
            self.log.log.bind_to_thread()
        self._commit(data)
        self._claim = Claim(node_id, self.log.leader_epoch, self._committed_end, incarnation_id)
        return self._claim

    def _end_claim(self) -> None:
        self._claim = None
        self._claim_over.set()
        self._claim_over = trio.Event()

    async def wait_lost(self, claim: Claim) -> None:
        while self._claim == claim:
            await self._claim_over.wait()

    async def resign(self, claim: Claim) -> None:
        if self._claim == claim:
            self._end_claim()

    def expire(self, node_id: int) -> None:
        """End the claim of a broker that was killed."""
        if self._claim is not None and self._claim.node_id == node_id:
            self._end_claim()

    def controller(self) -> LeaderAndEpoch:
        claim, epoch = self._claim, self.log.leader_epoch
        if claim is None:
            return LeaderAndEpoch(epoch=epoch)
        assert isinstance(claim.token, bytes), claim
        return LeaderAndEpoch(claim.node_id, epoch, claim.token)

    # --- The log ---

    async def append(self, batch: PreparedBatch, *, claim: Claim, expected_end: int) -> int:
        async with self._lock:
            if expected_end < self._committed_end and await self._has(batch, claim, expected_end):
                return expected_end
            if claim != self._claim:
                raise ClaimLost.of(claim)
            if expected_end != self._committed_end:
                raise UnexpectedEnd(expected_end, self._committed_end)
            # The log's append is not cancellable, so what it has is committed here.
            self._commit(await self.log.append(batch), batch.records)
            return expected_end

    async def _has(self, batch: PreparedBatch, claim: Claim, offset: int) -> bool:
        """Whether ``batch`` was appended at ``offset`` under ``claim``."""
        if offset < self.log.log.log_start_offset:
            return False
        [committed, *_] = await self._read(offset)
        return batch.is_in(committed.data, base_offset=offset, epoch=claim.epoch)

    def _commit(self, data: bytes, records: Sequence[Any] | None = None) -> None:
        """Have the tails see a batch, which is durable; a control batch is without ``records``."""
        [batch] = read_batches(data)
        committed = CommittedBatch.of(batch, records)
        self._committed_end = committed.next_offset
        for tail in tuple(self._tails):
            tail.offer(committed)

    async def end_offset(self) -> int:
        return self._committed_end

    @property
    def committed_end(self) -> int:
        """``end_offset``, which no network is asked for here."""
        return self._committed_end

    def tail(self, from_offset: int) -> LocalTail:
        tail = LocalTail(self, from_offset)
        self._tails.add(tail)
        return tail

    async def read_from(self, offset: int) -> Sequence[CommittedBatch]:
        """Return some committed batches from ``offset`` on, of which there are any.

        Raises:
            BelowLogStart: a snapshot has taken the place of what comes next.
            OSError: the disk refused.
        """
        if offset < self.log.log.log_start_offset:
            raise BelowLogStart(offset, self.log.log.log_start_offset)
        return await self._read(offset)

    async def _read(self, offset: int) -> Sequence[CommittedBatch]:
        return await self._workers.run(partial(self._decoded, offset, self._committed_end))

    def _decoded(self, offset: int, end_offset: int) -> Sequence[CommittedBatch]:
        return [CommittedBatch.of(batch) for batch in self.log.read(offset, end_offset)]

    # --- Snapshots ---

    async def snapshot(self) -> MetadataSnapshot | None:
        async with self._lock:
            return await self._workers.run(self.log.read_snapshot)

    async def take_snapshot(self, snapshot: MetadataSnapshot, *, claim: Claim) -> None:
        async with self._lock:
            if claim != self._claim:
                raise ClaimLost.of(claim)
            if self.log.snapshot is not None and snapshot.id <= self.log.snapshot:
                return
            with trio.CancelScope(shield=True):
                try:
                    await self._workers.run(partial(self.log.take_snapshot, snapshot))
                finally:
                    self.log.log.bind_to_thread()


class LocalTail:
    """The batches of a ``LocalMetadataStore`` from an offset on."""

    def __init__(self, store: LocalMetadataStore, from_offset: int) -> None:
        self._store = store
        self._next_offset = from_offset
        self._pending: deque[CommittedBatch] = deque()
        self._arrived = trio.Event()

    def offer(self, batch: CommittedBatch) -> None:
        """Take a batch that was just committed, if it is the next one and there are not too many already."""
        end_offset = self._pending[-1].next_offset if self._pending else self._next_offset
        if batch.base_offset == end_offset and len(self._pending) < MAX_PENDING_BATCHES:
            self._pending.append(batch)
        self._arrived.set()

    def __aiter__(self) -> LocalTail:
        return self

    async def __anext__(self) -> CommittedBatch:
        while not self._pending:
            if self._next_offset < self._store.committed_end:
                self._pending.extend(await self._store.read_from(self._next_offset))
            else:
                self._arrived = trio.Event()
                await self._arrived.wait()
        batch = self._pending.popleft()
        self._next_offset = batch.next_offset
        return batch
