"""DescribeLogDirs: how large the partitions in each log directory are, and how much room its volume has.

A partition that is not here is left out rather than refused, as in Kafka: a client asks every broker the same question.
Sizes come from memory; only the room on each volume is asked of the disk, in a worker thread.

Source: Kafka's ReplicaManager.describeLogDirs; KIP-113, KIP-827 for the volumes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from trio_broker.common.request_phase import RequestPhase
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, for_cluster
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_alter_log_dirs_manager import Move
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)

TopicPartitions = Mapping[str, list[DescribeLogDirsPartition]]


def error_response(request: DescribeLogDirsRequest, error: KafkaError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.code, results=[])


@handles(DescribeLogDirsRequest, error_response=error_response, requires=[for_cluster(DESCRIBE_CLUSTER)])
async def describe_log_dirs(request: DescribeLogDirsRequest, context: Context) -> DescribeLogDirsResponse:
    """Describe each log directory: the sizes of the partitions asked for, and the room on its volume."""
    replicas = context.services.replicas
    # One walk over the partitions for all directories; each directory is then asked for its room, one after the other.
    topics_by_directory: defaultdict[PurePath, defaultdict[str, list[DescribeLogDirsPartition]]]
    topics_by_directory = defaultdict(lambda: defaultdict(list))
    budget = YieldBudget()
    for partition in asked_partitions(request, replicas):
        await budget.maybe_yield()
        if partition is not None:
            name = partition.topic_partition.topic
            topics_by_directory[partition.log.directory.parent][name].append(describe_partition(partition))
            if move := replicas.alter_log_dirs.moves.get(partition.topic_partition):
                topics_by_directory[move.future.directory][name].append(describe_future(move))
    context.release_handler(RequestPhase.DISK)
    return DescribeLogDirsResponse(
        results=[
            await describe_directory(directory, topics_by_directory[directory.path], replicas)
            for directory in replicas.log_manager.directories
        ]
    )


def asked_partitions(request: DescribeLogDirsRequest, replicas: ReplicaManager) -> Iterator[Partition | None]:
    """Every partition, or each one that the request names, once; None for one that is not here.

    Topics may come and go between two of them.
    """
    if request.topics is None:
        # Copies: the caller yields between two partitions, and a topic created meanwhile would end the iteration with
        # RuntimeError.
        for local in list(replicas.topics.values()):
            yield from list(local.partitions.values())
        return
    for name, index in {(asked.topic, index): None for asked in request.topics for index in asked.partitions}:
        yield replicas.find(TopicPartition(name, index))


def describe_partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.topic_partition.partition,
        partition_size=partition.log.size_bytes,
        # No high watermark here is past the log end.
        offset_lag=0,
        is_future_key=False,
    )


def describe_future(move: Move) -> DescribeLogDirsPartition:
    """The copy that is to take the place of a partition's log."""
    return DescribeLogDirsPartition(
        partition_index=move.future.topic_partition.partition,
        partition_size=move.future.size_bytes,
        offset_lag=move.offset_lag,
        is_future_key=True,
    )


async def describe_directory(
    directory: LogDirectory, topics: TopicPartitions, replicas: ReplicaManager
) -> DescribeLogDirsResult:
    """One directory, or KAFKA_STORAGE_ERROR without topics when its disk failed."""
    path = directory.absolute_path
    if directory.failure is not None:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])
    try:
        space = await replicas.threads_of(directory.path).do(directory.volume_space)
    except OSError as error:
        log.error("%s: its volume cannot be measured: %s", path, error)
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[])
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )
