"""Snapshots of the metadata in etcd: their content in chunks, and the key that says which one is the newest.

The chunks are written first, under a name that no other content has. One transaction then names the snapshot and
deletes the log before it. The snapshot before stays until the next one, for brokers that are reading it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from crc32c import crc32c

from trio_broker.cluster.etcd.layout import (
    ClusterState,
    CurrentSnapshot,
    EtcdLayout,
    require_held,
    state_of,
    state_operations,
)
from trio_broker.cluster.etcd.messages import Compare, RangeRequest, RequestOp, delete, modified_at, put
from trio_broker.cluster.etcd.transactions import EtcdTransactions
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, SnapshotId
from trio_broker.cluster.metadata_store import Claim

CHUNK_BYTES: Final = 512 * 1024
"""A third of what etcd takes in a request."""

CHUNKS_PER_READ: Final = 8

MAX_STORED_BYTES: Final = 64 * 1024 * 1024
"""Of the newest snapshot and the log behind it: some twenty times what ten thousand partitions need. etcd's own
quota is 2 GB, where its history of deleted keys counts too."""


async def read_current_snapshot(transactions: EtcdTransactions) -> MetadataSnapshot | None:
    """Return the newest snapshot.

    Raises:
        OSError: etcd does not answer, or chunks of it are missing.
    """
    current = (await transactions.present_state()).snapshot
    while current is not None:
        content = await _content_of(transactions, current)
        if name_of(current.id, content) == current.name:
            return MetadataSnapshot(current.id, content)
        read, current = current, (await transactions.present_state()).snapshot
        # One that was replaced twice while it was read is gone.
        if current == read:
            raise OSError(errno.EIO, f"the snapshot {read.name} of the metadata in etcd is damaged")
    return None


async def _content_of(transactions: EtcdTransactions, snapshot: CurrentSnapshot) -> bytes:
    """Return what is there of a snapshot."""
    prefix = transactions.layout.chunks(snapshot.name)
    chunks: list[bytes] = []
    while len(chunks) < snapshot.chunks:
        key, end = chunk_key(prefix, len(chunks)), chunk_key(prefix, snapshot.chunks)
        state = await transactions.present_state(RangeRequest(key=key, range_end=end, limit=CHUNKS_PER_READ))
        if not state.read:
            break
        chunks += (kv.value for kv in state.read)
    return b"".join(chunks)


async def write_snapshot(transactions: EtcdTransactions, snapshot: MetadataSnapshot, claim: Claim) -> None:
    """Keep ``snapshot`` and delete the log before it, unless a newer one is there.

    Raises:
        ClaimLost: ``claim`` is over.
        OSError: etcd refused or does not answer.
    """
    content, snapshot_id = snapshot.content, snapshot.id
    if len(content) > MAX_STORED_BYTES:
        raise OSError(errno.EFBIG, f"the snapshot has {len(content)} bytes; etcd is given at most {MAX_STORED_BYTES}")
    state = await transactions.present_state()
    require_held(claim, state)
    if state.snapshot is not None and snapshot_id <= state.snapshot.id:
        return
    step = SnapshotStep(transactions, claim, state)
    current = described(snapshot, state.end.appended_bytes)
    for operation in chunk_operations(transactions.layout, current, content):
        await step.make(current, [operation])
    await step.make(current, pointing_operations(transactions.layout, current, state))


def pointing_operations(layout: EtcdLayout, current: CurrentSnapshot, state: ClusterState) -> Sequence[RequestOp]:
    """What makes ``current`` the newest snapshot, and deletes what nobody needs then."""
    before = [] if state.snapshot is None else [delete(layout.snapshots, layout.chunks(state.snapshot.name))]
    return [
        put(layout.current_snapshot, current.to_bytes()),
        delete(layout.log, layout.batch(current.id.end_offset)),
        *before,
    ]


@attrs.frozen
class SnapshotStep:
    """A transaction of writing a snapshot, made while ``claim`` lasts and the newest snapshot is that of ``state``.

    A step without an answer may be carried out at any later time, and then must not undo a later snapshot.
    """

    transactions: EtcdTransactions
    claim: Claim
    state: ClusterState

    @property
    def conditions(self) -> Sequence[Compare]:
        key, before = self.transactions.layout.current_snapshot, self.state.snapshot
        return self.transactions.while_held(self.claim, modified_at(key, 0 if before is None else before.mod_revision))

    async def make(self, snapshot: CurrentSnapshot, operations: Sequence[RequestOp]) -> None:
        present = state_operations(self.transactions.layout)
        response = await self.transactions.made(self.conditions, operations, present)
        if response.succeeded:
            return
        state = state_of(response)
        self.transactions.require_own(state)
        if state.snapshot is not None and state.snapshot.name == snapshot.name:
            return
        require_held(self.claim, state)
        raise OSError(errno.EBUSY, "another snapshot of the metadata was taken meanwhile")


def described(snapshot: MetadataSnapshot, appended_bytes: int) -> CurrentSnapshot:
    """What names ``snapshot``; ``appended_bytes`` are those of the log when it was taken."""
    content = snapshot.content
    chunks = -(-len(content) // CHUNK_BYTES)
    return CurrentSnapshot(name_of(snapshot.id, content), snapshot.id, chunks, len(content), appended_bytes)


def chunk_operations(layout: EtcdLayout, current: CurrentSnapshot, content: bytes) -> Iterator[RequestOp]:
    """Yield what puts the content of ``current``, for a transaction each."""
    prefix = layout.chunks(current.name)
    for index in range(current.chunks):
        yield put(chunk_key(prefix, index), content[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES])


def name_of(snapshot_id: SnapshotId, content: bytes) -> str:
    """The checksum tells apart two that one controller takes at one offset, of which the first was given up."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}-{crc32c(content):08x}"


def chunk_key(prefix: bytes, index: int) -> bytes:
    return prefix + b"%06d" % index
