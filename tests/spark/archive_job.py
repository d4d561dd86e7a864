"""Loads the classes that most sessions load: of tables, files, a source in Python, and a stream. Argument: a directory.

The JVM of this program keeps them in an archive (``tests/spark/session_fixture.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trio_broker.spark.session import spark_session


class Numbers(DataSource, DataSourceReader):
    """One row."""

    def __init__(self, options: dict[str, str]) -> None:
        DataSource.__init__(self, options)

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: object) -> DataSourceReader:
        return self

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


def main(directory: str) -> None:
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
    spark = spark_session("archive", master="local[2]", settings=settings)
    spark.dataSource.register(Numbers)
    numbers = spark.read.format("numbers").load()
    numbers.groupBy("number").count().collect()
    numbers.write.parquet(f"{directory}/table")
    spark.read.parquet(f"{directory}/table").count()
    stream = spark.readStream.format("rate").load().writeStream.option("checkpointLocation", f"{directory}/checkpoint")
    stream.format("noop").trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
