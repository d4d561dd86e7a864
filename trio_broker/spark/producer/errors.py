"""What can go wrong in writing, in words for the person who runs the job."""

from __future__ import annotations

from trio_broker.spark.errors import SparkJobError


class WriteFailed(SparkJobError):
    """Records were not written, or nobody can say whether they were; the text names topic and partition."""


class UnwritableRow(SparkJobError):
    """A row, or its columns, can be no record: a column is missing, of a wrong type, or has an impossible value."""


class RecordTooLarge(WriteFailed):
    """One record is more than the topic, or a request, takes; the text names the size and the limit."""
