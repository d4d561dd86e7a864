"""The segments of a running broker, for programs that read the files themselves.

A manifest of a partition is consistent: its offsets and the list of its segments are taken together, without a
checkpoint in between, and from memory. Sealed segments do not change afterwards; of the active one it is known how much
of the file was written. Everything that is made of that, aborted transactions first of all, is made in a worker thread,
from the very segments of the list: compaction may have replaced them by then.

The loop is yielded between two partitions. Ten thousand segments of one partition hold it for some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import partial
from operator import methodcaller

import attrs
import trio

from broker_admin.views.node.segments import (
    MANIFEST_VERSION,
    AbortedTransactionInfo,
    LogManifest,
    PartitionManifest,
    PositionInfo,
    SegmentInfo,
    TopicManifest,
)
from kafka_wire.primitives import uuid_text
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.view import LogView
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.log import Log
from trio_broker.storage.offset_index import OffsetPosition
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import AbortedTransaction

MANIFEST_THREADS = 1
"""Manifests put together at once: each makes many values, for which the event loop has to share its interpreter."""

MAX_ACTIVE_POSITIONS = 256
"""Entries of the active segment's offset index in a manifest: one for every 4 MiB of a segment of a gigabyte, which is
about what a reader reads at a time."""


@attrs.frozen
class LogSnapshot:
    """A log as it was; ``sizes`` are those that the segments had, of which the last one goes on growing.

    Up to the next of its ``name_changes`` the names lead to the files of ``segments``.
    """

    log: Log
    view: LogView
    segments: Sequence[Segment]
    sizes: Sequence[int]
    active_positions: Sequence[OffsetPosition]
    name_changes: int


@attrs.frozen
class PartitionSnapshot:
    """One partition: its log, or why it cannot be read."""

    partition: int
    log: LogSnapshot | str


class LiveSegmentsView:
    """The part of the admin app's view that is about segments."""

    def __init__(self, replicas: ReplicaManager, cluster_id: str, node_id: int) -> None:
        self.replicas = replicas
        self.cluster_id = cluster_id
        self.node_id = node_id
        self._limiter = trio.CapacityLimiter(MANIFEST_THREADS)

    async def manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicManifest | None:
        """The files of these partitions, or of all, by number; None if there is no such topic."""
        local = self.replicas.topics.get(topic)
        if local is None:
            return None
        snapshots = []
        for index in sorted({*local.partitions, *local.failures}):
            if not partitions or index in partitions:
                snapshots.append(partition_snapshot(local, index))
                await trio.lowlevel.checkpoint()
        work = partial(self._manifest, local, snapshots)
        return await self.replicas.workers.run(work, limiter=self._limiter)

    def _manifest(self, local: LocalTopic, snapshots: Sequence[PartitionSnapshot]) -> TopicManifest:
        return TopicManifest(
            version=MANIFEST_VERSION,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            topic=local.name,
            topic_id=uuid_text(local.topic_id),
            partitions=tuple(map(partition_manifest, snapshots)),
        )


def partition_snapshot(local: LocalTopic, index: int) -> PartitionSnapshot:
    """One partition as it is now."""
    partition = local.partitions.get(index)
    if partition is None:
        return PartitionSnapshot(index, str(local.missing(index)))
    if partition.failure is not None:
        return PartitionSnapshot(index, str(partition.failure))
    return PartitionSnapshot(index, log_snapshot(partition))


def log_snapshot(partition: Partition) -> LogSnapshot:
    """The log of a partition as it is now, from memory."""
    segments = partition.log.segments
    return LogSnapshot(
        log=partition.log,
        view=partition.view(),
        segments=segments,
        sizes=[segment.size for segment in segments],
        active_positions=segments[-1].offset_index.spread(MAX_ACTIVE_POSITIONS),
        name_changes=partition.log.name_changes,
    )


def partition_manifest(taken: PartitionSnapshot) -> PartitionManifest:
    """One partition for the API; safe in a worker thread."""
    if isinstance(taken.log, str):
        return PartitionManifest(taken.partition, taken.log, None)
    try:
        return PartitionManifest(taken.partition, None, log_manifest(taken.log))
    except (CorruptIndex, OSError) as error:
        return PartitionManifest(taken.partition, str(error), None)


def log_manifest(taken: LogSnapshot) -> LogManifest:
    """One log for the API.

    Raises:
        CorruptIndex: which transactions were aborted cannot be read.
    """
    view = taken.view
    directory = os.path.abspath(taken.log.directory)
    look = methodcaller("aborted_transactions", view.log_start_offset, view.last_stable_offset)
    aborted: list[AbortedTransaction] = taken.log.read_with(look).result
    return LogManifest(
        log_directory=os.path.dirname(directory),
        directory_name=os.path.basename(directory),
        leader_epoch=view.leader_epoch,
        log_start_offset=view.log_start_offset,
        last_stable_offset=view.last_stable_offset,
        high_watermark=view.high_watermark,
        segments=segment_infos(taken),
        active_positions=tuple(PositionInfo(each.offset, each.position) for each in taken.active_positions),
        aborted_transactions=tuple(
            AbortedTransactionInfo(each.producer_id, each.first_offset, each.last_offset) for each in aborted
        ),
    )


def segment_infos(taken: LogSnapshot) -> tuple[SegmentInfo, ...]:
    """The segments, each up to where the next one begins, and the last one up to the end of the log."""
    base_offsets = [segment.base_offset for segment in taken.segments]
    ends = [*base_offsets[1:], taken.view.log_end_offset]
    return tuple(map(SegmentInfo, base_offsets, ends, taken.sizes, inodes(taken)))


def inodes(taken: LogSnapshot) -> Sequence[int | None]:
    """The numbers of the segments' files; None where a name may lead to another file by now, or to none."""
    found = [inode_of(segment) for segment in taken.segments]
    return found if taken.log.name_changes == taken.name_changes else [None] * len(found)


def inode_of(segment: Segment) -> int | None:
    """The number of the file under the segment's name, None if there is none."""
    try:
        return segment.disk.identity(segment.file.path).inode
    except OSError:
        return None
