"""Errors of a job, with texts for the user who runs it.

Spark shows the text of an exception and little else, so each text names its subject: the option, or topic, partition
and offset. The classes decide only which errors ``failOnDataLoss`` covers.

They travel from workers to the driver as pickles, so each keeps the arguments that it was made with.
"""

from __future__ import annotations

from trio_broker.common.topic_partition import TopicPartition


class SparkJobError(Exception):
    """A job cannot go on; the text is complete."""


class OptionError(SparkJobError):
    """An option is unknown, contradicts another one, or has a value that means nothing."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(option, reason)
        self.option = option
        self.reason = reason

    def __str__(self) -> str:
        return f"option {self.option!r}: {self.reason}"


class PartitionError(SparkJobError):
    """Something is wrong with the log of one partition, at or behind ``offset``."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(partition, offset, reason)
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.partition} at offset {self.offset}: {self.reason}"


class DataLoss(PartitionError):
    """Records of the requested range are gone: deleted, truncated, or with their topic. See ``failOnDataLoss``."""


class CorruptData(PartitionError):
    """Bytes of a log that are no valid records; the position of the next record behind them is unknown."""


class SourceUnavailable(SparkJobError):
    """The cluster, the broker of a partition, or a directory could not be reached in time."""
