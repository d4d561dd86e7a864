"""``examples/spark_stream.py`` counts each line once, over two runs.

It runs in the session of the tests, which it would end: a JVM of its own for each run takes more CPU than most files.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession as Session

from tests.spark.topic_records import fill
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_stream.py"


@pytest.mark.spark
def test_the_stream_counts_each_line_once(
    spark: SparkSession,
    kafka_broker: BrokerThread,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Session, "stop", lambda self: None)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), kafka_broker.bootstrap_servers, str(tmp_path)])

    def printed_after(line: bytes) -> str:
        fill(kafka_broker, "lines", [line])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out

    kafka_broker.create_topic("lines", 1)
    assert printed_after(b"to be or not to be") == "be: 2\nto: 2\nnot: 1\nor: 1\n"
    assert printed_after(b"to be, to do") == "to: 4\nbe: 3\ndo: 1\nnot: 1\nor: 1\n"
