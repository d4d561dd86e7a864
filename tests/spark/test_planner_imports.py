"""What the processes import that plan batches and streams, of which PySpark starts one, or several, for each query; and
those that read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.spark.topic_records import fill, numbers
from tests.waits import run_program
from trio_broker.testing import BrokerThread

HEAVY = {"numba", "llvmlite", "pyarrow", "numpy", "pandas", "trio", "asyncio"}

OF_READERS = {"kafka_wire.messages.fetch", "trio_broker.spark.wire.partition_leader"}
"""What only those need that read records: a fifth of what the package takes to be imported."""

OF_WRITERS = {"crc32c", "trio_broker.client.topic_changes"}
"""What only those may import that plan a write, which ask the cluster by a producer, and may create its topic. crc32c
reads the metadata of its own distribution, for which it searches PySpark's archives: 80 ms."""

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

READ = (
    SCHEMA
    + """
rows = sum(batch.num_rows for part in source.reader(schema).partitions() for batch in source.reader(schema).read(part))
assert rows == 6, rows
"""
)


@pytest.fixture(scope="module")
def broker(kafka_broker_session: BrokerThread) -> BrokerThread:
    kafka_broker_session.create_topic("planned", 2)
    for partition in range(2):
        fill(kafka_broker_session, "planned", numbers(0, 3), partition=partition)
    return kafka_broker_session


@pytest.mark.parametrize("name", STEPS)
def test_planning_imports_no_compiler_and_no_arrow(broker: BrokerThread, name: str) -> None:
    imported = imported_by(STEPS[name], broker)

    assert "trio_broker.spark.source" in imported
    assert imported & (HEAVY | OF_READERS) == set()
    assert "written" in name or imported & OF_WRITERS == set()


@pytest.mark.parametrize(("engine", "before"), [("numba", ""), ("plain", 'sys.modules["numba"] = None\n')])
def test_reading_imports_no_pandas(broker: BrokerThread, engine: str, before: str) -> None:
    """It would be half a second of each worker's first task, and pyarrow imports it for a ``pa.array`` of anything."""
    imported = imported_by(before + READ, broker)

    assert f"trio_broker.spark.decoder.{engine}_engine" in imported
    assert "pandas" not in imported


def imported_by(steps: str, broker: BrokerThread) -> set[str]:
    """Run ``steps`` in a new process; return the names of the modules that were imported for them."""
    program = PROGRAM.format(steps=steps)
    command = [sys.executable, "-c", program, broker.bootstrap_servers]
    completed = run_program(command, 120, stdout=subprocess.PIPE, text=True, check=True)
    return set(completed.stdout.rpartition("imported:")[2].split())
