"""How far a group is behind, in records and in seconds.

The lag in records is the high watermark less the committed offset. The lag in seconds is the age of the first record
that is not consumed: the broker knows when it appended which (``partition.append_times``). For records from before
its start there is only the timestamp of the batch, which is read from the file.

Neither is exact: a member commits after it has processed, and only now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import TypeAlias

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP, read_batch_header
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import InTurns, clear_in_turns, list_in_turns
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupSnapshot
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.segment import FetchedRecords

ExpiresAtMs: TypeAlias = Callable[[str, str, OffsetAndMetadata], int | None]
"""When an offset that a group committed in a topic expires; see ``GroupMachine.expires_at_ms``."""


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
    expires_at_ms: int | None = None,
) -> ConsumerLag:
    """The lag in ``place``; ``seconds`` is the age of the first unconsumed record, 0 where there is none."""
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
        lag_seconds=seconds,
        committed_at_ms=None if commit is None else commit.commit_timestamp_ms,
        expires_at_ms=expires_at_ms,
    )


@attrs.frozen
class _Place:
    """A partition that a group has committed, or one of its members owns."""

    name: TopicPartition
    partition: Partition | None
    commit: OffsetAndMetadata | None
    member_id: str | None

    @property
    def unconsumed(self) -> UnconsumedRecord | None:
        """The first record that the group has not consumed, if there is one and it is known."""
        if self.commit is None or self.partition is None:
            return None
        record = UnconsumedRecord.after(self.partition, self.commit.offset)
        return record if record.offset < self.partition.high_watermark else None


async def consumer_lags(
    group: GroupSnapshot, offsets: CommittedOffsets, replicas: ReplicaManager, now_ms: int, expires_at_ms: ExpiresAtMs
) -> list[ConsumerLag]:
    """Return the lag in every partition that the group has committed or one of its members owns, in their order.

    Yields if they are many. The lag in each is of some time during the call.
    """
    places = await run_steps(list_in_turns(_places(group, offsets, replicas)))
    seconds: dict[TopicPartition, float] = {}
    older: list[tuple[TopicPartition, UnconsumedRecord]] = []
    async for place in InTurns(places):
        if (record := place.unconsumed) is None:
            if place.commit is not None and place.partition is not None:
                # Behind a log start nothing is left to wait for, though the offsets differ.
                seconds[place.name] = 0.0
            continue
        appended_ms = record.partition.append_times.appended_at(record.offset)
        if appended_ms is None:
            older.append((place.name, record))
        else:
            seconds[place.name] = age_seconds(appended_ms, now_ms)
    if older:
        # One thread for all of them: each reads one header, mostly from the page cache.
        times = await replicas.run_in_io_thread(partial(batch_timestamps, [record for _, record in older]))
        async for (name, _), time in InTurns(zip(older, times, strict=True)):
            if time is not None:
                seconds[name] = age_seconds(time, now_ms)
    lags = (
        consumer_lag(
            each.name,
            each.partition,
            each.commit,
            seconds.get(each.name),
            each.member_id,
            None if each.commit is None else expires_at_ms(group.group_id, each.name.topic, each.commit),
        )
        for each in places
    )
    found = await run_steps(list_in_turns(lags))
    await run_steps(clear_in_turns(places, seconds, older))
    return found


def _places(group: GroupSnapshot, offsets: CommittedOffsets, replicas: ReplicaManager) -> Iterator[_Place]:
    group_id, owners = group.group_id, partition_owners(group)
    for topic in sorted({*offsets.topics_of(group_id), *owners}):
        owned, local = owners.get(topic, {}), replicas.topics.get(topic)
        for index in sorted({*offsets.partitions_of(group_id, topic), *owned}):
            commit = offsets.get(group_id, topic, index)
            yield _Place(TopicPartition(topic, index), available_partition(local, index), commit, owned.get(index))


def partition_owners(group: GroupSnapshot) -> dict[str, dict[int, str]]:
    """The member that owns each partition, by topic, as far as assignments can be read."""
    owners: dict[str, dict[int, str]] = {}
    for member in group.members:
        for topic, indexes in (member.assignment or {}).items():
            owners.setdefault(topic, {}).update(dict.fromkeys(indexes, member.member_id))
    return owners


def age_seconds(appended_ms: int, now_ms: int) -> float:
    """How long ago a record was appended; 0 if a clock was set back since."""
    return max(now_ms - appended_ms, 0) / 1000


def local_partition(replicas: ReplicaManager, place: TopicPartition) -> Partition | None:
    """The partition, if this broker has it and it has not failed."""
    return available_partition(replicas.topics.get(place.topic), place.partition)


def available_partition(topic: LocalTopic | None, index: int) -> Partition | None:
    """A partition of a topic that this broker may have, if it is here and has not failed."""
    partition = None if topic is None else topic.partitions.get(index)
    return None if partition is None or partition.failure is not None else partition


def batch_timestamps(records: Sequence[UnconsumedRecord]) -> list[int | None]:
    """The timestamps of the batches of ``records``, None where there is none. Blocks: runs in a worker thread."""
    return [_batch_timestamp(record) for record in records]


def _batch_timestamp(record: UnconsumedRecord) -> int | None:
    try:
        log = record.partition.log
        read = methodcaller("read", record.offset, BATCH_HEADER_BYTES, end_offset=log.log_end_offset)
        fetched: FetchedRecords = log.read_with(read).result
        records = fetched.records
        header = records if isinstance(records, bytes) else records.read(BATCH_HEADER_BYTES)
        timestamp_ms = read_batch_header(header).max_timestamp
    except (KafkaError, OSError):
        # Deleted or truncated meanwhile, or a bad disk, which is for those requests to report that need the records.
        return None
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms
