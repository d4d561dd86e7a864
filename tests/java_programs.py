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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.oracles import absent
from tests.patience import run_program

SOURCES = Path(__file__).parent / "compat" / "java"
JARS = SOURCES / "target" / "jars"
OLDER_JARS = SOURCES.parent / "java_older" / "target" / "jars"
STREAMS = SOURCES.parent / "java_streams"
"""The folder of the Kafka Streams application."""
QUICK_START = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Programs of tests are over before an optimising compiler, a second collector thread or a look at the bytecode of
Kafka and Spark would pay."""

SECONDS = 120
"""A program that has not ended by then hangs; loaded test machines are slow."""


class Java:
    """The compiled programs of a folder, which is ``tests/compat/java`` unless another is named, with its jars."""

    def __init__(self, classes: Path, jars: Path = JARS) -> None:
        # The sources' folder has simplelogger.properties, which keeps Kafka's loggers silent.
        self.class_path = f"{classes}:{SOURCES}:{jars}/*"

    def with_older_client(self) -> Java:
        """The same programs with the client of ``tests/compat/java_older``, whose classes come first."""
        if not list(OLDER_JARS.glob("kafka-clients-*.jar")):
            absent("java", "the jar of the older Java client was not fetched")
        older = copy.copy(self)
        older.class_path = f"{OLDER_JARS}/*:{self.class_path}"
        return older

    def run(self, program: str, *arguments: str, given: Any = None) -> list[dict[str, Any]]:
        """Run ``program`` and return the objects it printed, one a line."""
        completed = run_program(
            ["java", *QUICK_START, "-cp", self.class_path, program, *arguments],
            SECONDS,
            input=json.dumps(given),
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stderr
        return [json.loads(line) for line in completed.stdout.split("\n") if line]


class Steps:
    """What the steps of a program found, by name."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        self.told = {one["step"]: one for one in told}

    def result(self, name: str) -> Any:
        assert "result" in self.told[name], self.told[name]
        return self.told[name]["result"]

    def error(self, name: str) -> str:
        assert "error" in self.told[name], self.told[name]
        return str(self.told[name]["error"])


def compiled_java(folder: Path = SOURCES) -> Java:
    """Compile the programs of ``folder``, unless these sources were compiled before; without a JDK or the jars, see
    ``absent``.
    """
    if shutil.which("java") is None or shutil.which("javac") is None:
        absent("java", "there is no JDK")
    jars = folder / "target" / "jars"
    if not list(jars.glob("kafka-clients-*.jar")):
        absent("java", f"the jars of tests/compat/{folder.name} were not fetched")
    sources = sorted(folder.glob("*.java"))
    names = " ".join(sorted(jar.name for jar in jars.glob("*.jar")))
    digest = hashlib.sha256(names.encode() + b"".join(source.read_bytes() for source in sources)).hexdigest()
    classes = jars.parent / f"classes-{digest[:16]}"
    # Several test runs may be at it at the same time: one compiles, and the others wait for its classes.
    with (jars.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.exists():
            compile_java(sources, jars, classes)
    return Java(classes, jars)


def compile_java(sources: Iterable[Path], jars: Path, classes: Path) -> None:
    """Compile ``sources`` into the folder ``classes``, which appears with all of them."""
    with tempfile.TemporaryDirectory(dir=jars.parent) as directory:
        command = ["javac", *(f"-J{option}" for option in QUICK_START), "-proc:none", "-cp", f"{jars}/*"]
        run_program([*command, "-d", f"{directory}/classes", *map(str, sources)], SECONDS, check=True)
        Path(directory, "classes").rename(classes)
