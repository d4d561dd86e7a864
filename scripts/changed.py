"""Which tests a change needs, for ``scripts/check --changed``: those of its package and of its nearest neighbours.

Neighbours are the packages that a table names, and the modules that import the changed one, by the tests that import
those. This is what a developer waits for, about a minute; the whole run follows before the change is pushed. One in
the broker takes a slice of the real clients along, and neither Spark nor Node nor Kafka's own jars.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"

FOLDERS = {"trio_broker": ROOT, "kafka_wire": ROOT / "protocol", "broker_admin": ROOT / "admin", "tests": ROOT}
"""Where the import packages lie, by name."""

IMPORT = re.compile(rf"^ *from ((?:{'|'.join(FOLDERS)})\b[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
"""A line, or several in parentheses. To parse all modules takes thirty times as long."""

MOST_IMPORTERS = 15
"""A module that more modules of the product import is known everywhere: its tests are those of the table alone."""

LEFT_TO_THE_TABLE = ("spark/", "compat/")
"""Tests that no import makes needed, since they take Spark or real clients."""

CLIENTS = ("compat/test_confluent_kafka.py", "compat/test_kafka_python.py")
GROUP_CLIENTS = ("compat/test_group_admin_python.py",)

TESTS_OF: Mapping[str, tuple[str, ...]] = {
    "": ("",),
    "protocol/": ("protocol/", "client/", "network/", "storage/", *CLIENTS),
    "admin/": ("admin/", "broker_view/"),
    "trio_broker/": ("test_", "testing/", "metrics/", *CLIENTS),
    "trio_broker/broker_view/": ("broker_view/", "admin/"),
    "trio_broker/cli/": ("cli/", "docs/", "compat/test_command_line.py"),
    "trio_broker/client/": ("client/", "cli/", *GROUP_CLIENTS),
    "trio_broker/cluster/": ("cluster/", "handlers/", "test_", *CLIENTS),
    "trio_broker/config/": ("config/", "docs/", "cluster/", "test_", *CLIENTS),
    "trio_broker/coordinator/": ("coordinator/", "handlers/", *GROUP_CLIENTS),
    "trio_broker/handlers/": ("handlers/", "docs/", *CLIENTS, *GROUP_CLIENTS),
    "trio_broker/metrics/": ("metrics/", "admin/", "broker_view/"),
    "trio_broker/network/": ("network/", "test_", *CLIENTS),
    "trio_broker/partition/": ("partition/", "handlers/", "test_", *CLIENTS),
    "trio_broker/runtime/": ("runtime/", "storage/", "partition/", "test_", *CLIENTS),
    "trio_broker/spark/": ("spark/test_",),
    "trio_broker/spark/decoder/": ("spark/decoder/", "spark/test_batch_reader.py", "spark/test_stream_reader.py"),
    "trio_broker/spark/files/": ("spark/files/", "spark/test_batch_reader.py"),
    "trio_broker/spark/options/": ("spark/options/", "spark/planning/", "docs/", "spark/test_batch_reader.py"),
    "trio_broker/spark/pipelines/": ("spark/pipelines/", "cli/test_pipeline_commands.py"),
    "trio_broker/spark/planning/": ("spark/planning/", "spark/test_batch_reader.py", "spark/test_stream_reader.py"),
    "trio_broker/spark/producer/": ("spark/producer/", "spark/test_sink.py"),
    "trio_broker/spark/tables/": ("spark/pipelines/", "spark/test_batch_table.py"),
    "trio_broker/spark/wire/": ("spark/wire/", "spark/test_batch_reader.py", "spark/test_stream_reader.py"),
    "trio_broker/spark/workarounds/": ("spark/workarounds/", "spark/test_session.py", "spark/test_worker_process.py"),
    "trio_broker/storage/": ("storage/", "partition/", "handlers/", *CLIENTS),
    "trio_broker/testing/": ("testing/", *CLIENTS),
    "bench/": ("bench/",),
    "deploy/": ("test_deploy", "admin/test_prometheus_alerts"),
    "docs/": ("docs/", "config/", "handlers/test_apis_documentation.py"),
    "examples/": ("examples/", "spark/test_example"),
    "fuzz/": ("protocol/test_fuzz", "compat/test_fuzz", "spark/decoder/"),
    "scripts/": ("test_lanes.py", "test_changed.py", "test_waits.py", "test_pressure.py"),
    "README.md": ("docs/", "spark/test_readme"),
    "CONTRIBUTING.md": ("docs/",),
    "tests/compat/README.md": ("docs/",),
    "CHANGELOG.md": ("docs/test_changelog",),
    "newsfragments/": ("docs/test_changelog",),
}
"""Beginnings of paths of test files below ``tests/``, by the beginning of a changed path; the longest counts.

