"""How far a group is behind, in records and in seconds.

The lag in records is the high watermark less the committed offset. The lag in seconds is how long the first record that
is not yet consumed has been there: the broker knows when it appended what (``replication.append_times``). For records
from before its start it knows no better than the batch's own timestamp, which takes a look into the file.

Neither is exact: a member commits after it has processed, and only now and then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import attrs
import trio

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, read_batch_header
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.reporting.description import GroupSnapshot
from trio_broker.replication.partition import Partition
from trio_broker.replication.replica_manager import ReplicaManager
from trio_broker.storage.log_file import FileRecords
from trio_broker.topic_partition import TopicPartition


@attrs.frozen(kw_only=True)
class ConsumerLag:
    """How far a group has come in one partition; ``member_id`` is whose it is now, if anybody's.

    None stands for what is not known: no commit, no such partition any more, no time of the record that is next.
    """

    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    """The high watermark: how far a consumer could have come."""
    lag_records: int | None
    lag_seconds: float | None
    member_id: str | None


@attrs.frozen
class Unconsumed:
    """The first record that is not yet consumed."""

    partition: Partition
    offset: int


async def consumer_lags(
    description: GroupSnapshot, offsets: CommittedOffsets, replicas: ReplicaManager, now_ms: int
) -> list[ConsumerLag]:
    """Return the lag in every partition that the group has committed or one of its members owns, in their order."""
    owners = partition_owners(description)
    commits = {
        TopicPartition(topic, index): commit.offset
        for topic, by_partition in offsets.of_group(description.group_id).items()
        for index, commit in by_partition.items()
    }
    places = sorted(commits.keys() | owners.keys(), key=lambda place: (place.topic, place.partition))
    ends = {place: hosted_partition(replicas, place) for place in places}
    unconsumed = {
        place: Unconsumed(partition, max(commits[place], partition.log_start_offset))
        for place, partition in ends.items()
        if partition is not None and place in commits and commits[place] < partition.high_watermark
    }
    appended_ms = await append_times_of(unconsumed, replicas)
    return [
        _lag(place, ends[place], commits.get(place), appended_ms.get(place), owners.get(place), now_ms)
        for place in places
    ]


def _lag(
    place: TopicPartition,
    partition: Partition | None,
    committed_offset: int | None,
    appended_ms: int | None,
    member_id: str | None,
    now_ms: int,
) -> ConsumerLag:
    lag_records = lag_seconds = None
    if partition is not None and committed_offset is not None:
        lag_records = max(partition.high_watermark - committed_offset, 0)
        if lag_records == 0:
            lag_seconds = 0.0
        elif appended_ms is not None:
            lag_seconds = max(now_ms - appended_ms, 0) / 1000
    return ConsumerLag(
        topic=place.topic,
        partition=place.partition,
        committed_offset=committed_offset,
        log_end_offset=None if partition is None else partition.high_watermark,
        lag_records=lag_records,
        lag_seconds=lag_seconds,
        member_id=member_id,
    )


def partition_owners(description: GroupSnapshot) -> dict[TopicPartition, str]:
    """Which member has which partition, as far as their assignments can be read."""
    return {
        TopicPartition(topic, index): member.member_id
        for member in description.members
        for topic, indexes in (member.assignment or {}).items()
        for index in indexes
    }


def hosted_partition(replicas: ReplicaManager, place: TopicPartition) -> Partition | None:
    """The partition, if it is here and can be used."""
    topic = replicas.topics.get(place.topic)
    partition = None if topic is None else topic.partitions.get(place.partition)
    return None if partition is None or partition.failure is not None else partition


async def append_times_of(
    unconsumed: Mapping[TopicPartition, Unconsumed], replicas: ReplicaManager
) -> dict[TopicPartition, int]:
    """When those records were appended (wall clock, ms), but for those of which that cannot be found out."""
    known: dict[TopicPartition, int] = {}
    older: list[TopicPartition] = []
    for place, record in unconsumed.items():
        appended_ms = record.partition.append_times.appended_at(record.offset)
        if appended_ms is None:
            older.append(place)
        else:
            known[place] = appended_ms
    if older:
        # One thread for all of them: each is a look at some header, mostly in the page cache.
        records = [unconsumed[place] for place in older]
        times = await trio.to_thread.run_sync(batch_timestamps, records, limiter=replicas.io_limiter)
        known |= {place: time for place, time in zip(older, times, strict=True) if time is not None}
    return known


def batch_timestamps(records: Sequence[Unconsumed]) -> list[int | None]:
    """The timestamps of the batches in which ``records`` lie, None where there is none. Blocks: runs in a thread."""
    return [_batch_timestamp(record) for record in records]


def _batch_timestamp(record: Unconsumed) -> int | None:
    try:
        log = record.partition.log
        fetched = log.read(record.offset, BATCH_HEADER_BYTES, end_offset=log.log_end_offset).records
        if isinstance(fetched, FileRecords):
            fetched = os.pread(fetched.fileno(), BATCH_HEADER_BYTES, fetched.position)
        timestamp_ms = read_batch_header(fetched).max_timestamp
    except (KafkaError, OSError):
        # Deleted or truncated meanwhile, or a bad disk, which is for those to judge who need the records.
        return None
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
