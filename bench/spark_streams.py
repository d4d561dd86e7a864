"""Spark's streams: what a micro-batch costs, next to empty and with many rows, beside Spark's own Kafka source.

All in the session of ``bench.spark``. A query's start is measured apart from its micro-batches, and those that warm it
up count for neither: the first ones compile code in the JVM and import Python modules.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from bench.figures import Better, Repeats, ratio
from bench.outcome import Options, Outcome
from bench.spark import PARTITIONS, SHAPES, SMALL, TASKS_AT_ONCE, Bench, Cpu, Shape, bench, fill, has_kafka_source
from bench.wire import create_topic

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

PLENTY: Final = 2
"""So many times what is read is there, so that none of the micro-batches is empty."""

SMALL_BATCH_ROWS: Final = 100

COPIES: Final = "copied"
"""The topic that sinks write to."""

PARTS: Final = (
    "triggerExecution",
    "latestOffset",
    "getBatch",
    "queryPlanning",
    "walCommit",
    "addBatch",
    "commitOffsets",
)
"""What Spark's progress tells of each micro-batch; the first one is all of it."""

PROCESSES: Final = ("jvm", "python", "broker")
"""Those of ``Cpu``."""

GUARANTEES: Final = ("at-least-once", "exactly-once")


@attrs.frozen
class Turn:
    """One query of ``batches`` micro-batches of ``rows`` rows, behind those that warm it up."""

    rows: int
    batches: int
    warm_up: int = 3

    @property
    def all_rows(self) -> int:
        return self.rows * (self.batches + self.warm_up) * PLENTY


SMALL_TURN: Final = Turn(SMALL_BATCH_ROWS, batches=20, warm_up=5)
TRANSACTIONAL_TURNS: Final = (Turn(10_000, batches=8), Turn(100_000, batches=8))
STREAM_TURNS: Final = (
    Turn(10_000, batches=40, warm_up=20),
    Turn(100_000, batches=20, warm_up=10),
    Turn(1_000_000, batches=2, warm_up=1),
)
REPEATED_TURNS: Final = 3


@attrs.frozen
class MicroBatches:
    """What one turn took: the parts of each micro-batch in milliseconds, the CPU of all, and the seconds until the
    first one was done."""

    parts: list[Mapping[str, float]]
    cpu: Cpu
    first_seconds: float

    @property
    def milliseconds(self) -> list[float]:
        return [each["triggerExecution"] for each in self.parts]

    def cpu_milliseconds(self, where: str) -> float:
        """Of one micro-batch, in one of the processes of ``Cpu``, or ``total``."""
        return float(1000 * getattr(self.cpu, where) / len(self.parts))


@attrs.define
class Turns:
    """All turns of one query."""

    turns: list[MicroBatches] = attrs.field(factory=list)

    @property
    def milliseconds(self) -> Repeats:
        """The median of each turn."""
        return Repeats([statistics.median(turn.milliseconds) for turn in self.turns], Better.LESS)

    def part_milliseconds(self, part: str) -> float:
        """The median of one of ``PARTS`` over the micro-batches of all turns."""
        return statistics.median(each.get(part, 0) for turn in self.turns for each in turn.parts)

    def cpu_milliseconds(self, where: str = "total") -> Repeats:
        """As ``MicroBatches.cpu_milliseconds``, a value for each turn."""
        return Repeats([turn.cpu_milliseconds(where) for turn in self.turns], Better.LESS)

    @property
    def first_seconds(self) -> float:
        return statistics.median(turn.first_seconds for turn in self.turns)


def reading(subject: Bench, source: str, shape: Shape, rows: int) -> DataStreamReader:
    """A stream of the rows of ``shape`` from their beginning, ``rows`` in each micro-batch."""
    reader = subject.session.readStream.format(source).option("subscribe", shape.topic)
    reader = reader.option("kafka.bootstrap.servers", subject.broker.bootstrap_servers)
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(rows))


def copying(subject: Bench, rows: int, guarantee: str = GUARANTEES[0]) -> DataStreamWriter:
    """From our source into our sink."""
    frame = reading(subject, "trio_broker", SMALL, rows).load().select("key", "value")
    writer = frame.writeStream.format("trio_broker").option("topic", COPIES)
    writer = writer.option("kafka.bootstrap.servers", subject.broker.bootstrap_servers)
    return writer.option("deliveryGuarantee", guarantee).option("deduplicationHeader", "false")


def run(subject: Bench, writer: DataStreamWriter, turn: Turn, name: str) -> MicroBatches:
    """Run a query with a checkpoint of this ``name`` for ``turn``."""
    checkpoint = subject.directory / name
    began = time.perf_counter()
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        wait_for_batches(query, 1)
        first_seconds = time.perf_counter() - began
        wait_for_batches(query, turn.warm_up)
        first, cpu = len(query.recentProgress), subject.cpu()
        wait_for_batches(query, first + turn.batches)
        taken = query.recentProgress[first:]
        cpu = subject.cpu().since(cpu)
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    assert all(each["numInputRows"] for each in taken), "there are rows for every micro-batch"
    return MicroBatches([each["durationMs"] for each in taken], cpu, first_seconds)


