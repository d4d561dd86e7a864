"""The same through Spark Connect, where the client has no JVM and the server finds the format by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.session_fixture import JAVA_OPTIONS
from tests.spark.topic_records import fill, numbers
from trio_broker.testing import BrokerThread

JOB = Path(__file__).parent / "connect_job.py"


@pytest.mark.soak
@pytest.mark.spark
def test_batches_views_streams_and_errors_work_through_connect(kafka_broker_session: BrokerThread) -> None:
    kafka_broker_session.create_topic("connect")
    fill(kafka_broker_session, "connect", numbers(0, 5))
    ended = subprocess.run(
        [sys.executable, str(JOB), kafka_broker_session.bootstrap_servers, "connect"],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": f"{JAVA_OPTIONS} -Xmx1g"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["session"].startswith("pyspark.sql.connect")
    assert told["count"] == told["stream"] == 5
    assert told["values"] == ["0", "1", "2", "3", "4"]
    assert told["view"] == 3
    assert "OptionError: option 'startingOffsets': a batch query cannot begin at the latest offset" in told["error"]
