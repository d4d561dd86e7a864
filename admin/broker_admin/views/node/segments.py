"""The files of a topic's partitions, for programs that read logs beside the broker."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs

MANIFEST_VERSION = 1
"""Of ``TopicManifest``; another number means that readers of this one would misread it."""


@attrs.frozen
class SegmentInfo:
    """One segment of a log: its offsets, the end exclusive, and the size of its valid part.

    The last one of a log is active: its file grows behind ``size_bytes``, which is the end of a batch. ``inode`` is the
    number of the file, since compaction gives the name to another one; None if that happened at this moment.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    inode: int | None = None


@attrs.frozen
class PositionInfo:
    """The batch whose last offset is ``offset`` begins at byte ``position`` of the active segment's file."""

    offset: int
    position: int


@attrs.frozen
class AbortedTransactionInfo:
    """The records of ``producer_id`` from ``first_offset`` up to the marker at ``last_offset`` never happened."""

    producer_id: int
    first_offset: int
    last_offset: int


@attrs.frozen
class LogManifest:
    """What a reader of a log's files must know besides the files, all of it from one point in time.

    The files are in ``directory_name`` under ``log_directory``, an absolute path on the broker's machine. ``segments``
    are in the order of their offsets, without gaps. ``active_positions`` are some entries of the active segment's
    offset index, which has no file yet. ``aborted_transactions`` are those with records between ``log_start_offset``
    and ``last_stable_offset``, in the order of their markers.
    """

    log_directory: str
    directory_name: str
    leader_epoch: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    segments: tuple[SegmentInfo, ...]
    active_positions: tuple[PositionInfo, ...]
    aborted_transactions: tuple[AbortedTransactionInfo, ...]


@attrs.frozen
class PartitionManifest:
    """One partition: its ``log``, or the ``error`` that keeps it from being read; the other one is None."""

    partition: int
    error: str | None
    log: LogManifest | None


@attrs.frozen
class TopicManifest:
    """The files of a topic's partitions, for programs that read logs beside the broker."""

    version: int
    cluster_id: str
    node_id: int
    topic: str
    topic_id: str
    partitions: tuple[PartitionManifest, ...]


class SegmentsView(Protocol):
    """The segments of a broker, as the admin app sees them."""

    async def manifest(self, topic: str, partitions: Collection[int] = ()) -> TopicManifest | None:
        """The files of these partitions, or of all, by number; None if there is no such topic.

        Each partition is of one point in time; those that do not exist are left out.
        """
        ...
