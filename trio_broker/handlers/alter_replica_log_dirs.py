"""AlterReplicaLogDirs: move replicas to other log directories.

This broker does not move a log once it is created. For a replica that is in the named directory already there is
nothing to do, and the answer has no error, as in Kafka. A real move is refused.

Kafka also notes the directory for a replica that the broker does not have yet, and later creates it there. Here such a
replica is answered UNKNOWN_TOPIC_OR_PARTITION: a broker that stands alone has a replica of every partition.

Source: Kafka's ReplicaManager.alterReplicaLogDirs; KIP-113.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

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
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.log_directory import LogDirectory

log = logging.getLogger(__name__)

MOVE_REFUSED: Final = ErrorCode.INVALID_REQUEST
"""Clients report it as a request that the broker cannot serve and refer to the broker's log, which has the reason. The
codes that Kafka has for moves would mislead: KAFKA_STORAGE_ERROR means a failed disk, and REPLICA_NOT_AVAILABLE makes
``kafka-reassign-partitions`` try again until its timeout."""


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


@handles(AlterReplicaLogDirsRequest, error_response=error_response)
async def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Answer whether each replica is in the log directory asked for; none is moved."""
    replicas = context.services.replicas
    directories = {directory.absolute_path: directory for directory in replicas.log_manager.directories}
    results, refused_moves = [], []
    budget = YieldBudget()
    asked: dict[str, dict[int, str]] = {}
    async for path, named in InTurns(asked_topics(request)):
        asked.setdefault(named.name, {}).update(dict.fromkeys(named.partitions, path))
    for topic, paths in asked.items():
        partitions = []
        for index, path in paths.items():
            topic_partition = TopicPartition(topic, index)
            code = check_directory(topic_partition, directories.get(path), replicas)
            partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            if code is MOVE_REFUSED:
                refused_moves.append(topic_partition)
            await budget.maybe_yield()
        results.append(AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions))
    if refused_moves:
        log.warning(
            "%s: %d replicas stay in their log directories, the first of them %s: this broker does not move logs",
            context.connection,
            len(refused_moves),
            refused_moves[0],
        )
    return AlterReplicaLogDirsResponse(results=results)


def check_directory(
    topic_partition: TopicPartition, directory: LogDirectory | None, replicas: ReplicaManager
) -> ErrorCode:
    """Return NONE if a replica is in ``directory``, which is None for a path that is not in ``log.dirs``."""
    # The directory is checked before the partition, as in Kafka: a wrong path is reported even for a missing topic.
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.failure is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        partition = replicas.topic(topic_partition.topic).partition(topic_partition.partition)
        partition.require_leader()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE if partition.log.directory.parent == directory.path else MOVE_REFUSED