def wait_for_batches(query: StreamingQuery, count: int) -> None:
    while len(query.recentProgress) < count:
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        time.sleep(0.01)


def micro_batches(options: Options) -> Outcome:
    """What a micro-batch costs when there is next to nothing in it: from our source into our sink."""
    outcome = Outcome("spark-micro-batches")
    with bench(options, ()) as subject:
        fill(subject.broker, SMALL, SMALL_TURN.all_rows)
        create_topic(subject.broker.port, COPIES, 1)
        taken = run(subject, copying(subject, SMALL_TURN.rows), SMALL_TURN, "small")
    table = outcome.table(
        f"Micro-batches of {SMALL_TURN.rows} rows, {PARTITIONS} tasks", "part", "median ms", "smallest", "largest"
    )
    for part in PARTS:
        values = [each.get(part, 0) for each in taken.parts]
        table.add(part, statistics.median(values), min(values), max(values))
    for where in PROCESSES:
        table.add(f"CPU, {where}", taken.cpu_milliseconds(where), "", "")
    outcome.measures["spark-micro-batch"] = statistics.median(taken.milliseconds) / 1000
    outcome.measures["spark-micro-batch-python"] = taken.cpu_milliseconds("python") / 1000
    return outcome


def exactly_once(options: Options) -> Outcome:
    """What transactions add to a micro-batch: from our source to our sink with either guarantee, in turns."""
    outcome = Outcome("spark-exactly-once")
    table = outcome.table(
        "Micro-batches by guarantee", "rows", "guarantee", "median ms", "smallest", "largest", "CPU ms"
    )
    with bench(options, ()) as subject:
        fill(subject.broker, SMALL, max(turn.all_rows for turn in TRANSACTIONAL_TURNS), partitions=TASKS_AT_ONCE)
        create_topic(subject.broker.port, COPIES, TASKS_AT_ONCE)
        for turn in TRANSACTIONAL_TURNS:
            taken = {guarantee: Turns() for guarantee in GUARANTEES}
            for number in range(REPEATED_TURNS):
                for guarantee, turns in taken.items():
                    name = f"{guarantee}-{turn.rows}-{number}"
                    turns.turns.append(run(subject, copying(subject, turn.rows, guarantee), turn, name))
            for guarantee, turns in taken.items():
                times = [each for once in turns.turns for each in once.milliseconds]
                cpu = turns.cpu_milliseconds().median
                table.add(turn.rows, guarantee, statistics.median(times), min(times), max(times), cpu)
            at_least, exactly = (taken[guarantee].milliseconds for guarantee in GUARANTEES)
            outcome.measures[f"spark-exactly-once-{turn.rows // 1000}k"] = ratio(exactly, at_least)
    return outcome


def streams(options: Options) -> Outcome:
    """Long streams of many rows, which Spark drops: our source and Spark's Kafka source in turns."""
    outcome = Outcome("spark-streams")
    table = outcome.table(
        "Streams of four partitions, each micro-batch dropped",
        *("record", "rows a micro-batch", "source", "median ms", "CPU ms", "JVM", "Python", "broker", "first batch s"),
    )
    parts = outcome.table("Parts of these micro-batches, median ms", "record", "rows a micro-batch", "source", *PARTS)
    sources = ("trio_broker", "kafka") if has_kafka_source() else ("trio_broker",)
    scaled = {turn: attrs.evolve(turn, rows=options.volume(turn.rows)) for turn in STREAM_TURNS}
    for shape in SHAPES:
        with bench(options, ()) as subject:
            fill(subject.broker, shape, max(turn.all_rows for turn in scaled.values()))
            for goal, turn in scaled.items():
                taken = {source: Turns() for source in sources}
                for number in range(REPEATED_TURNS):
                    for source, of_source in taken.items():
                        writer = reading(subject, source, shape, turn.rows).load().writeStream.format("noop")
                        of_source.turns.append(run(subject, writer, turn, f"{source}-{turn.rows}-{number}"))
                for source, of_source in taken.items():
                    cpu = (of_source.cpu_milliseconds(where).median for where in ("total", *PROCESSES))
                    times = of_source.milliseconds.median, *cpu, of_source.first_seconds
                    table.add(shape.name, turn.rows, source, *times)
                    parts.add(shape.name, turn.rows, source, *map(of_source.part_milliseconds, PARTS))
                if len(taken) > 1:
                    ours, theirs = taken.values()
                    key = f"spark-stream-{shape.label}-{goal.rows // 1000}k"
                    outcome.measures[f"{key}-cpu"] = ratio(theirs.cpu_milliseconds(), ours.cpu_milliseconds())
                    outcome.measures[f"{key}-wall"] = ratio(theirs.milliseconds, ours.milliseconds)
    if len(sources) == 1:
        outcome.remarks.append("Spark's own Kafka source is missing; tests/compat/README.md tells how to fetch it.")
    return outcome
