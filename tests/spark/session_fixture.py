"""The Spark session of the tests: one for the whole run, because its JVM takes longer than most of the tests.

Every night, tests start others in processes of their own. Nearly half of what a JVM takes for that, several seconds of
CPU, is to read and link Spark's classes: such a run keeps them in an archive (Java's class data sharing), and all JVMs
since map that. The default run has one session, and to make the archive takes as much as ten of them: it maps one that
is there. A JVM that finds another class path, or other jars, goes on without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.java_programs import QUICK_START
from tests.waits import run_program
from trio_broker.spark.session import spark_session
from trio_broker.spark.workarounds.java import cache_directory
from trio_broker.spark.workarounds.spark_home import installed_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The whole heap is collected each time the classes' memory outgrows what it begins with, which is little.
JAVA_OPTIONS: Final = " ".join((*QUICK_START, "-XX:MetaspaceSize=192m"))
"""What a JVM of the tests starts with, of Java 17 and later ones, beside the archive."""

WITHOUT_A_WORD: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""A JVM that cannot use an archive, or cannot keep some class in it, would print that among what a test reads."""

ARCHIVE_SECONDS: Final = 300
"""For the session that fills the archive: it takes twenty on a quiet machine."""

ORACLE_JARS: Final = Path(__file__).parent.parent / "compat" / "spark" / "target" / "jars"
"""Spark's own Kafka source, where it was fetched: a JVM has to be given its jars when it starts."""


@cache
def java_options(*, may_make: bool = True) -> str:
    """What a JVM with Spark starts with: ``JAVA_OPTIONS`` and the archive of its classes, if there is one.

    If there is none, it is made now where that is allowed.
    """
    package, java = installed_package("pyspark"), shutil.which("java")
    if package is None or java is None:
        return JAVA_OPTIONS
    made_for = "\0".join((str(Path(java).resolve()), str(package), version("pyspark"), JAVA_OPTIONS))
    directory = cache_directory(os.environ) / "tests"
    archive = directory / f"classes-{hashlib.sha256(made_for.encode()).hexdigest()[:16]}.jsa"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Several test runs may be at it at the same time: one makes it, and the others wait.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if may_make and not archive.exists():
            make_archive(archive)
    return f"{JAVA_OPTIONS} {WITHOUT_A_WORD} -XX:SharedArchiveFile={archive}" if archive.exists() else JAVA_OPTIONS


def make_archive(archive: Path) -> None:
    """Keep the classes that a session loads. Java writes nothing where it cannot do that."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        made = Path(directory, archive.name)
        options = f"{JAVA_OPTIONS} {WITHOUT_A_WORD} -XX:ArchiveClassesAtExit={made}"
        # It ends when its output does: that is, when the JVM has ended, behind the program that started it.
        run_program(
            [sys.executable, "-m", "tests.spark.archive_job", directory],
            ARCHIVE_SECONDS,
            env={**os.environ, "JDK_JAVA_OPTIONS": options},
            cwd=Path(__file__).parents[2],
            capture_output=True,
        )
        if made.exists():
            made.rename(archive)


def start_session(
    directory: Path,
    *,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    may_make_archive: bool = True,
) -> SparkSession:
    """Return the session of this process, started now if it is the first time; its files go to ``directory``."""
    os.environ.setdefault("JDK_JAVA_OPTIONS", java_options(may_make=may_make_archive))
    chosen = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        # What the reader yields is checked by the JVM, too, which is off by default.
        "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
        # Only used by the test that starts a server of Spark Connect.
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        # Tests change checkpoints by hand.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    }
    if jars := sorted(ORACLE_JARS.glob("*.jar")):
        chosen["spark.jars"] = ",".join(str(jar) for jar in jars)
    return spark_session("trio-broker tests", master=master, settings={**chosen, **(settings or {})})
