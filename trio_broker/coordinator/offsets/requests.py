"""The records and responses of requests about committed offsets.

Nothing here changes state: the group has allowed the request before (``validate_offset_commit``), and the records take
effect when they are appended and put into ``CommittedOffsets``.

A commit is the most frequent request of a coordinator, so its path is short: from the fields of the request to the
bytes of a record (``kafka_wire.stored.offset_commits``), which are appended and then kept as they are.

Source: Kafka's OffsetMetadataManager; KIP-211 for the retention time of old clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.limits import MAX_TIMESTAMP_MS
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafka_wire.primitives import NO_OFFSET, NO_UUID
from kafka_wire.schema import Request
from kafka_wire.stored.offset_commits import NO_EXPIRE_TIMESTAMP, encode_commit_key, encode_commit_value
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Completion, CoordinatorResult

NO_RETENTION_TIME = -1
"""Sent by clients that leave the retention of their offsets to the broker."""

MIN_COMMIT_BYTES = 40
"""The least size of a commit's record, without the names."""


@attrs.frozen
class TransactionalCommit(Request[OffsetCommitResponse]):
    """A commit that is part of the transaction of ``producer``: TxnOffsetCommit, whose fields are those of a commit."""

    commit: OffsetCommitRequest
    producer: ProducerIdAndEpoch


class SubscribedGroup(Protocol):
    """What this module needs of a group of either protocol."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member is subscribed to ``topic``."""
        ...


# ---- committing ------------------------------------------------------------------------------------------------------


def commit_result(
    request: OffsetCommitRequest, future: ResponseFuture, now_ms: int, settings: GroupCoordinatorConfig
) -> CoordinatorResult[EncodedRecord]:
    """Return the records of a commit whose topics have names, and ids where those are known, and its response.


    Each record's key and value go into ``CommittedOffsets.put`` once the batch is appended. A partition with metadata
    beyond ``offset.metadata.max.bytes`` is refused; the others are committed all the same.

    Raises:
        ValueError: the group's or a topic's name is too long for a record.
    """
    expires_ms = _expire_timestamp(request.retention_time_ms, now_ms)
    limit = settings.offset_metadata_max_bytes
    group_id = request.group_id
    records: list[EncodedRecord] = []
    topics = []
    for topic in request.topics:
        name, topic_id = topic.name, topic.topic_id
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if metadata and _java_length(metadata) > limit:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
                continue
            value = encode_commit_value(
                partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expires_ms, topic_id
            )
            records.append((encode_commit_key(group_id, name, index), value))
            partitions.append(OffsetCommitResponsePartition(partition_index=index))
        topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
    completions = [Completion(future, OffsetCommitResponse(topics=topics))]
    return CoordinatorResult(records, completions, refused=_commit_refused, is_routine=True)


def _commit_refused(code: ErrorCode) -> CoordinatorResult[EncodedRecord]:
    """A commit has no response for a refusal as a whole; the code is that of each partition."""
    too_large = code is ErrorCode.UNKNOWN_SERVER_ERROR
    raise KafkaError("the commit is not written", code=ErrorCode.INVALID_COMMIT_OFFSET_SIZE if too_large else code)


def least_batch_bytes(request: OffsetCommitRequest) -> int:
    """The least size of this commit's batch, computed before any record is made."""
    each, size = MIN_COMMIT_BYTES + len(request.group_id), 0
    for topic in request.topics:
        size += (each + len(topic.name)) * len(topic.partitions)
    return size


def _expire_timestamp(retention_time_ms: int, now_ms: int) -> int:
    """KIP-211: only versions 2 to 4 can ask for a retention of their own, and few clients do."""
    if retention_time_ms == NO_RETENTION_TIME:
        return NO_EXPIRE_TIMESTAMP
    return min(now_ms + retention_time_ms, MAX_TIMESTAMP_MS)