What is not named here (``pyproject.toml``) needs all tests."""


def needed_tests(changed: Iterable[str]) -> list[Path]:
    """The test files, relative to ``tests/``, that the changed paths need."""
    found: set[Path] = set()
    for path in changed:
        if path.startswith("tests/") and path not in TESTS_OF:
            found |= users_of(Path(path).relative_to("tests"))
        else:
            found |= starting_with(TESTS_OF[max(filter(path.startswith, TESTS_OF), key=len)])
            found |= near_tests(ROOT / path)
    return sorted(found)


def near_tests(path: Path) -> set[Path]:
    """The test files that import the module at ``path``, or one of the product that imports it."""
    changed = next((module_of(path, name) for name in FOLDERS if path.is_relative_to(FOLDERS[name] / name)), None)
    near = {module for module, names in imports().items() if changed in names and not module.startswith("tests.")}
    if changed is None or path.suffix != ".py" or len(near) > MOST_IMPORTERS:
        return set()
    near.add(changed)
    return {
        test
        for test in all_tests()
        if not test.as_posix().startswith(LEFT_TO_THE_TABLE) and near & imports()[module_of(TESTS / test, "tests")]
    }


def all_tests() -> Iterator[Path]:
    return (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def starting_with(prefixes: tuple[str, ...]) -> set[Path]:
    return {path for path in all_tests() if path.as_posix().startswith(prefixes)}


def users_of(path: Path) -> set[Path]:
    """The test files that use ``path``: itself if it is one, those that import it, all below a ``conftest.py``.

    What is no Python, such as a recorded answer, belongs to the tests of its folder.
    """
    if path.name == "conftest.py" or path.suffix != ".py":
        folder = "" if path.parent == Path() else f"{path.parts[0]}/"
        return starting_with((folder,))
    users, waiting = {path}, [path]
    while waiting:
        module = module_of(TESTS / waiting.pop(), "tests")
        more = {path_of(user) for user, names in imports().items() if module in names} - users
        users |= more
        waiting += more
    below = {test for user in users if user.name == "conftest.py" for test in users_of(user)}
    return below | {user for user in users if user.name.startswith("test_") and (TESTS / user).exists()}


@cache
def imports() -> dict[str, set[str]]:
    """What each module of the product and of the tests imports from the others, programs in its texts included."""
    found: dict[str, set[str]] = {}
    for package, folder in FOLDERS.items():
        for path in (folder / package).rglob("*.py"):
            names = found[module_of(path, package)] = set[str]()
            for module, imported in IMPORT.findall(path.read_text()):
                names.add(module)
                names.update(f"{module}.{name}" for name in re.findall(r"\w+", imported))
    return found


def module_of(path: Path, package: str) -> str:
    """The name of the module at ``path``, which is one of ``package``."""
    return ".".join(path.relative_to(FOLDERS[package]).with_suffix("").parts).removesuffix(".__init__")


def path_of(module: str) -> Path:
    """Where a module of the tests lies, relative to ``tests/``."""
    return Path(*module.split(".")[1:]).with_suffix(".py")


def changed_paths(base: str | None = None) -> list[str]:
    """What differs from where this branch left ``base``, uncommitted and new files included; main's by default."""
    start = git("merge-base", "HEAD", base or main_branch())[0]
    return git("diff", "--name-only", "--no-renames", start) + git("ls-files", "--others", "--exclude-standard")


def main_branch() -> str:
    """``main``, or a clone's copy of it where only another branch was checked out."""
    known = git("for-each-ref", "--format=%(refname:short)", "refs/heads/main", "refs/remotes/origin/main")
    return known[0] if known else "HEAD"


def git(*arguments: str) -> list[str]:
    completed = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return completed.stdout.splitlines()
