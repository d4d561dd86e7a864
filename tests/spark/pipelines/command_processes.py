"""Pipeline commands as processes of their own, each with its JVM and workers, for tests that kill them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from tests.spark.session_fixture import java_options
from tests.waits import TimeLeft

SECONDS = 300
"""For a JVM to start and a few batches, on a machine that does other things as well."""


@contextmanager
def pipeline_process(*arguments: str, master: str = "local[2]") -> Iterator[subprocess.Popen[str]]:
    """``trio-broker pipeline`` in a process group of its own, which is killed at the end of the block.

    A test that kills the driver alone stays in the block, so that what the driver leaves, its JVM and workers, ends by
    itself, perhaps after the next run began.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "trio_broker", "pipeline", *arguments, "--master", master],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "JDK_JAVA_OPTIONS": f"{java_options()} -Xmx512m"},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Return when ``condition`` holds, which ``process`` brings about; it must not end before."""
    time_left = TimeLeft(SECONDS)
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert not time_left.is_over, f"nothing in {SECONDS} s"
        time.sleep(0.3)


def rows_in(table: Path) -> int:
    """The rows of a table of Parquet files, counted from the footers, since this is asked often."""
    paths = [*table.glob("*.parquet"), *table.glob("topic=*/**/*.parquet")]
    return sum(pq.read_metadata(path).num_rows for path in paths)
