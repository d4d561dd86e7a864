"""Spark over the logs: scans and exports, beside Parquet with the same rows and Spark's Kafka source.

Everything runs in one local session of two tasks at once, in turns, so that what slows down one thing slows down its
peer as well. The rows are a topic of four partitions in batches of 16 KiB, lz4, as producers write them by default with
that codec; Parquet holds the same rows in four files (snappy). Parquet is read by the JVM alone; a Python source brings
every row over a socket. CPU is that of the JVM, its Python workers and the broker together.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import psutil

from bench.figures import Better, Repeats, ratio
from bench.outcome import Options, Outcome
from bench.subject import QUIET, scratch
from bench.wire import connect, create_topic, produce_frame, produced
from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from trio_broker.spark.pipelines.export.job import export
from trio_broker.spark.session import spark_session
from trio_broker.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE_CACHE: Final = {"log.durability": "page-cache"}

KEPT: Final = {"log.retention.ms": "-1"}
"""The times of the rows are long ago, and a run may take longer than ``log.retention.check.interval.ms``."""

PARTITIONS: Final = 4

TASKS_AT_ONCE: Final = 2
"""A micro-batch has no more tasks than that, so that it is what each costs that is measured."""

LOCAL_MASTER: Final = f"local[{TASKS_AT_ONCE}]"

PRODUCED_BATCH_BYTES: Final = 16 * 1024
"""``batch.size`` of producers that set nothing."""

SMALL_BYTES: Final = 100

WARM_UPS: Final = 4
"""How often a query runs before it counts: until then the JVM spends a third of its CPU on compiling."""

NOW_MS: Final = 1_700_000_000_000

KAFKA_JARS: Final = Path(__file__).parent.parent / "tests" / "compat" / "spark" / "target" / "jars"
"""Spark's own Kafka source, where it was fetched (tests/compat/README.md); without it that comparison is left out."""


