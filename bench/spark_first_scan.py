"""The first scan on an executor that has run no Python yet, with machine code in the cache and without.

The session has one executor, a process of its own, which is killed before each scan that counts; Spark starts another.
What plans the query runs already, and the new executor has run a job of the JVM. What is left is what each new executor
costs its first query: PySpark's daemon, its workers, and what the source loads in them. The peer is a source that does
nothing (``empty_source``).

The executors' package is a copy, which shares no machine code with the driver's.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import psutil

from bench.empty_source import FORMAT, ROWS, EmptySource
from bench.figures import Repeats
from bench.outcome import Options, Outcome
from bench.spark import SMALL, TASKS_AT_ONCE, Bench, Shape, bench, scan
from bench.subject import scratch
from bench.wire import BenchError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = (ROOT / "trio_broker", ROOT / "protocol" / "kafka_wire")

SHAPE: Final = Shape(SMALL.name, SMALL.value_bytes, ROWS)
"""Few rows, since it is the start that is measured."""

NOTHING_COMPILED: Final = "trio_broker, nothing compiled"

EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

START_SECONDS: Final = 60.0
"""The longest wait for an executor in the place of one that was killed."""

POLL_SECONDS: Final = 0.05


@attrs.frozen
class Query:
    """What is scanned; ``compiled`` says whether the cache of machine code is full or empty."""

    frame: Callable[[], DataFrame]
    compiled: bool = True


@attrs.frozen
class FirstScan:
    """Seconds of the first scan on an executor, CPU seconds of Python in it, and seconds of the second scan."""

    seconds: float
    python_seconds: float
    second_seconds: float


def first_scan(options: Options) -> Outcome:
    """First and second scan on new executors, in turns with a source that does nothing."""
    outcome = Outcome("spark-first-scan")
    with scratch(options.directory) as directory:
        packages = copied(directory / "packages")
        # Executors write their logs there, and else beside Spark's own files.
        os.environ["SPARK_WORKER_DIR"] = str(directory / "work")
        settings = {
            **{f"spark.executorEnv.{name}": value for name, value in environment_of(packages).items()},
            "spark.executor.memory": "1g",
            "spark.deploy.maxExecutorRetries": "-1",
        }
        with bench(options, (SHAPE,), master=f"local-cluster[1,{TASKS_AT_ONCE},1024]", settings=settings) as subject:
            subject.session.dataSource.register(EmptySource)
            queries = {
                "a source that does nothing": Query(lambda: subject.session.read.format(FORMAT).load()),
                "trio_broker": Query(lambda: subject.log(SHAPE, "wire")),
                NOTHING_COMPILED: Query(lambda: subject.log(SHAPE, "wire"), compiled=False),
            }
            add(outcome, in_turns(subject, queries, packages, options.repeats))
    return outcome


def in_turns(subject: Bench, queries: dict[str, Query], packages: Path, repeats: int) -> dict[str, list[FirstScan]]:
    taken: dict[str, list[FirstScan]] = {name: [] for name in queries}
    for query in queries.values():
        scan(query.frame())  # so that the processes that plan run
    for _ in range(repeats):
        for name, query in queries.items():
            kill_executor()
            if query.compiled:
                compile_everything(packages)
            else:
                forget_compiled(packages)
            scan(subject.session.range(TASKS_AT_ONCE).toDF("id"))
            taken[name].append(measured(subject, query))
    return taken


def measured(subject: Bench, query: Query) -> FirstScan:
    cpu, began = subject.cpu().python, time.perf_counter()
    scan(query.frame())
    seconds, cpu = time.perf_counter() - began, subject.cpu().python - cpu
    began = time.perf_counter()
    scan(query.frame())
    return FirstScan(seconds, cpu, time.perf_counter() - began)


def kill_executor() -> None:
    """Kill the executor, and return when another one is there.

    Raises:
        BenchError: none came.
    """
    before = executors()
    for process in before:
        process.kill()
    give_up_at = time.monotonic() + START_SECONDS
    while not set(executors()) - set(before):
        if time.monotonic() > give_up_at:
            raise BenchError(f"no new executor in {START_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def executors() -> list[psutil.Process]:
    """The executors that run below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that was killed, too
            if EXECUTOR in process.cmdline():
                found.append(process)
    return found


def copied(directory: Path) -> Path:
    """Copy the packages to ``directory`` as an installation has them: with bytecode, without machine code."""
    for package in PACKAGES:
        shutil.copytree(package, directory / package.name, ignore=shutil.ignore_patterns("*.machine-code"))
    return directory


def environment_of(packages: Path) -> dict[str, str]:
    """The variables by which Python finds the copy, and machine code for it."""
    return {"PYTHONPATH": f"{packages}{os.pathsep}{ROOT}", "NUMBA_CACHE_DIR": str(packages / "cache")}


def compile_everything(packages: Path) -> None:
    """Fill the cache, in which an executor that was killed while it compiled has left a part."""
    program = "from trio_broker.spark.decoder import available_engine; available_engine()"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment_of(packages)}, check=True)


def forget_compiled(packages: Path) -> None:
    for file in packages.rglob("*.machine-code"):
        file.unlink()


def add(outcome: Outcome, taken: dict[str, list[FirstScan]]) -> None:
    columns = ("source", "first scan s, best", "median", "Python's CPU s", "second scan s, median")
    table = outcome.table("First scan on a new executor", *columns)
    for name, runs in taken.items():
        first = Repeats([run.seconds for run in runs])
        python = Repeats([run.python_seconds for run in runs])
        second = Repeats([run.second_seconds for run in runs])
        table.add(name, first.best, first.median, python.median, second.median)
    outcome.measures["spark-first-scan"] = statistics.median(run.seconds for run in taken[NOTHING_COMPILED])
