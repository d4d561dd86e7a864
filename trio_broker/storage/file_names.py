"""The names of files and directories in a Kafka data directory.

A segment's files are named by its base offset in 20 digits, a producer snapshot by the offset it stands for,
exclusive. Everything that is on its way out, or not yet in, carries a suffix that a loader can judge without opening
the file.

Source: Kafka's LogFileUtils and LocalLog; docs/formats/segment.md.
"""

from __future__ import annotations

import os
import re
from pathlib import PurePath
from typing import TypeVar

from trio_broker.common.topic_partition import TopicPartition

P = TypeVar("P", bound=PurePath)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
METADATA_SNAPSHOT_SUFFIX = ".checkpoint"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
SCRUBBER_CHECKPOINT = "scrubber-offset-checkpoint"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
META_PROPERTIES = "meta.properties"
QUORUM_STATE = "quorum-state"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
SPACE_RESERVE = ".space-reserve"

CLUSTER_METADATA_DIRECTORY = "__cluster_metadata-0"
REMOTE_INDEX_CACHE_DIRECTORY = "remote-log-index-cache"

MAX_NAME_BYTES = 255
"""What Linux file systems allow for one name; directories being deleted shorten their topic to stay within it."""

_RETIRED_DIRECTORY = re.compile(r"^(\S+)-(\d+)\.([0-9a-f]{32})-(delete|stray|future)$")


def segment_path(directory: P, base_offset: int, suffix: str) -> P:
    """Return the path of one file of the segment that begins at ``base_offset``."""
    return directory / f"{base_offset:020d}{suffix}"


def absolute(path: PurePath) -> PurePath:
    """Return ``path`` from the root on, by the working directory of this process, and otherwise as it was written."""
    return PurePath(os.getcwd(), path)


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name that ends in exactly ``suffix``, None when it is some other file."""
    digits = name.removesuffix(suffix)
    return int(digits) if digits != name and len(digits) == 20 and digits.isdecimal() and digits.isascii() else None


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition whose log lives in a directory of this name, None when no partition is called so.

    The partition is what follows the last dash, since topic names contain dashes too.
    """
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal() or not partition.isascii():
        return None
    if str(int(partition)) != partition:
        return None  # "orders-03" would collide with "orders-3"
    return TopicPartition(topic, int(partition))


def is_marked_directory(name: str, kind: str) -> bool:
    """Return whether the name is that of a partition on its way out; ``kind`` is delete, stray or future."""
    match = _RETIRED_DIRECTORY.match(name)
    return match is not None and match.group(4) == kind


def parse_future_directory(name: str) -> TopicPartition | None:
    """Return the partition of which a directory of this name is a copy that is to take its place, None for others."""
    if not is_marked_directory(name, "future"):
        return None
    return parse_partition_directory(name.rpartition(".")[0])


def retired_by(name: str) -> str:
    """Return the name that the directory of a log gets when a copy in a directory of this name takes its place."""
    return name.removesuffix("-future") + "-delete"


def marked_directory_name(partition: TopicPartition, kind: str, unique: bytes) -> str:
    """Return a name for the directory of ``partition``, with a new uuid: ``orders-3.<32 hex digits>-delete``."""
    suffix = f"-{partition.partition}.{unique.hex()}-{kind}"
    return partition.topic[: MAX_NAME_BYTES - len(suffix)] + suffix
