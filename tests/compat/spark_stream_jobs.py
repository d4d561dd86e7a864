"""Streaming queries of either source, and what they left in their checkpoint and gave to their sink."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import pytest
from pyspark.errors import StreamingQueryException

from tests.compat.spark_oracle import COMMON, PLACE, Row, sorted_rows
from tests.waits import terminated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECONDS: Final = 120
"""A query that has not ended by then hangs."""

Offsets: TypeAlias = dict[str, dict[str, int]]


class SinkFailed(Exception):
    """What a sink raises that is set to fail."""


@attrs.define
class StreamJob:
    """One query with one checkpoint, which goes on in several lives, each by the source that is named for it.

    ``rows`` are those of each micro-batch, as its last attempt wrote them: a sink that replaces what it has of a
    micro-batch, as Spark's own file sink does, sees each record once.
    """

    spark: SparkSession
    checkpoint: Path
    options: Mapping[str, str]
    rows: dict[int, tuple[Row, ...]] = attrs.field(factory=dict)
    columns: list[str] = attrs.field(factory=list)

    def run(self, kind: str, **options: str) -> None:
        """Read all that is there when it begins, as format ``kind``, and end."""
        query = self._writer(kind, options).trigger(availableNow=True).start()
        assert terminated(query, SECONDS), f"{kind} did not end"

    def run_and_stop(self, kind: str, **options: str) -> None:
        """Read all that is there, as a query that never ends, and stop it."""
        query: StreamingQuery = self._writer(kind, options).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def fail_in(self, batch: int, kind: str, **options: str) -> None:
        """Run until micro-batch ``batch``, which is planned and read, but whose sink fails."""

        def fail(frame: DataFrame, number: int) -> None:
            self._keep(frame, number)
            if number == batch:
                raise SinkFailed

        query = self._writer(kind, options, fail).trigger(availableNow=True).start()
        with pytest.raises(StreamingQueryException, match=SinkFailed.__name__):
            terminated(query, SECONDS)

    def _writer(
        self, kind: str, options: Mapping[str, str], sink: Callable[[DataFrame, int], None] | None = None
    ) -> Any:
        frame = self.spark.readStream.format(kind).options(**{**COMMON, **self.options, **options}).load()
        writer = frame.writeStream.foreachBatch(sink or self._keep)
        return writer.option("checkpointLocation", str(self.checkpoint))

    def _keep(self, frame: DataFrame, number: int) -> None:
        self.columns = frame.columns
        self.rows[number] = sorted_rows(frame.collect(), frame.columns)

    def places(self) -> list[Row]:
        """Return topic, partition and offset of every row that came, sorted; one that came twice is there twice."""
        places = [self.columns.index(column) for column in PLACE]
        return sorted(tuple(row[place] for place in places) for rows in self.rows.values() for row in rows)

    def planned(self) -> list[Offsets]:
        """Return where each micro-batch ends, as the checkpoint has it; without where the first one of ours begins."""
        files = sorted((path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdigit()), key=number_of)
        trees = [json.loads(path.read_text().splitlines()[-1]) for path in files]
        return [{topic: offsets for topic, offsets in tree.items() if offsets} for tree in trees]

    def done(self) -> int:
        """Return how many micro-batches are committed."""
        return sum(path.name.isdigit() for path in (self.checkpoint / "commits").iterdir())


def number_of(path: Path) -> int:
    return int(path.name)
