"""The topics of which this broker holds partitions, and what the cluster wants it to hold."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.partition import Partition
from trio_broker.storage.errors import StorageShortage


@attrs.frozen
class TopicAssignment:
    """What this broker shall hold of a topic: partitions that it leads, with their leader epochs; settings of them all.

    Partitions that are not named stay as they are.
    """

    name: str
    topic_id: bytes
    leader_epochs: Mapping[int, int]
    config: LogConfig


@attrs.define
class LocalTopic:
    """A topic of which this broker holds partitions."""

    name: str
    topic_id: bytes
    config: LogConfig
    partitions: dict[int, Partition] = attrs.Factory(dict)
    failures: dict[int, KafkaError] = attrs.Factory(dict)
    """Partitions whose log could not be opened, and why."""
    unopened_epochs: dict[int, int] = attrs.Factory(dict)
    """The leader epochs of the partitions in ``failures``, for the next try."""

    @property
    def lacks_room(self) -> bool:
        """Whether a log could not be opened for a shortage, which may be over."""
        return any(isinstance(failure, StorageShortage) for failure in self.failures.values())

    def note_unopened(self, index: int, leader_epoch: int, failure: KafkaError) -> None:
        """Remember why the log of a partition could not be opened, and its leader epoch for the next try."""
        self.failures[index], self.unopened_epochs[index] = failure, leader_epoch

    def partition(self, index: int) -> Partition:
        """The partition of this index.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_OR_PARTITION``, ``KAFKA_STORAGE_ERROR`` when its log could not be opened.
        """
        partition = self.partitions.get(index)
        if partition is None:
            raise self.missing(index)
        return partition

    def missing(self, index: int) -> KafkaError:
        """Why there is no partition of this index."""
        if failure := self.failures.get(index):
            return KafkaError(str(failure), code=failure.code)
        return KafkaError(f"no partition {self.name}-{index} here", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
