"""A Spark stream: words of a topic, counted by the hour of their timestamp, appended to a Parquet table.

    python examples/spark_stream.py [host:port] [directory]

Run it again after producing more lines to ``lines``: the checkpoint holds the offsets, so each line is counted once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions as f

from trio_broker.spark.session import spark_session


def count_new_words(server: str, directory: Path) -> None:
    spark = spark_session("words")
    lines = (
        spark.readStream.format("trio_broker")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .load()
    )
    words = lines.select(
        f.date_trunc("hour", "timestamp").alias("hour"),
        f.explode(f.split(f.lower(f.col("value").cast("string")), r"\W+")).alias("word"),
    ).where("word != ''")
    stream = (
        words.writeStream.format("parquet")
        .option("path", str(directory / "words"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)  # all there is now, then stop; leave it out to run for ever
        .start()
    )
    stream.awaitTermination()
    counts = spark.read.parquet(str(directory / "words")).groupBy("word").count().orderBy(f.desc("count"), "word")
    for row in counts.limit(5).collect():
        print(f"{row['word']}: {row['count']}")
    spark.stop()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    count_new_words(arguments.get(1, "127.0.0.1:9092"), Path(arguments.get(2, "words-of-spark")))
