"""The segments of a running broker, as the admin app tells programs that read the files themselves.

What is told of a partition is true at one moment: its offsets and the row of its segments are taken together, without
a checkpoint in between, and from memory. Sealed segments do not change afterwards; of the active one it is known how
much of the file was written. Everything that is made of that, aborted transactions first of all, is made in a worker
thread, from the very segments that were in the row: compaction may have replaced them by then.

Between two partitions others have the loop. Ten thousand segments of one partition take it for some milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import attrs
import trio

from broker_admin import view
from kafka_wire.primitives import uuid_text
from trio_broker.replication.hosted_topics import HostedTopic
from trio_broker.replication.partition import Partition
from trio_broker.replication.replica_manager import ReplicaManager
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.log import Log
from trio_broker.storage.offset_index import OffsetPosition
from trio_broker.storage.segment import Segment

MANIFEST_THREADS = 1
"""Manifests put together at once: each makes many values, for which the event loop has to share its interpreter."""

MAX_ACTIVE_POSITIONS = 256
"""Entries of the active segment's offset index in a manifest: one for every 4 MiB of a segment of a gigabyte, which is
about what a reader reads at a time."""


@attrs.frozen
class LogMoment:
    """A log as it was at one moment; ``sizes`` are those of the segments in ``row``, which go on."""

    log: Log
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    row: tuple[Segment, ...]
    sizes: Sequence[int]
    active_positions: Sequence[OffsetPosition]


@attrs.frozen
class PartitionMoment:
    """One partition: its log, or why it cannot be read."""

    partition: int
    log: LogMoment | str


class SegmentView:
    """What the admin app is told of segments."""

    def __init__(self, replicas: ReplicaManager, cluster_id: str, node_id: int) -> None:
        self.replicas = replicas
        self.cluster_id = cluster_id
        self.node_id = node_id
        self._limiter = trio.CapacityLimiter(MANIFEST_THREADS)

    async def topic_manifest(self, topic: str, partitions: Collection[int] = ()) -> view.TopicManifest | None:
        """The files of these partitions, or of all, by number; None if there is no such topic."""
        hosted = self.replicas.topics.get(topic)
        if hosted is None:
            return None
        moments = []
        for index in sorted({*hosted.partitions, *hosted.failures}):
            if not partitions or index in partitions:
                moments.append(moment(hosted, index))
                await trio.lowlevel.checkpoint()
        return await trio.to_thread.run_sync(self._manifest, hosted, moments, limiter=self._limiter)

    def _manifest(self, hosted: HostedTopic, moments: Sequence[PartitionMoment]) -> view.TopicManifest:
        return view.TopicManifest(
            version=view.MANIFEST_VERSION,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            topic=hosted.name,
            topic_id=uuid_text(hosted.topic_id),
            partitions=tuple(map(partition_manifest, moments)),
        )


def moment(hosted: HostedTopic, index: int) -> PartitionMoment:
    """One partition as it is now."""
    partition = hosted.partitions.get(index)
    if partition is None:
        return PartitionMoment(index, str(hosted.missing(index)))
    if partition.failure is not None:
        return PartitionMoment(index, str(partition.failure))
    return PartitionMoment(index, log_moment(partition))


def log_moment(partition: Partition) -> LogMoment:
    """The log of a partition as it is now, from memory."""
    row = partition.log.segments
    return LogMoment(
        log=partition.log,
        leader_epoch=partition.leader_epoch,
        log_start_offset=partition.log_start_offset,
        last_stable_offset=partition.last_stable_offset,
        high_watermark=partition.high_watermark,
        log_end_offset=partition.log_end_offset,
        row=row,
        sizes=[segment.size for segment in row],
        active_positions=row[-1].offset_index.spread(MAX_ACTIVE_POSITIONS),
    )


def partition_manifest(taken: PartitionMoment) -> view.PartitionManifest:
    """One partition in the app's terms; safe in a worker thread."""
    if isinstance(taken.log, str):
        return view.PartitionManifest(taken.partition, taken.log, None)
    try:
        return view.PartitionManifest(taken.partition, None, log_manifest(taken.log))
    except (CorruptIndex, OSError) as error:
        return view.PartitionManifest(taken.partition, str(error), None)


def log_manifest(taken: LogMoment) -> view.LogManifest:
    """One log in the app's terms.

    Raises:
        CorruptIndex: which transactions were aborted cannot be read.
    """
    directory = os.path.abspath(taken.log.directory)
    aborted = taken.log.aborted_transactions(taken.log_start_offset, taken.last_stable_offset, taken.row)
    return view.LogManifest(
        log_directory=os.path.dirname(directory),
        directory_name=os.path.basename(directory),
        leader_epoch=taken.leader_epoch,
        log_start_offset=taken.log_start_offset,
        last_stable_offset=taken.last_stable_offset,
        high_watermark=taken.high_watermark,
        segments=segments(taken),
        active_positions=tuple(view.PositionInfo(each.offset, each.position) for each in taken.active_positions),
        aborted_transactions=tuple(
            view.AbortedTransactionInfo(each.producer_id, each.first_offset, each.last_offset) for each in aborted
        ),
    )


def segments(taken: LogMoment) -> tuple[view.SegmentInfo, ...]:
    """The row, each segment up to where the next one begins, as the one that was active then ends with the log."""
    ends = [*(segment.base_offset for segment in taken.row[1:]), taken.log_end_offset]
    return tuple(
        view.SegmentInfo(segment.base_offset, end, size)
        for segment, end, size in zip(taken.row, ends, taken.sizes, strict=True)
    )
