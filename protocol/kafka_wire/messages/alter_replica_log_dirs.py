"""AlterReplicaLogDirs (api key 34): move the replicas of one broker between its log directories (KIP-113).

Version notes:

* 1: the oldest one served; a throttled broker answers first and then pauses (KIP-219).
* 2: flexible versions.

Source: Kafka's AlterReplicaLogDirsRequest.json and AlterReplicaLogDirsResponse.json.
"""

from __future__ import annotations

from kafka_wire.primitives import Int16, Int32, String
from kafka_wire.schema import Request, field, message, struct


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """The directories, and the replicas that shall be in each."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDir:
    """One directory, by its absolute path."""

    path: String
    topics: list[AlterReplicaLogDirTopic]


@struct
class AlterReplicaLogDirTopic:
    name: String
    partitions: list[Int32]


@message(key=34, versions="1-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """How each replica fared. No error means that it is in its directory, or on its way there."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirTopicResult]


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16 = field(default=0)
