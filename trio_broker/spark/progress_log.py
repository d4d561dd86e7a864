"""A listener that logs what each micro-batch of a session's streams read, how fast, and what is left to read.

PySpark gives a Python source no place for metrics of its own in a query's progress, as Spark's Kafka source has with
``maxOffsetsBehindLatest``. The offsets are in it, though: up to where the micro-batch read, and the ends of the logs
when it was planned.

    spark.streams.addListener(ProgressLog())

Source: pyspark.sql.streaming.listener; docs/formats/spark-offset-log.md.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from trio_broker.spark.errors import SparkJobError
from trio_broker.spark.planning.stream_offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

log = logging.getLogger(__name__)


def backlog(source: SourceProgress) -> int | None:
    """Return how many offsets the last micro-batch left to be read; None for a source with offsets of another form.

    Gaps that compaction and transactions leave count as well, so no more records than that are left.
    """
    try:
        read = from_json(json.loads(source.endOffset))
        newest = from_json(json.loads(source.latestOffset))
    except (ValueError, SparkJobError):
        return None
    return sum(max(end - read.get(partition, 0), 0) for partition, end in newest.items())


class ProgressLog(StreamingQueryListener):
    """Logs a line for each source of each micro-batch, at the level INFO."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to log yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Log what a micro-batch did, for each of its sources that has this package's offsets or Kafka's."""
        progress = event.progress
        for source in progress.sources:
            left = backlog(source)
            if left is not None:
                log.info(
                    "%s: micro-batch %d read %d rows, %d offsets are left; "
                    "%.1f rows a second came, %.1f were processed",
                    progress.name or progress.id,
                    progress.batchId,
                    source.numInputRows,
                    left,
                    source.inputRowsPerSecond,
                    source.processedRowsPerSecond,
                )

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to log: the query itself has the error."""
