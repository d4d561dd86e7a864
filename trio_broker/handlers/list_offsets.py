"""ListOffsets: find an offset by time, or one end of a log.

Timestamps below zero have special meanings, each allowed since the version that added it. Nothing found is no error,
but offset -1 and timestamp -1. A read_committed reader gets no offset above the last stable offset (KIP-98).
Without tiered storage everything is local: the earliest local offset is the log's start, and what concerns the other
tier has no offset.

Source: Kafka's ReplicaManager.fetchOffset and UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    SpecialTimestamp,
)
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase, ignore_release
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, count_in_turns, list_in_turns
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.partitions import partition_here
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import CLUSTER_ACTION, DESCRIBE_TOPIC, ForEach, InHandler, its_name
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.time_index import TimestampOffset

NOTHING = -1
"""In place of an offset, timestamp or epoch that does not exist."""


OFFSET_NOT_AVAILABLE_SINCE_VERSION = 5
LEADER_EPOCH_SINCE_VERSION = 4


SINCE_VERSION = {
    SpecialTimestamp.LATEST: 1,
    SpecialTimestamp.EARLIEST: 1,
    SpecialTimestamp.MAX_TIMESTAMP: 7,  # KIP-734
    SpecialTimestamp.EARLIEST_LOCAL: 8,  # KIP-405
    SpecialTimestamp.LATEST_TIERED: 9,  # KIP-1005
    SpecialTimestamp.EARLIEST_PENDING_UPLOAD: 11,  # KIP-1023
}
"""The first version that may ask with each."""


@attrs.frozen
class FoundOffset:
    """An offset, with the time and the leader epoch of its record where the question was about a record."""

    offset: int = NOTHING
    timestamp: int = NOTHING
    leader_epoch: int = NOTHING


def failed(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


def error_response(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[failed(partition.partition_index, error.code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@handles(
    ListOffsetsRequest,
    error_response=error_response,
    requires=[
        InHandler([CLUSTER_ACTION], "of a replica, the request: CLUSTER_AUTHORIZATION_FAILED"),
        ForEach([DESCRIBE_TOPIC], "topics", "topics", its_name),
    ],
)
def list_offsets(request: ListOffsetsRequest, context: Context) -> Steps[ListOffsetsResponse]:
    """Look up every partition on its own."""
    try:
        isolation_level = IsolationLevel(request.isolation_level)
    except ValueError:
        text = f"{request.isolation_level} is no isolation level"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST) from None
    if request.replica_id >= 0:
        context.require(CLUSTER_ACTION)
    duplicates = yield from duplicate_partitions(request)
    topics: list[ListOffsetsTopicResponse] = []
    budget = YieldBudget()
    for topic in request.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        for wanted in topic.partitions:
            if (topic.name, wanted.partition_index) in duplicates:
                partitions.append(failed(wanted.partition_index, ErrorCode.INVALID_REQUEST))
            else:
                isolation = isolation_level if request.replica_id < 0 else None
                partitions.append((yield from look_up_partition(topic.name, wanted, isolation, context)))
            if budget.is_spent:
                yield budget.renewed
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
        if budget.is_spent:  # a topic may have no partitions
            yield budget.renewed
    return ListOffsetsResponse(topics=topics)


def duplicate_partitions(request: ListOffsetsRequest) -> Steps[frozenset[tuple[str, int]]]:
    """The partitions that are asked for more than once; Kafka refuses them, since they may differ in timestamp."""
    asked = ((topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions)
    counts = yield from count_in_turns(asked)
    return frozenset((yield from list_in_turns(key for key, count in counts.items() if count > 1)))


def look_up_partition(
    topic: str, wanted: ListOffsetsPartition, isolation_level: IsolationLevel | None, context: Context
) -> Steps[ListOffsetsPartitionResponse]:
    """Answer one lookup, or with its error. Without an isolation level a replica asks."""
    replicas = context.services.replicas
    try:
        require_known_timestamp(wanted.timestamp, context.version)
        partition = partition_here(context.services, topic, wanted.partition_index)
        partition.require_leader(wanted.current_leader_epoch)
        if wanted.timestamp == SpecialTimestamp.LATEST and isolation_level is not None:
            require_visible_epoch(partition, context.version)
        found = yield from find_offset(partition, wanted.timestamp, isolation_level, replicas, context.release_handler)
    except KafkaError as error:
        return failed(wanted.partition_index, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        # The codec refuses to drop a value that an older version has no field for.
        leader_epoch=found.leader_epoch if context.version >= LEADER_EPOCH_SINCE_VERSION else NOTHING,
    )


def require_visible_epoch(partition: Partition, version: int) -> None:
    """Refuse to tell the end of a partition whose new leader does not know yet what the last one has shown: it would go
    back (KIP-207).

    Raises:
        KafkaError: ``OFFSET_NOT_AVAILABLE``, as far as the version has it.
    """
    if not partition.has_visible_epoch:
        text = f"{partition.topic_partition}: the high watermark has yet to reach the leader epoch"
        is_known = version >= OFFSET_NOT_AVAILABLE_SINCE_VERSION
        raise KafkaError(text, code=ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)


def require_known_timestamp(timestamp: int, version: int) -> None:
    """Refuse a timestamp below zero that has no meaning, or none in the version of the request.

    Raises:
        KafkaError: ``UNSUPPORTED_VERSION``.
    """
    if timestamp >= 0:
        return
    since = next((since for special, since in SINCE_VERSION.items() if special == timestamp), None)
    if since is None or version < since:
        raise KafkaError(f"timestamp {timestamp} in version {version}", code=ErrorCode.UNSUPPORTED_VERSION)


def find_offset(
    partition: Partition,
    timestamp: int,
    isolation_level: IsolationLevel | None,
    replicas: ReplicaManager,
    release_handler: ReleaseHandler = ignore_release,
) -> Steps[FoundOffset]:
    """The offset that ``timestamp`` stands for, as far as a consumer of this isolation level, or a replica, can see."""
    # Once, before any wait for a thread: what is appended during the lookup is not part of its answer.
    fetch_upper_bound = partition.fetch_upper_bound(isolation_level)
    look: Callable[[LogReader], TimestampOffset | None]
    match timestamp:
        case SpecialTimestamp.LATEST:
            return FoundOffset(fetch_upper_bound, leader_epoch=latest_epoch(partition))
        case SpecialTimestamp.EARLIEST | SpecialTimestamp.EARLIEST_LOCAL:
            return FoundOffset(partition.log_start_offset, leader_epoch=epoch_of(partition.log_start_offset, partition))
        case SpecialTimestamp.LATEST_TIERED | SpecialTimestamp.EARLIEST_PENDING_UPLOAD:
            return FoundOffset()
        case SpecialTimestamp.MAX_TIMESTAMP:
            look = LogReader.max_timestamp_offset
        case _:
            look = methodcaller("offset_for_timestamp", timestamp, fetch_upper_bound)
    release_handler(RequestPhase.DISK)
    found: TimestampOffset | None = yield partial(replicas.run_in_thread, partition, look)
    # MAX_TIMESTAMP is looked up in the whole log, whose end this reader may not see yet.
    if found is None or found.offset >= fetch_upper_bound:
        return FoundOffset()
    return FoundOffset(found.offset, found.timestamp_ms, epoch_of(found.offset, partition))


def latest_epoch(partition: Partition) -> int:
    """The leader epoch of the newest record."""
    epoch = partition.log.latest_epoch
    return NOTHING if epoch is None else epoch


def epoch_of(offset: int, partition: Partition) -> int:
    """The leader epoch in which the record at ``offset`` was, or will be, written."""
    epoch = partition.epoch_for_offset(offset)
    return NOTHING if epoch is None else epoch
