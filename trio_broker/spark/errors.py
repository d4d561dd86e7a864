"""What can be wrong with a job, in words for the person who runs it.

Spark shows the text of an exception and little else, so each text names what it is about: the option, or topic,
partition and offset. Nothing is decided by the classes but which of them ``failOnDataLoss`` covers.

They travel from workers to the driver as pickles, so each keeps the arguments that it was made with.
"""

from __future__ import annotations

from trio_broker.topic_partition import TopicPartition


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
    """Records that the job was to read are gone: deleted, truncated, or with their topic. See ``failOnDataLoss``."""


class CorruptData(PartitionError):
    """Bytes of a log that are no good records; reading on behind them would be guessing."""


class SourceUnavailable(SparkJobError):
    """The cluster, the broker of a partition, or a directory could not be reached in time."""
