"""A streaming query as a process that can be killed: a topic goes to Parquet files, without an end.

Arguments: the address of a broker, a topic, a directory. Run as a module, from the root of the repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.session_fixture import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter


def writer(spark: SparkSession, servers: str, topic: str, directory: Path) -> DataStreamWriter:
    """The query, but for its trigger."""
    return (
        spark.readStream.format("trio_broker")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "5000")
        .load()
        .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("path", str(directory / "rows"))
    )


def main(servers: str, topic: str, directory: str) -> None:
    spark = start_session(Path(directory) / f"session-{os.getpid()}")
    query = writer(spark, servers, topic, Path(directory)).trigger(processingTime="0 seconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
