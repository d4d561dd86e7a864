"""A Spark source in Python that does nothing: the least that PySpark takes for one.

It is a module of its own because executors import it, and should import nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

FORMAT: Final = "empty"
PARTITIONS: Final = 4
ROWS: Final = 40_000
VALUE: Final = bytes(100)


class EmptySource(DataSource):
    """Yields ``ROWS`` times one value, of which no byte was read from anywhere."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "value BINARY"

    def reader(self, schema: StructType) -> EmptyReader:
        return EmptyReader()

    def streamReader(self, schema: StructType) -> EmptyStream:
        return EmptyStream()


class EmptyReader(DataSourceReader):
    """Reads nothing, in ``PARTITIONS`` tasks."""

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # Not of a list or an ndarray, for which pyarrow would import pandas.
        values = pa.repeat(pa.scalar(VALUE, pa.binary()), ROWS // PARTITIONS)
        yield pa.RecordBatch.from_arrays([values], names=["value"])


class EmptyStream(DataSourceStreamReader):
    """Has nothing new, ever."""

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()
