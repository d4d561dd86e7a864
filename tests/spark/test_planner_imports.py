"""What the processes import that plan batches and streams: PySpark starts one, or several, for each query.

PySpark itself imports pyarrow, and with it numpy, in some of them, so that is left to it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.spark.topic_records import fill, numbers
from trio_broker.testing import BrokerThread

HEAVY = {"numba", "llvmlite", "pyarrow", "pandas", "trio", "asyncio"}

PROGRAM = """
import pickle, sys
import pyspark.daemon, pyspark.sql.datasource
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType, _parse_datatype_string

before = set(sys.modules)
[servers] = sys.argv[1:]

from pyspark_trio_broker import DefaultSource

options = {{"kafka.bootstrap.servers": servers, "subscribe": "planned", "startingOffsets": "earliest"}}
source = DefaultSource(options)
target = DefaultSource({{"kafka.bootstrap.servers": servers, "topic": "planned"}})
{steps}
print("imported:", *sorted(set(sys.modules) - before))
"""

SCHEMA = 'schema = StructType().add("key", "binary").add("value", "binary")\n'

STEPS = {
    "a schema": "source.schema()",
    "a batch": SCHEMA
    + """
reader = pickle.loads(pickle.dumps(source.reader(schema)))
assert len([pickle.dumps(each) for each in reader.partitions()]) == 2
""",
    "a stream": SCHEMA
    + """
reader = pickle.loads(pickle.dumps(source.streamReader(schema)))
start = reader.initialOffset()
end = reader.latestOffset(start, ReadAllAvailable())
assert len([pickle.dumps(each) for each in reader.partitions(start, end)]) == 2
reader.commit(end)
reader.stop()
""",
    "a written batch": SCHEMA + "writer = pickle.loads(pickle.dumps(target.writer(schema, False))); writer.commit([])",
    "a written stream": SCHEMA
    + "writer = pickle.loads(pickle.dumps(target.streamWriter(schema, False))); writer.commit([], 0)",
}


@pytest.fixture(scope="module")
def broker(kafka_broker_session: BrokerThread) -> BrokerThread:
    kafka_broker_session.create_topic("planned", 2)
    for partition in range(2):
        fill(kafka_broker_session, "planned", numbers(0, 3), partition=partition)
    return kafka_broker_session


@pytest.mark.parametrize("name", STEPS)
def test_planning_imports_no_compiler_and_no_arrow(broker: BrokerThread, name: str) -> None:
    program = PROGRAM.format(steps=STEPS[name])
    completed = subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    imported = set(completed.stdout.rpartition("imported:")[2].split())

    assert "trio_broker.spark.source" in imported
    assert imported & HEAVY == set()
