"""Runs the Java programs of ``tests/compat/java`` with the jars of Kafka itself, its client and its tools, and those of
other folders with jars of their own.

They are oracles, the nearest thing to Kafka's own opinion of us. A test that asks for them is skipped where there is no
JDK or where the jars of ``tests/compat/java/pom.xml`` were not fetched (tests/compat/README.md). Every JVM costs a
second or two, so each program goes through many steps in one, tells what it saw as JSON, and the tests judge.
"""

from __future__ import annotations

import copy
import fcntl
import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.oracles import absent
from tests.waits import run_program

SOURCES = Path(__file__).parent / "compat" / "java"
JARS = SOURCES / "target" / "jars"
OLDER_JARS = SOURCES.parent / "java_older" / "target" / "jars"
MIRROR_MAKER_JARS = SOURCES.parent / "java_mirror" / "target" / "jars"
STREAMS = SOURCES.parent / "java_streams"
"""The folder of the Kafka Streams application."""
QUIET_LOGGERS = SOURCES / "simplelogger.properties"
QUICK_START = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Programs of tests are over before an optimising compiler, a second collector thread or a look at the bytecode of
Kafka and Spark would pay."""

SILENT_ARCHIVE = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
"""A JVM that cannot use an archive of classes, or keep some class in it, would print that among what a test reads."""

SECONDS = 120
"""A program that has not ended by then hangs; loaded test machines are slow."""


class Java:
    """The compiled programs of a folder, which is ``tests/compat/java`` unless another is named, with its jars."""

    def __init__(self, programs: Path, jars: Path = JARS) -> None:
        self.class_path = f"{jar_path(jars)}:{programs}"
        self.archive = programs.with_suffix(".jsa")
        """Kafka's classes as a JVM with this class path maps them, once ``KafkaProcess`` has made it."""

    @property
    def quick_start(self) -> list[str]:
        """The options of a JVM with this class path. A JVM with another one goes on without the archive."""
        archive = [f"-XX:SharedArchiveFile={self.archive}"] if self.archive.exists() else []
        return [*QUICK_START, *SILENT_ARCHIVE, *archive]

    def with_older_client(self) -> Java:
        """The same programs with the client of ``tests/compat/java_older``, whose classes come first."""
        if not list(OLDER_JARS.glob("kafka-clients-*.jar")):
            absent("java", "the jar of the older Java client was not fetched")
        older = copy.copy(self)
        older.class_path = f"{jar_path(OLDER_JARS)}:{self.class_path}"
        return older

    def run(self, program: str, *arguments: str, given: Any = None) -> list[dict[str, Any]]:
        """Run ``program`` and return the objects it printed, one a line."""
        completed = run_program(
            ["java", *self.quick_start, "-cp", self.class_path, program, *arguments],
            SECONDS,
            input=json.dumps(given),
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stderr
        return [json.loads(line) for line in completed.stdout.split("\n") if line]


class Steps:
    """What the steps of a program found, by name."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        self.results = {one["step"]: one for one in results}

    def result(self, name: str) -> Any:
        assert "result" in self.results[name], self.results[name]
        return self.results[name]["result"]

    def error(self, name: str) -> str:
        assert "error" in self.results[name], self.results[name]
        return str(self.results[name]["error"])


def compiled_java(folder: Path = SOURCES) -> Java:
    """Compile the programs of ``folder``, unless these sources were compiled before; without a JDK or the jars, see
    ``absent``.
    """
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        absent("java", "there is no JDK")
    jars = folder / "target" / "jars"
    if not list(jars.glob("kafka-clients-*.jar")):
        absent("java", f"the jars of tests/compat/{folder.name} were not fetched")
    sources = sorted(folder.glob("*.java"))
    names = " ".join((str(Path(java).resolve()), *sorted(jar.name for jar in jars.glob("*.jar"))))
    digest = hashlib.sha256(
        names.encode() + b"".join(source.read_bytes() for source in (*sources, QUIET_LOGGERS))
    ).hexdigest()
    programs = jars.parent / f"programs-{digest[:16]}.jar"
    # Several test runs may be at it at the same time: one compiles, and the others wait for its classes.
    with locked(jars.parent / "lock"):
        if not programs.exists():
            compile_java(sources, jars, programs)
    return Java(programs, jars)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Be the only process in such a block."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jar_path(jars: Path) -> str:
    """The jars one by one and in order: an archive of classes holds for the path with which it was made."""
    return ":".join(map(str, sorted(jars.glob("*.jar"))))


def compile_java(sources: Iterable[Path], jars: Path, programs: Path) -> None:
    """Compile ``sources`` into the jar ``programs``, which appears with all of them, and with ``QUIET_LOGGERS``."""
    with tempfile.TemporaryDirectory(dir=jars.parent) as directory:
        classes = Path(directory, "classes")
        command = ["javac", *(f"-J{option}" for option in QUICK_START), "-proc:none", "-cp", f"{jars}/*"]
        run_program([*command, "-d", str(classes), *map(str, sources)], SECONDS, check=True)
        made = Path(directory, programs.name)
        with zipfile.ZipFile(made, "w") as jar:
            for file in classes.rglob("*.class"):
                jar.write(file, file.relative_to(classes))
            jar.write(QUIET_LOGGERS, QUIET_LOGGERS.name)
        made.rename(programs)
