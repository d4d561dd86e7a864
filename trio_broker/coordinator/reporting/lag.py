"""How far a group is behind, in records and in seconds.

The lag in records is the high watermark less the committed offset. The lag in seconds is the age of the first record
that is not consumed: the broker knows when it appended which (``partition.append_times``). For records from before
its start there is only the timestamp of the batch, which is read from the file.

Neither is exact: a member commits after it has processed, and only now and then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import methodcaller

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, read_batch_header
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupSnapshot
from trio_broker.partition.hosted_topics import HostedTopic
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.segment import FetchedRecords
from trio_broker.topic_partition import TopicPartition


@attrs.frozen
class UnconsumedRecord:
    """The first record that a group has not consumed."""

    partition: Partition
    offset: int

    @classmethod
    def after(cls, partition: Partition, committed_offset: int) -> UnconsumedRecord:
        return cls(partition, max(committed_offset, partition.log_start_offset))


def consumer_lag(
    place: TopicPartition,
    partition: Partition | None,
    commit: OffsetAndMetadata | None,
    seconds: float | None,
    member_id: str | None = None,
) -> ConsumerLag:
    """The lag in ``place``; ``seconds`` is the age of the first unconsumed record, where there is one."""
    committed_offset = None if commit is None else commit.offset
    end = None if partition is None else partition.high_watermark
    records = None if end is None or committed_offset is None else max(end - committed_offset, 0)
    return ConsumerLag(
        topic=place.topic,
        partition=place.partition,
        member_id=member_id,
        committed_offset=committed_offset,
        log_end_offset=end,
        lag_records=records,
        lag_seconds=0.0 if records == 0 else seconds,
        committed_at_ms=None if commit is None else commit.commit_timestamp_ms,
    )


async def consumer_lags(
    group: GroupSnapshot, offsets: CommittedOffsets, replicas: ReplicaManager, now_ms: int
) -> list[ConsumerLag]:
    """Return the lag in every partition that the group has committed or one of its members owns, in their order."""
    owners = partition_owners(group)
    commits = {
        TopicPartition(topic, index): commit
        for topic, by_partition in offsets.of_group(group.group_id).items()
        for index, commit in by_partition.items()
    }
    places = sorted(commits.keys() | owners.keys(), key=lambda place: (place.topic, place.partition))
    partitions = {place: hosted_partition(replicas, place) for place in places}
    unconsumed = {
        place: UnconsumedRecord.after(partition, commits[place].offset)
        for place, partition in partitions.items()
        if partition is not None and place in commits and commits[place].offset < partition.high_watermark
    }
    appended_ms = await append_times_of(unconsumed, replicas)
    seconds = {place: max(now_ms - appended, 0) / 1000 for place, appended in appended_ms.items()}
    return [
        consumer_lag(place, partitions[place], commits.get(place), seconds.get(place), owners.get(place))
        for place in places
    ]


def partition_owners(group: GroupSnapshot) -> dict[TopicPartition, str]:
    """The member that owns each partition, as far as assignments can be read."""
    return {
        TopicPartition(topic, index): member.member_id
        for member in group.members
        for topic, indexes in (member.assignment or {}).items()
        for index in indexes
    }


def hosted_partition(replicas: ReplicaManager, place: TopicPartition) -> Partition | None:
    """The partition, if this broker has it and it has not failed."""
    return available_partition(replicas.topics.get(place.topic), place.partition)


def available_partition(topic: HostedTopic | None, index: int) -> Partition | None:
    """A partition of a topic that this broker may have, if it is here and has not failed."""
    partition = None if topic is None else topic.partitions.get(index)
    return None if partition is None or partition.failure is not None else partition


async def append_times_of(
    unconsumed: Mapping[TopicPartition, UnconsumedRecord], replicas: ReplicaManager
) -> dict[TopicPartition, int]:
    """When those records were appended (wall clock, ms), without those whose time cannot be found."""
    known: dict[TopicPartition, int] = {}
    older: list[TopicPartition] = []
    for place, record in unconsumed.items():
        appended_ms = record.partition.append_times.appended_at(record.offset)
        if appended_ms is None:
            older.append(place)
        else:
            known[place] = appended_ms
    if older:
        # One thread for all of them: each reads one header, mostly from the page cache.
        records = [unconsumed[place] for place in older]
        times = await replicas.run_in_io_thread(partial(batch_timestamps, records))
        known |= {place: time for place, time in zip(older, times, strict=True) if time is not None}
    return known


def batch_timestamps(records: Sequence[UnconsumedRecord]) -> list[int | None]:
    """The timestamps of the batches of ``records``, None where there is none. Blocks: runs in a worker thread."""
    return [_batch_timestamp(record) for record in records]


def _batch_timestamp(record: UnconsumedRecord) -> int | None:
    try:
        log = record.partition.log
        read = methodcaller("read", record.offset, BATCH_HEADER_BYTES, end_offset=log.log_end_offset)
        fetched: FetchedRecords = log.look(read).result
        records = fetched.records
        header = records if isinstance(records, bytes) else records.read(BATCH_HEADER_BYTES)
        timestamp_ms = read_batch_header(header).max_timestamp
    except (KafkaError, OSError):
        # Deleted or truncated meanwhile, or a bad disk, which is for those requests to report that need the records.
        return None
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
