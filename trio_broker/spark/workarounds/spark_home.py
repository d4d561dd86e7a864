"""A ``SPARK_HOME`` for local sessions whose Python processes find PySpark compiled.

Spark's JVM puts ``$SPARK_HOME/python/lib/pyspark.zip`` first on the path of each Python process that it starts: of its
workers, and of those that plan and commit what a data source reads and writes; and the archive of py4j behind it. The
archives have sources only. So each process compiles them anew, for which it takes 0.7 s of CPU, four times as long as
for all the rest of its start, and 0.05 s for py4j. The same modules lie in the installed packages, and Python keeps
them compiled there.

The directory that is made here consists of links to what is in the package, but for the two archives. Each of those is
a directory with a link to its package, and nothing else of the same installation, since tasks may run in another one.
An archive of py4j of another version than the installed one stays.

Source: org.apache.spark.api.python.PythonUtils.sparkPythonPath; pyspark.find_spark_home; docs/decisions/0059.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from trio_broker.spark.workarounds.java import cache_directory

SPARK_HOME: Final = "SPARK_HOME"

PYSPARK_PYTHON: Final = "PYSPARK_PYTHON"
"""The Python of planners and workers."""

ARCHIVES: Final = Path("python", "lib")
"""Where Spark looks for the modules of PySpark and of py4j."""

PYSPARK_ARCHIVE: Final = "pyspark.zip"

PY4J: Final = "py4j"


def use_compiled_pyspark(environment: MutableMapping[str, str] | None = None) -> None:
    """Set ``SPARK_HOME``, and this Python as that of tasks, for a JVM that this process starts later.

    For local sessions: the JVM would otherwise take the first ``python3`` of the PATH, perhaps one without these
    packages. Each is left as it is where it is set; ``SPARK_HOME`` also where PySpark is not installed as pip does it,
    and where no links can be made.
    """
    environment = os.environ if environment is None else environment
    environment.setdefault(PYSPARK_PYTHON, sys.executable)
    package = installed_package("pyspark")
    if SPARK_HOME in environment or package is None or not (package / ARCHIVES / PYSPARK_ARCHIVE).is_file():
        return
    with contextlib.suppress(OSError):
        environment[SPARK_HOME] = str(linked_home(package, cache_directory(environment)))


def installed_package(name: str) -> Path | None:
    """Return the directory of a package."""
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def linked_home(package: Path, cache: Path) -> Path:
    """Return the directory for ``package``, made in ``cache`` unless it exists.

    Raises:
        OSError: it cannot be made.
    """
    links = links_to(package)
    digest = hashlib.sha256("\n".join(f"{name}\0{target}" for name, target in links.items()).encode())
    home = cache / f"spark-{digest.hexdigest()[:16]}"
    for name, target in links.items():
        link = home / name
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Another process may make the same link at this moment.
            with contextlib.suppress(FileExistsError):
                link.symlink_to(target)
    return home


def links_to(package: Path) -> dict[Path, Path]:
    """Return what each link leads to, by its path in the home."""
    links = {Path(each.name): each for each in sorted(package.iterdir()) if each.name != ARCHIVES.parts[0]}
    packages = {PYSPARK_ARCHIVE: package}
    if py4j := installed_package(PY4J):
        packages[f"{PY4J}-{importlib.metadata.version(PY4J)}-src.zip"] = py4j
    for archive in sorted((package / ARCHIVES).iterdir()):
        if archive.name in packages:
            links[ARCHIVES / archive.name / packages[archive.name].name] = packages[archive.name]
        else:
            links[ARCHIVES / archive.name] = archive
    return links