def _java_length(text: str) -> int:
    """The length of ``text`` as Java counts, which is what Kafka compares with its limit of "bytes"."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# ---- fetching --------------------------------------------------------------------------------------------------------


def fetched_offsets(
    offsets: CommittedOffsets, request: OffsetFetchRequestGroup, *, require_stable: bool = False
) -> Steps[OffsetFetchResponseGroup]:
    """Return what the group has committed in the partitions of the request; all of it, if it names no topics.

    Where nothing is committed the offset is -1, and that is no error. It is so too for a topic that was deleted and
    created again, if both request and commit have its id. With ``require_stable`` a partition for which a transaction
    that has not ended has a commit gets an error, and the client tries again (KIP-447). Yields if the partitions are
    many; every offset is then one that was committed at some time during the call.
    """
    group_id, budget = request.group_id, YieldBudget()
    if request.topics is None:
        asked = [
            OffsetFetchRequestTopics(name=name, partition_indexes=offsets.partitions_of(group_id, name))
            for name in offsets.topics_of(group_id)
        ]
    else:
        asked = request.topics
    topics = []
    for topic in asked:
        partitions = []
        for index in topic.partition_indexes:
            if require_stable and offsets.has_pending(group_id, topic.name, index):
                partitions.append(_fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            commit = offsets.get(group_id, topic.name, index)
            if commit is not None and is_another_topic(commit.topic_id, topic.topic_id):
                commit = None
            partitions.append(_fetched(index, commit))
            if budget.is_spent:
                yield budget.renewed
        if budget.is_spent:  # a topic may be asked for without partitions
            yield budget.renewed
        topics.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _fetched(
    index: int, commit: OffsetAndMetadata | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if commit is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
    )


def is_another_topic(topic_id: bytes, other_id: bytes) -> bool:
    """Whether two ids of topics of one name are known and differ."""
    return topic_id != other_id and topic_id != NO_UUID and other_id != NO_UUID


# ---- deleting --------------------------------------------------------------------------------------------------------


@attrs.define
class DeleteRecords:
    """Tombstones, and the response for when they are durable."""

    records: list[EncodedRecord]
    response: OffsetDeleteResponse


def delete_records(offsets: CommittedOffsets, request: OffsetDeleteRequest, group: SubscribedGroup) -> DeleteRecords:
    """Return the tombstones of the partitions of ``request``, but for topics that the group is subscribed to.

    Deleting an offset that was never committed succeeds without a record. One that would count once a transaction ends
    is deleted as well.
    """
    records: list[EncodedRecord] = []
    topics = []
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        indexes = [partition.partition_index for partition in topic.partitions]
        if not subscribed:
            # A partition that is named twice has one tombstone.
            records += [
                offset_tombstone(request.group_id, TopicPartition(topic.name, index))
                for index in dict.fromkeys(indexes)
                if offsets.has_offset(request.group_id, topic.name, index)
                or offsets.has_pending(request.group_id, topic.name, index)
            ]
        partitions = [OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes]
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return DeleteRecords(records, OffsetDeleteResponse(topics=topics))


def offset_tombstone(group_id: str, place: TopicPartition) -> EncodedRecord:
    """The tombstone of one commit."""
    return encode_commit_key(group_id, place.topic, place.partition), None


def group_tombstones(offsets: CommittedOffsets, group_id: str, places: Iterable[TopicPartition]) -> list[EncodedRecord]:
    """Return the tombstones of those commits of the group that are in ``places``, or would count there once a
    transaction ends.
    """
    return [offset_tombstone(group_id, place) for place in places if _commits(offsets, group_id, place)]


def topic_tombstones(
    offsets: CommittedOffsets, group_id: str, topic_id: bytes, places: Iterable[TopicPartition]
) -> list[EncodedRecord]:
    """Return the tombstones of the group's commits in ``places`` of a deleted topic, but not in a later topic of the
    same name; also of those that would count once a transaction ends.
    """
    return [
        offset_tombstone(group_id, place)
        for place in places
        if any(not is_another_topic(each.topic_id, topic_id) for each in _commits(offsets, group_id, place))
    ]


def _commits(offsets: CommittedOffsets, group_id: str, place: TopicPartition) -> list[OffsetAndMetadata]:
    """The commit that counts, if there is one, and those that are pending."""
    commit = offsets.get(group_id, place.topic, place.partition)
    pending = offsets.pending_commits(group_id, place)
    return pending if commit is None else [commit, *pending]
