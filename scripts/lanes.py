"""Runs the tests in lanes, side by side: one pytest process for each group of folders, and mypy beside them.

``scripts/check`` calls it. A lane's output goes to ``.check/<lane>.txt`` and is printed only when the lane fails. The
last line is ``N passed, N failed, N skipped`` over all lanes, alone on its line, because CI reads it. The exit status
is 0 only if every lane passed and every lane had something to run.

Every test file belongs to exactly one lane: the one that names the longest beginning of its path. A new folder lands in
the lane ``core`` by itself.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from scripts.changed import changed_paths, needed_tests

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
REPORTS = ROOT / ".check"

LANES: Mapping[str, tuple[str, ...]] = {
    "core": ("",),
    "admin": ("admin/", "broker_view/"),
    "spark session": ("spark/test_", "spark/pipelines/", "compat/test_spark_"),
    "compat": ("compat/",),
    "compat groups": ("compat/test_group", "compat/test_fuzz_groups"),
    "state": ("coordinator/", "partition/", "storage/", "network/"),
    "handlers": ("handlers/",),
    "compat commands": ("compat/test_command", "compat/test_docs", "compat/test_java", "compat/test_mirror"),
    "spark units": ("spark/", "compat/test_spark_sink_other", "compat/test_spark_wire_other"),
    "protocol": ("protocol/",),
}
"""Beginnings of paths below ``tests/``, by lane, in the order in which the lanes start: the longest first.

All tests that need a Spark session are in one lane, because each lane would start a JVM of its own and warm it up."""

TYPES = "types"
"""The lane of mypy."""

DEFAULT_JOBS = len(os.sched_getaffinity(0)) + 2
"""Two more than there are processors: half of the time tests wait for sockets, timers and the disk."""

PROGRESS = re.compile(r"^[.FEsxX]+ +\[ *\d+%\]\n?", re.MULTILINE)
"""The lines in which pytest shows how far it is: in the way where only the beginning of a long output is kept."""

NO_TESTS = 5
"""The exit status of a pytest that collected nothing."""


@dataclass(frozen=True)
class Counts:
    """What became of tests. An error while setting up or tearing down counts as a failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


@dataclass
class Lane:
    """A process that checks something, and what it reported."""

    name: str
    command: list[str]
    counts: Counts | None = None
    status: int = 0
    seconds: float = 0
    cpu_seconds: float = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def output(self) -> Path:
        return REPORTS / f"{self.name.replace(' ', '-')}.txt"

    @property
    def report(self) -> Path:
        return self.output.with_suffix(".xml")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, temporary: Path) -> None:
        # Each pytest deletes old directories when it ends, and fails where another one is deleting them.
        environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": tempfile.mkdtemp(dir=temporary)}
        self.seconds = -time.monotonic()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
            )

    def ended(self, status: int, cpu_seconds: float) -> None:
        assert self._process is not None
        self._process.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.seconds += time.monotonic()
        self.cpu_seconds = cpu_seconds
        if self.report.exists():
            self.counts = read_counts(self.report)

    def __str__(self) -> str:
        verdict = "ok    " if self.status == 0 else "FAILED"
        result = "collected nothing" if self.status == NO_TESTS else str(self.counts or "")
        return f"{verdict} {self.name:16} {result:44} {self.seconds:5.0f} s, CPU {self.cpu_seconds:.0f} s"


def files_with_tests() -> list[Path]:
    """Every test file, relative to ``tests/``."""
    return sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


def lane_of(path: Path) -> str:
    """The lane of the test file ``path``, which is relative to ``tests/``."""
    matches = {prefix: name for name, prefixes in LANES.items() for prefix in prefixes}
    return matches[max((prefix for prefix in matches if path.as_posix().startswith(prefix)), key=len)]


def pytest_lanes(files: Iterable[Path]) -> list[Lane]:
    """One lane of pytest for each group of ``files``, in the order of ``LANES``."""
    chosen: dict[str, list[str]] = {name: [] for name in LANES}
    for file in files:
        chosen[lane_of(file)].append(f"tests/{file.as_posix()}")
    return [pytest_lane(name, paths) for name, paths in chosen.items() if paths]


def pytest_lane(name: str, paths: list[str]) -> Lane:
    # Lanes share no cache directory, for each would overwrite what the others noted there as failed.
    lane = Lane(name, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths])
    lane.command.append(f"--junitxml={lane.report}")
    return lane


def read_counts(report: Path) -> Counts:
    """The sums of a JUnit report."""
    tests = failed = skipped = 0
    for suite in xml.etree.ElementTree.parse(report).getroot():
        tests += int(suite.attrib["tests"])
        failed += int(suite.attrib["failures"]) + int(suite.attrib["errors"])
        skipped += int(suite.attrib["skipped"])
    return Counts(max(0, tests - failed - skipped), failed, skipped)


def run(lanes: list[Lane], jobs: int, out: IO[str] = sys.stdout) -> bool:
    """Run ``lanes``, up to ``jobs`` of them at a time, print what they found, and return whether all went well."""
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trio-broker-tests-", ignore_cleanup_errors=True) as temporary:
        for lane in _ended(lanes, jobs, Path(temporary)):
            print(lane, file=out, flush=True)
            if lane.status != 0:
                print(PROGRESS.sub("", lane.output.read_text(errors="replace")), file=out, flush=True)
    print(f"{time.monotonic() - began:.0f} s", file=out)
    print(sum((lane.counts for lane in lanes if lane.counts), Counts()), file=out, flush=True)
    return all(lane.status == 0 for lane in lanes)


def _ended(lanes: list[Lane], jobs: int, temporary: Path) -> Iterator[Lane]:
    """Run ``lanes`` and yield each when it has ended."""
    waiting = list(lanes)
    running: dict[int, Lane] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            lane = waiting.pop(0)
            lane.start(temporary)
            running[lane.pid] = lane
        pid, status, usage = os.wait4(-1, 0)
        lane = running.pop(pid)
        lane.ended(status, usage.ru_utime + usage.ru_stime)
        yield lane


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/check", description="Check the types and run the tests, in lanes.")
    parser.add_argument("--jobs", type=int, default=DEFAULT_JOBS, help="lanes at a time (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=[TYPES, *LANES], default=[TYPES, *LANES], help="run these lanes")
    parser.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="BASE",
        help="run the tests that a change needs: what differs from where this branch left BASE (main)",
    )
    options = parser.parse_args()
    files = files_with_tests() if options.changed is None else needed_tests(changed_paths(options.changed))
    lanes = [Lane(TYPES, [sys.executable, "-m", "mypy"]), *pytest_lanes(files)]
    return 0 if run([lane for lane in lanes if lane.name in options.only], options.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
