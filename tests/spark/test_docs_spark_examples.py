"""The examples of docs/spark.md that count words, read JSON and tell a backlog, run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.topic_records import fill
from tests.waits import terminated
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
SECONDS = 60


def example(beginning: str) -> str:
    """The code block that has a line with this beginning."""
    [found] = [each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"\n{beginning}" in f"\n{each}"]
    return str(found)


@pytest.fixture
def names(spark: SparkSession, kafka_broker_session: BrokerThread, request: pytest.FixtureRequest) -> dict[str, Any]:
    """The names that the examples use; ``where`` is as on the page, but for the address and the topic."""
    found: dict[str, Any] = {"spark": spark}
    exec(example("where = "), found)
    topic = request.node.name
    kafka_broker_session.create_topic(topic, 1)
    found["where"] |= {"kafka.bootstrap.servers": kafka_broker_session.bootstrap_servers, "subscribe": topic}
    return found


def test_words_are_counted(names: dict[str, Any], kafka_broker_session: BrokerThread) -> None:
    fill(kafka_broker_session, names["where"]["subscribe"], [b"to be  or not", b"to be", b""])
    exec(example("words = "), names)

    assert [tuple(row) for row in names["counts"].collect()] == [("be", 2), ("to", 2), ("not", 1), ("or", 1)]


def test_json_becomes_columns(names: dict[str, Any], kafka_broker_session: BrokerThread) -> None:
    fill(kafka_broker_session, names["where"]["subscribe"], [b'{"id": 1, "name": "a", "amount": 1.50}', b"no JSON"])
    exec(example("words = "), names)
    exec(example("rows = "), names)

    [first, second] = [row.asDict() for row in names["rows"].orderBy("offset").collect()]
    assert (first["id"], first["name"], str(first["amount"])) == (1, "a", "1.50")
    assert second == {"offset": 1, "id": None, "name": None, "amount": None}


def test_the_backlog_is_what_is_left(names: dict[str, Any], kafka_broker_session: BrokerThread, tmp_path: Path) -> None:
    fill(kafka_broker_session, names["where"]["subscribe"], [b"v"] * 8)
    reader = names["spark"].readStream.format("trio_broker").options(**names["where"], startingOffsets="earliest")
    writer = reader.option("maxOffsetsPerTrigger", "5").load().writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert terminated(query, SECONDS)
    backlogs = []
    for progress in query.recentProgress:
        listened = SimpleNamespace(streams=SimpleNamespace(addListener=lambda _: None))
        found: dict[str, Any] = {"query": SimpleNamespace(lastProgress=progress), "spark": listened}
        exec(example("offsets_left = "), found)
        backlogs.append(found["offsets_left"])

    assert backlogs == [3, 0]
