"""Runs the tests in lanes, side by side: one pytest process for each group of folders, and mypy beside them.

``scripts/check`` calls it. A lane's output goes to ``.check/<lane>.txt`` and is printed only when the lane fails. The
last line is ``N passed, N failed, N skipped`` over all lanes, alone on its line, because CI reads it. The exit status
is 0 only if every lane passed and every lane had something to run.

Before that line the run says whether the machine was short of CPU (``scripts/pressure.py``), names the lanes that
failed meanwhile, and those that took much more CPU than in the last run. What each whole lane took is kept in
``.check/times.json``; the longest starts first. The CPU is that of all processes, those included that outlive the lane
(``scripts/counted.py``).

Every test file belongs to exactly one lane: that of the Spark session if a test of it takes that, else the one that
names the longest beginning of its path. A new folder lands in the lane ``core`` by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from scripts.changed import changed_paths, needed_tests
from scripts.pressure import EXTENDED_WAITS, CpuOfRun, Notes, processor_count, read_notes, stalled_seconds

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
REPORTS = ROOT / ".check"
COUNTED = ROOT / "scripts" / "counted.py"

TIMES = "times.json"
"""The file in ``REPORTS`` that outlives a run."""

LANES: Mapping[str, tuple[str, ...]] = {
    "spark session": (),
    "admin": ("admin/", "broker_view/"),
    "core": ("",),
    "compat tools": (
        *("compat/test_command", "compat/test_docs", "compat/test_java", "compat/test_mirror"),
        *("compat/test_group", "compat/test_fuzz_groups"),
    ),
    "compat": ("compat/",),
    "spark units": ("spark/", "compat/test_spark_"),
    "requests": ("handlers/", "protocol/"),
    "state": ("coordinator/", "partition/", "storage/", "network/"),
    "simulation": ("simulation/", "checking/", "bench/"),
}
"""Beginnings of paths below ``tests/``, by lane, in the order in which the lanes start where their times are not known.
Each costs seconds of CPU by itself: a pytest with its imports, and for most a fork server and a browser or a JVM."""

SPARK_SESSION = "spark session"
"""The lane of all files with a test that takes the Spark session of the run, wherever they are: each lane would start a
JVM of its own and warm it up. It is the longest, and so it has no others."""

TAKES_SESSION = re.compile(r"^ *def \w+\((?:[^()]*,\s*)?\s*spark\b\s*[:,)]", re.MULTILINE)
"""A test or a fixture with the argument ``spark``."""

TYPES = "types"
"""The lane of mypy."""

ONLY_COMPUTE = frozenset({TYPES, "requests", "state", "simulation"})
"""Lanes whose tests hardly wait. They start last and get what the others leave of the processors, up to the end: at
equal rights they are over first, and the processors idle behind them."""

NICE = 5
"""What Unix calls it to leave a processor to others: such a lane gets a third of what another one gets beside it."""

DEFAULT_JOBS = 4 * processor_count()
"""A lane that waits uses a third of a processor: it waits for other processes, sockets, timers and the disk. One more
for each processor only computes."""

PROGRESS = re.compile(r"^[.FEsxX]+ +\[ *\d+%\]\n?", re.MULTILINE)
"""The lines in which pytest shows how far it is: in the way where only the beginning of a long output is kept."""

MUCH_MORE = 1.5
"""Times the CPU of the last run: a lane that takes more is named. A busy machine adds less than that to it."""

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
    notes: Notes = field(default_factory=Notes)
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
        own_root = {"PYTEST_DEBUG_TEMPROOT": tempfile.mkdtemp(dir=temporary)}
        environment = {**os.environ, **own_root, EXTENDED_WAITS: str(self.output.with_suffix(".waits"))}
        self.seconds = -time.monotonic()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                # Without site-packages, which it does not need.
                [sys.executable, "-S", str(COUNTED), *self.command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                preexec_fn=partial(os.nice, NICE if self.name in ONLY_COMPUTE else 0),
            )

    def ended(self, status: int, cpu_seconds: float) -> None:
        assert self._process is not None
        self._process.returncode = self.status = os.waitstatus_to_exitcode(status)
        self.seconds += time.monotonic()
        self.cpu_seconds = cpu_seconds
        self.notes = read_notes(self.output.with_suffix(".waits"))
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
    if TAKES_SESSION.search((TESTS / path).read_text(encoding="utf-8")):
        return SPARK_SESSION
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


@dataclass(frozen=True)
class Took:
    """What a lane took when it last ran whole."""

    seconds: float
    cpu_seconds: float


def read_times() -> dict[str, Took]:
    """What the lanes took, by name; nothing where it was not kept, or by another version of this file."""
    try:
        kept = json.loads((REPORTS / TIMES).read_text())
        return {name: Took(**took) for name, took in kept.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def longest_first(lanes: Iterable[Lane], times: Mapping[str, Took]) -> list[Lane]:
    """The lanes in the order in which they start; of those whose time is not known, the order is kept."""

    def order(lane: Lane) -> tuple[bool, float]:
        return lane.name in ONLY_COMPUTE, -times[lane.name].seconds if lane.name in times else float("-inf")

    return sorted(lanes, key=order)


def run(lanes: list[Lane], jobs: int, out: IO[str] = sys.stdout, *, are_whole: bool = True) -> bool:
    """Run ``lanes``, up to ``jobs`` of them at a time, print what they found, and return whether all went well.

    What they took is kept if they ``are_whole``.
    """
    times = read_times()
    shutil.rmtree(REPORTS, ignore_errors=True)
    REPORTS.mkdir()
    write_times(times)
    began, stalled_before = time.monotonic(), stalled_seconds()
    with tempfile.TemporaryDirectory(prefix="trio-broker-tests-", ignore_cleanup_errors=True) as temporary:
        for lane in _ended(longest_first(lanes, times), jobs, Path(temporary)):
            print(lane, file=out, flush=True)
            if lane.status != 0:
                print(PROGRESS.sub("", lane.output.read_text(errors="replace")), file=out, flush=True)
    seconds, stalled = time.monotonic() - began, stalled_seconds()
    cpu = CpuOfRun(
        seconds,
        sum(lane.cpu_seconds for lane in lanes),
        None if stalled is None or stalled_before is None else stalled - stalled_before,
    )
    print(f"{seconds:.0f} s", *summary(lanes, cpu, times if are_whole else {}), sep="\n", file=out)
    print(sum((lane.counts for lane in lanes if lane.counts), Counts()), file=out, flush=True)
    if are_whole:
        write_times(times | {lane.name: Took(lane.seconds, lane.cpu_seconds) for lane in lanes if lane.status == 0})
    return all(lane.status == 0 for lane in lanes)


def write_times(times: Mapping[str, Took]) -> None:
    (REPORTS / TIMES).write_text(json.dumps({name: asdict(took) for name, took in times.items()}, indent=2) + "\n")


def summary(lanes: Sequence[Lane], cpu: CpuOfRun, times: Mapping[str, Took]) -> Iterator[str]:
    """What is to be known of a run before one of its failures is taken for a defect."""
    for lane in lanes:
        before = times.get(lane.name)
        if before and lane.cpu_seconds > MUCH_MORE * before.cpu_seconds:
            more = lane.cpu_seconds / before.cpu_seconds
            yield f"{lane.name} took {more:.1f} times the CPU of the last run ({before.cpu_seconds:.0f} s)"
    notes = sum((lane.notes for lane in lanes), Notes())
    yield f"{cpu}: {notes}." if notes.extended else f"{cpu}."
    for lane in lanes:
        if cpu.was_short and lane.status != 0 and lane.counts:
            yield f"{lane.name}: {lane.counts.failed} failed while the machine was short of CPU; {lane.notes}."


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
    lanes = [*pytest_lanes(files), Lane(TYPES, [sys.executable, "-m", "mypy"])]
    chosen = [lane for lane in lanes if lane.name in options.only]
    return 0 if run(chosen, options.jobs, are_whole=options.changed is None) else 1


if __name__ == "__main__":
    sys.exit(main())
