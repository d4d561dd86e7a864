"""A client of Spark Connect, with a server of its own: a process, because no other kind of session may be in it.

Arguments: the address of a broker, a topic. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(servers: str, topic: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    view = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW records USING trio_broker OPTIONS ({view})")
    stream = spark.readStream.format("trio_broker").options(**options, startingOffsets="earliest").load()
    query = stream.writeStream.format("memory").queryName("copy").trigger(availableNow=True).start()
    query.awaitTermination(120)
    try:
        spark.read.format("trio_broker").options(**options, startingOffsets="latest").load().count()
        error = ""
    except PySparkException as raised:
        error = str(raised)
    batch = spark.read.format("trio_broker").options(**options)
    told = {
        "session": type(spark).__module__,
        "count": batch.load().count(),
        "values": sorted(bytes(row.value).decode() for row in batch.schema("value BINARY").load().collect()),
        "view": spark.sql("SELECT count(*) FROM records WHERE offset >= 2").collect()[0][0],
        "stream": spark.table("copy").count(),
        "error": error,
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
