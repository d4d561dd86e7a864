"""The topics of which this broker holds partitions."""

from __future__ import annotations

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.partition import Partition
from trio_broker.storage.errors import StorageShortage


@attrs.define
class LocalTopic:
    """A topic of which this broker holds partitions."""

    name: str
    topic_id: bytes
    config: LogConfig
    partitions: dict[int, Partition] = attrs.Factory(dict)
    failures: dict[int, KafkaError] = attrs.Factory(dict)
    """Partitions whose log could not be opened, and why."""
    unopened: dict[int, LeaderAndIsr] = attrs.Factory(dict)
    """Who leads the partitions in ``failures``, for the next try."""

    @property
    def lacks_room(self) -> bool:
        """Whether a log could not be opened for a shortage, which may be over."""
        return any(isinstance(failure, StorageShortage) for failure in self.failures.values())

    def note_unopened(self, index: int, decided: LeaderAndIsr, failure: KafkaError) -> None:
        """Remember why the log of a partition could not be opened, and who leads it for the next try."""
        self.failures[index], self.unopened[index] = failure, decided

    def forget_unopened(self, index: int) -> None:
        """A partition was opened, or is no longer to be here."""
        del self.failures[index], self.unopened[index]

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
