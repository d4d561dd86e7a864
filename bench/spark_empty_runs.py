"""Runs of a stream with nothing new (``availableNow``, started by cron), beside Spark's own Kafka source, and a source
in Python that does nothing (``empty_source``), which is the least that PySpark takes.

A run plans one end of a micro-batch, which is that of the checkpoint, and ends. What it costs is the start of a query:
the JVM's share, and with a source in Python the process that PySpark starts for each query to plan it. All in the
session of ``bench.spark``, in turns. The process that planned ends after the query, so that it is waited for, and Spark
has the CPU time of what it started only then.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import attrs
import psutil

from bench.empty_source import FORMAT, EmptySource
from bench.figures import Better, Repeats, ratio
from bench.outcome import Options, Outcome
from bench.spark import SMALL, Bench, Shape, bench, has_kafka_source
from trio_broker.spark.workarounds.worker_memory import STREAM_PLANNER

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

SHAPE: Final = Shape(SMALL.name, SMALL.value_bytes, 1_000)
"""Few rows: they are read once, before what is measured."""

WARM_UP: Final = 10
"""Runs of each source that do not count: the JVM compiles the code of a query's start in them."""

RUNS: Final = 10
"""Runs that make one value: the operating system counts CPU in hundredths of a second."""

END_SECONDS: Final = 60.0
"""The longest wait for a query, and for the process that planned it."""

POLL_SECONDS: Final = 0.005


@attrs.frozen
class EmptyRuns:
    """Seconds of one run: of time, until the query has ended, and of CPU of all processes."""

    seconds: float
    cpu_seconds: float


def empty_runs(options: Options) -> Outcome:
    """What a run with nothing new costs, with our source, with one that does nothing, and with Spark's own."""
    outcome = Outcome("spark-empty-runs")
    sources = ("trio_broker", FORMAT, *(("kafka",) if has_kafka_source() else ()))
    taken: dict[str, list[EmptyRuns]] = {source: [] for source in sources}
    with bench(options, (SHAPE,)) as subject:
        subject.session.dataSource.register(EmptySource)
        for source in sources:
            runs(subject, source, WARM_UP)
        for _ in range(options.repeats):
            for source in sources:
                taken[source].append(runs(subject, source, RUNS))
    cpu = {source: Repeats([each.cpu_seconds for each in taken[source]], Better.LESS) for source in sources}
    wall = {source: Repeats([each.seconds for each in taken[source]], Better.LESS) for source in sources}
    table = outcome.table("Runs with nothing new", "source", "CPU s", "smallest", "largest", "s", "smallest", "largest")
    for source in sources:
        table.add(source, *summary(cpu[source]), *summary(wall[source]))
    outcome.measures["spark-empty-run-cpu"] = cpu["trio_broker"].median
    outcome.measures["spark-empty-run-floor-ratio"] = ratio_of(cpu, FORMAT)
    if "kafka" in sources:
        outcome.measures["spark-empty-run-cpu-ratio"] = ratio_of(cpu, "kafka")
        outcome.measures["spark-empty-run-wall-ratio"] = ratio_of(wall, "kafka")
    else:
        outcome.remarks.append("Spark's own Kafka source is missing; tests/compat/README.md tells how to fetch it.")
    return outcome


def summary(values: Repeats) -> tuple[float, float, float]:
    return values.median, min(values.values), max(values.values)


def ratio_of(values: dict[str, Repeats], other: str) -> float:
    """Our source ÷ another one."""
    return ratio(values["trio_broker"], values[other])


def runs(subject: Bench, source: str, count: int) -> EmptyRuns:
    """Run a query of ``source`` on its checkpoint ``count`` times; return the mean of one run."""
    before, seconds = subject.cpu(), 0.0
    for _ in range(count):
        began = time.perf_counter()
        query = start(subject, source)
        assert query.awaitTermination(round(END_SECONDS)), f"a query of {source} does not end"
        seconds += time.perf_counter() - began
        wait_for_planners()
    return EmptyRuns(seconds / count, subject.cpu().since(before).total / count)


def start(subject: Bench, source: str) -> StreamingQuery:
    """As a job does that cron starts, apart from the session: from the frame to the query."""
    frame = subject.session.readStream.format(source).option("subscribe", SHAPE.topic)
    frame = frame.option("kafka.bootstrap.servers", subject.broker.bootstrap_servers)
    writer = frame.option("startingOffsets", "earliest").load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(subject.directory / f"empty-{source}"))
    return writer.trigger(availableNow=True).start()


def wait_for_planners() -> None:
    """Wait until no process is there that plans a stream."""
    give_up_at = time.monotonic() + END_SECONDS
    while any(STREAM_PLANNER in arguments_of(child) for child in psutil.Process().children(recursive=True)):
        if time.monotonic() > give_up_at:
            raise RuntimeError("the process that planned a query does not end")
        time.sleep(POLL_SECONDS)


def arguments_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []
