"""AlterReplicaLogDirs: have replicas moved to other log directories.

The answer says that a move has begun; DescribeLogDirs shows how far it is. For a replica that is in the named directory
already there is nothing to do, but that a move elsewhere is cancelled. For one that this broker does not have yet the
directory is noted, and the answer is REPLICA_NOT_AVAILABLE, after which tools ask again.

Source: Kafka's ReplicaManager.alterReplicaLogDirs; KIP-113.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
)
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns, YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import ALTER_CLUSTER, for_cluster
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.log_directory import LogDirectory


def error_response(request: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code) for index in paths
                ],
            )
            for topic, paths in asked_paths(request).items()
        ]
    )


def asked_paths(request: AlterReplicaLogDirsRequest) -> dict[str, dict[int, str]]:
    """The path for each partition, by topic. If a partition is named with several paths, the last one counts, as in the
    map that Kafka makes of the request."""
    paths: dict[str, dict[int, str]] = {}
    for path, topic in asked_topics(request):
        paths.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions, path))
    return paths


def asked_topics(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, AlterReplicaLogDirTopic]]:
    """The topics of the request, each with its path."""
    return ((directory.path, topic) for directory in request.dirs for topic in directory.topics)


@handles(AlterReplicaLogDirsRequest, error_response=error_response, requires=[for_cluster(ALTER_CLUSTER)])
async def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Begin to move each replica to the log directory asked for, or answer with its error."""
    replicas = context.services.replicas
    image = context.services.metadata_cache.image
    directories = {directory.absolute_path: directory for directory in replicas.log_manager.directories}
    results = []
    budget = YieldBudget()
    asked: dict[str, dict[int, str]] = {}
    async for path, named in InTurns(asked_topics(request)):
        asked.setdefault(named.name, {}).update(dict.fromkeys(named.partitions, path))
    # A move that is cancelled has to end first.
    context.release_for_disk()
    for topic, paths in asked.items():
        partitions = []
        for index, path in paths.items():
            topic_partition = TopicPartition(topic, index)
            is_known = image.partition(topic, index) is not None
            code = await alter(topic_partition, directories.get(path), replicas, is_known=is_known)
            partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            await budget.maybe_yield()
        results.append(AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions))
    return AlterReplicaLogDirsResponse(results=results)


async def alter(
    topic_partition: TopicPartition, directory: LogDirectory | None, replicas: ReplicaManager, *, is_known: bool
) -> ErrorCode:
    """Begin to move a replica to ``directory``, which is None for a path that is not in ``log.dirs``. ``is_known`` says
    whether the cluster has the partition."""
    # The directory is checked before the partition, as in Kafka: a wrong path is reported even for a missing topic.
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.failure is None and not is_known:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        await replicas.alter_log_dirs.alter(topic_partition, directory)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