@attrs.frozen
class Shape:
    """Records of one size; ``rows`` at scale 1."""

    name: str
    value_bytes: int
    rows: int

    @property
    def topic(self) -> str:
        return f"rows-of-{self.value_bytes}"

    @property
    def label(self) -> str:
        """What measures of this shape are called."""
        return "small" if self.value_bytes == SMALL_BYTES else "large"

    @property
    def batch_rows(self) -> int:
        return max(1, PRODUCED_BATCH_BYTES // (self.value_bytes + 24))

    def batches(self, count: int) -> list[bytes]:
        chance = random.Random(self.value_bytes)
        return [
            build_batch(
                [
                    NewRecord(NOW_MS + index, b"%016d" % chance.randrange(10**9), self.value(chance))
                    for index in range(self.batch_rows)
                ],
                codec=Codec.LZ4,
            )
            for _ in range(count)
        ]

    def value(self, chance: random.Random) -> bytes:
        """JSON of about this size: digits that differ, words that do not."""
        text = b'{"id":%d,"name":"customer-%d","amount":%d.%02d,"country":"NL","note":"%s"}' % (
            chance.randrange(10**9),
            chance.randrange(10**6),
            chance.randrange(10**4),
            chance.randrange(100),
            chance.randbytes(self.value_bytes // 4).hex().encode(),
        )
        return text.ljust(self.value_bytes, b" ")[: self.value_bytes]


SMALL: Final = Shape("100 B", SMALL_BYTES, 4_000_000)
LARGE: Final = Shape("1 KB", 1000, 1_000_000)
SHAPES: Final = (SMALL, LARGE)


@attrs.define
class Cpu:
    """Seconds of CPU time: of the JVM with the commands that it runs (Hadoop's chmod for each file of a checkpoint), of
    the Python processes that it has started, and of the broker.
    """

    jvm: float = 0.0
    python: float = 0.0
    broker: float = 0.0

    @property
    def total(self) -> float:
        return self.jvm + self.python + self.broker

    def since(self, earlier: Cpu) -> Cpu:
        return Cpu(self.jvm - earlier.jvm, self.python - earlier.python, self.broker - earlier.broker)


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of ``process``, and of those children of it that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


@attrs.frozen
class Bench:
    """A broker with rows, a session, and the rows once more as Parquet."""

    broker: BrokerProcess
    session: SparkSession
    directory: Path
    rows: Mapping[Shape, int]

    def options(self, shape: Shape, transport: str) -> dict[str, str]:
        """How to read the rows of ``shape``."""
        options = {
            "subscribe": shape.topic,
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "transport": transport,
        }
        if transport == "files":
            options |= {"path": str(self.broker.data_directory), "adminUrl": self.broker.admin_url}
        return options

    def log(self, shape: Shape, transport: str, schema: str | None = None) -> DataFrame:
        reader = self.session.read.format("trio_broker").options(**self.options(shape, transport))
        return (reader.schema(schema) if schema else reader).load()

    def kafka(self, shape: Shape) -> DataFrame:
        """The same topic by Spark's own source."""
        reader = self.session.read.format("kafka").option("subscribe", shape.topic)
        return reader.option("kafka.bootstrap.servers", self.broker.bootstrap_servers).load()

    def parquet(self, shape: Shape) -> DataFrame:
        return self.session.read.parquet(str(self.parquet_directory(shape)))

    def parquet_directory(self, shape: Shape) -> Path:
        return self.directory / f"parquet-{shape.value_bytes}"

    def cpu(self) -> Cpu:
        """The CPU time so far."""
        cpu = Cpu(broker=cpu_seconds(psutil.Process(self.broker.pid)))
        for java in (child for child in psutil.Process().children() if child.name() == "java"):
            cpu.jvm += cpu_seconds(java)
            for worker in java.children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # a worker may end while we look
                    if worker.name() == "java":  # an executor of its own
                        cpu.jvm += cpu_seconds(worker)
                    else:
                        cpu.python += cpu_seconds(worker)
        return cpu


@attrs.frozen
class Run:
    """One repeat of one query."""

    seconds: float
    cpu_seconds: float


@attrs.define
class Runs:
    """All repeats of one query over ``rows`` rows."""

    rows: int
    runs: list[Run] = attrs.field(factory=list)

    @property
    def rate(self) -> Repeats:
        """Million rows a second."""
        return Repeats([self.rows / run.seconds / 1e6 for run in self.runs], Better.MORE)

    @property
    def rate_of_cpu(self) -> Repeats:
        """Million rows for each second of CPU."""
        return Repeats([self.rows / run.cpu_seconds / 1e6 for run in self.runs], Better.MORE)


@contextmanager
def bench(
    options: Options,
    shapes: tuple[Shape, ...] = SHAPES,
    *,
    master: str = LOCAL_MASTER,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Bench]:
    """Start broker and session, and fill the topics of ``shapes``."""
    chosen = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2", **(settings or {})}
    if has_kafka_source():
        chosen["spark.jars"] = ",".join(str(jar) for jar in sorted(KAFKA_JARS.glob("*.jar")))
    with (
        scratch(options.directory) as directory,
        BrokerProcess(directory / "data", {**PAGE_CACHE, **KEPT}, QUIET) as broker,
    ):
        rows = {shape: fill(broker, shape, options.volume(shape.rows)) for shape in shapes}
        session = spark_session("bench", master=master, settings=chosen)
        try:
            yield Bench(broker, session, directory, rows)
        finally:
            session.stop()


def has_kafka_source() -> bool:
    return any(KAFKA_JARS.glob("spark-sql-kafka-*.jar"))


def fill(broker: BrokerProcess, shape: Shape, rows: int, partitions: int = PARTITIONS) -> int:
    """Produce about ``rows`` records, the same ones to each partition in another order; return how many they are.

    So every value comes a few times, far apart: so seldom that neither Parquet's dictionaries nor a codec gain by it,
    and often enough that making them takes seconds.
    """
    create_topic(broker.port, shape.topic, partitions)
    batches = shape.batches(max(1, rows // shape.batch_rows // partitions))
    with ThreadPoolExecutor(partitions) as threads:
        list(threads.map(partial(fill_partition, broker.port, shape.topic, batches), range(partitions)))
    return len(batches) * partitions * shape.batch_rows


def fill_partition(port: int, topic: str, batches: Sequence[bytes], partition: int) -> None:
    first = partition * len(batches) // PARTITIONS % len(batches)
    with closing(connect(port)) as sock:
        for batch in (*batches[first:], *batches[:first]):
            sock.sendall(produce_frame(topic, partition, batch, 1))
            produced(sock)


def in_turns(subject: Bench, queries: Mapping[str, Callable[[], object]], rows: int, repeats: int) -> dict[str, Runs]:
    """Run all queries to warm up, then ``repeats`` times one after the other."""
    taken = {name: Runs(rows) for name in queries}
    for _ in range(WARM_UPS):
        for query in queries.values():
            query()
    for _ in range(repeats):
        for name, query in queries.items():
            cpu, began = subject.cpu(), time.perf_counter()
            query()
            taken[name].runs.append(Run(time.perf_counter() - began, subject.cpu().since(cpu).total))
    return taken


def scan(frame: DataFrame) -> None:
    """Make Spark produce every row, and drop it."""
    frame.write.format("noop").mode("overwrite").save()


def value_lengths(frame: DataFrame) -> Any:
    return frame.selectExpr("sum(length(value))").first()


def scans(options: Options) -> Outcome:
    """Full scans and pruned aggregates: files, wire, Parquet, and Spark's Kafka source where it is at hand."""
    outcome = Outcome("spark-scans")
    with bench(options) as subject:
        for shape in SHAPES:
            write_parquet(subject, shape)
            taken = in_turns(subject, scan_queries(subject, shape), subject.rows[shape], options.repeats)
            add_scans(outcome, shape, taken)
    return outcome


def scan_queries(subject: Bench, shape: Shape) -> dict[str, Callable[[], object]]:
    queries: dict[str, Callable[[], object]] = {
        "full scan, Parquet": lambda: scan(subject.parquet(shape)),
        "full scan, files": lambda: scan(subject.log(shape, "files")),
        "full scan, wire": lambda: scan(subject.log(shape, "wire")),
        "sum(length(value)), Parquet": lambda: value_lengths(subject.parquet(shape)),
        "sum(length(value)), files": lambda: value_lengths(subject.log(shape, "files", "value binary")),
        "sum(length(value)), wire": lambda: value_lengths(subject.log(shape, "wire", "value binary")),
    }
    if has_kafka_source():
        queries["full scan, spark-sql-kafka"] = lambda: scan(subject.kafka(shape))
        queries["sum(length(value)), spark-sql-kafka"] = lambda: value_lengths(subject.kafka(shape))
    return queries


def add_rates(outcome: Outcome, title: str, taken: Mapping[str, Runs]) -> None:
    table = outcome.table(
        title, *("what", "rows", "million rows/s best", "median", "spread", "million rows per CPU second")
    )
    for name, runs in taken.items():
        rate = runs.rate
        table.add(name, runs.rows, rate.best, rate.median, f"{rate.spread:.0%}", runs.rate_of_cpu.median)


def add_scans(outcome: Outcome, shape: Shape, taken: Mapping[str, Runs]) -> None:
    add_rates(outcome, f"Scans of rows of {shape.name}", taken)
    parquet, files, wire = (taken[f"full scan, {where}"] for where in ("Parquet", "files", "wire"))
    outcome.measures[f"spark-scan-{shape.label}"] = ratio(files.rate, parquet.rate)
    outcome.measures[f"spark-wire-{shape.label}"] = ratio(wire.rate, files.rate)
    peer = taken.get("full scan, spark-sql-kafka")
    if peer is not None:
        outcome.measures[f"spark-peer-{shape.label}"] = ratio(wire.rate_of_cpu, peer.rate_of_cpu)
        outcome.measures[f"spark-peer-{shape.label}-wall"] = ratio(wire.rate, peer.rate)
    elif shape is SMALL:
        outcome.remarks.append("Spark's own Kafka source is missing; tests/compat/README.md tells how to fetch it.")


def write_parquet(subject: Bench, shape: Shape) -> None:
    """The peer's files: one for each partition, by Spark itself."""
    frame = subject.log(shape, "files")
    frame.write.mode("overwrite").option("compression", "snappy").parquet(str(subject.parquet_directory(shape)))


def exports(options: Options) -> Outcome:
    """To Parquet by the pipeline, which never makes rows, and by Spark from the same source."""
    outcome = Outcome("spark-exports")
    with bench(options) as subject:
        for shape in SHAPES:
            queries = {
                f"{name}, {transport}": partial(write, subject, shape, transport)
                for name, write in (("pipeline export", write_by_export), ("df.write.parquet", write_by_spark))
                for transport in ("files", "wire")
            }
            taken = in_turns(subject, queries, subject.rows[shape], options.repeats)
            add_exports(outcome, shape, taken)
    return outcome


def add_exports(outcome: Outcome, shape: Shape, taken: Mapping[str, Runs]) -> None:
    add_rates(outcome, f"Exports of rows of {shape.name} to Parquet, snappy", taken)
    ours, theirs = taken["pipeline export, files"], taken["df.write.parquet, files"]
    outcome.measures[f"spark-export-{shape.label}"] = ratio(ours.rate, theirs.rate)


def write_by_export(subject: Bench, shape: Shape, transport: str) -> None:
    with scratch(subject.directory) as directory:
        export(subject.session, subject.options(shape, transport), f"parquet:{directory / 'table'}")


def write_by_spark(subject: Bench, shape: Shape, transport: str) -> None:
    with scratch(subject.directory) as directory:
        writer = subject.log(shape, transport).write.option("compression", "snappy")
        writer.parquet(str(directory / "table"))
