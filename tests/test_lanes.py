"""The lanes of ``scripts/check`` run every test file once, count the results, and fail when a lane fails."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from scripts import lanes
from scripts.lanes import (
    LANES,
    TIMES,
    Counts,
    Lane,
    Took,
    files_with_tests,
    lane_of,
    longest_first,
    pytest_lane,
    pytest_lanes,
    read_times,
    run,
    summary,
)
from scripts.pressure import CpuOfRun, Notes


@pytest.fixture(autouse=True)
def _reports_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of the run that this test belongs to stay where they are.

    The lanes of these tests need no plugins, which take half of the time of so short a run.
    """
    monkeypatch.setattr(lanes, "REPORTS", tmp_path / "reports")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def file_of_tests(tmp_path: Path, text: str) -> str:
    path = tmp_path / "test_made.py"
    path.write_text(text)
    return str(path)


def run_lanes(*given: Lane) -> tuple[bool, list[str]]:
    out = io.StringIO()
    passed = run(list(given), 2, out)
    return passed, out.getvalue().splitlines()


def test_every_test_file_is_run_by_exactly_one_lane() -> None:
    known = {path.relative_to(lanes.ROOT).as_posix() for path in lanes.TESTS.rglob("test_*.py")}
    ran = [
        argument for lane in pytest_lanes(files_with_tests()) for argument in lane.command if argument.endswith(".py")
    ]
    assert sorted(ran) == sorted({*ran})
    assert set(ran) == known


def test_every_lane_has_tests() -> None:
    assert {lane_of(path) for path in files_with_tests()} == set(LANES)


def test_a_file_belongs_to_the_lane_that_names_most_of_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lane_of(Path("compat/test_group_scale.py")) == "compat tools"
    assert lane_of(Path("compat/test_kcat.py")) == "compat"
    assert lane_of(Path("spark/test_batch_reader.py")) == "spark units"
    monkeypatch.setattr(lanes, "TESTS", tmp_path)
    (tmp_path / "test_new.py").write_text("def test_of_sparks_own(sparks): pass\n")
    assert lane_of(Path("test_new.py")) == "core"


@pytest.mark.parametrize(
    "text",
    [
        "def test_reads(spark: SparkSession) -> None: pass",
        "import pytest\n\ndef reader(\n    tmp_path: Path,\n    spark: SparkSession,\n) -> None:\n    pass",
        "class TestReads:\n    def test_reads(self, tmp_path, spark): pass",
    ],
)
def test_a_file_with_the_session_of_spark_belongs_to_its_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(lanes, "TESTS", tmp_path)
    (tmp_path / "test_new.py").write_text(text)
    assert lane_of(Path("test_new.py")) == "spark session"


def test_the_last_line_sums_the_lanes(tmp_path: Path) -> None:
    text = """
import pytest

def test_passes(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("for once")

@pytest.fixture
def broken(): raise OSError

def test_errs(broken): pass
"""
    path = file_of_tests(tmp_path, text)
    passed, printed = run_lanes(pytest_lane("one", [path]), pytest_lane("two", [f"{path}::test_passes"]))
    assert not passed
    assert printed[-1] == "2 passed, 2 failed, 1 skipped"
    assert "def test_fails(): assert False" in "\n".join(printed), "the output of a lane that failed is shown"
    assert not any(line.endswith("%]") for line in printed), "without the dots"


def test_lanes_share_no_temporary_directories(tmp_path: Path) -> None:
    path = file_of_tests(tmp_path, "def test_says_where(tmp_path): print(tmp_path.parents[2]); assert False")
    _, printed = run_lanes(pytest_lane("one", [path]), pytest_lane("two", [path]))
    roots = [line for line in printed if Path(line).name.startswith("tmp")]
    assert len({*roots}) == len(roots) == 2
    assert not any(Path(root).exists() for root in roots), "they go with the run"


def test_a_lane_that_collects_nothing_fails(tmp_path: Path) -> None:
    passed, printed = run_lanes(pytest_lane("empty", [file_of_tests(tmp_path, "")]))
    assert not passed
    assert "collected nothing" in printed[0]


@pytest.mark.parametrize("status", [0, 1])
def test_a_lane_without_tests_counts_by_its_status(status: int) -> None:
    passed, printed = run_lanes(Lane("types", [sys.executable, "-c", f"raise SystemExit({status})"]))
    assert passed == (status == 0)
    assert printed[-1] == str(Counts())


def test_the_cpu_of_what_outlives_its_lane_is_counted() -> None:
    """The orphan computes when the lane's own process has ended, as a JVM ends after the pytest that started it."""
    computes = "import sys, time\nsys.stdin.read()\nwhile time.process_time() < 0.5: pass"
    starts = f"subprocess.Popen([sys.executable, '-c', {computes!r}], stdin=subprocess.PIPE)"
    lane = Lane("orphan", [sys.executable, "-c", f"import os, subprocess, sys; {starts}; os._exit(3)"])
    passed, printed = run_lanes(lane)
    assert not passed, "the exit code is that of the lane's own process"
    assert lane.status == 3
    assert lane.cpu_seconds > 0.5 or sys.platform != "linux", printed


def test_a_lane_that_a_signal_ends_fails() -> None:
    passed, _ = run_lanes(Lane("crash", [sys.executable, "-c", "import os; os.abort()"]))
    assert not passed


# ---- what is kept, and what is said at the end

QUIET = CpuOfRun(100, 190, 80, processors=2)
BUSY = CpuOfRun(100, 20, 98, processors=2)


def lane_that_took(name: str, cpu_seconds: float, *, status: int = 0, notes: Notes | None = None) -> Lane:
    counts = Counts(10, int(status != 0), 0)
    return Lane(name, [], counts, status, seconds=cpu_seconds, cpu_seconds=cpu_seconds, notes=notes or Notes())


def test_what_whole_lanes_took_is_kept_until_they_run_again() -> None:
    def lane(name: str, status: int = 0) -> Lane:
        return Lane(name, [sys.executable, "-c", f"raise SystemExit({status})"])

    run_lanes(lane("one"), lane("two"), lane("three", status=1))
    kept = read_times()
    assert kept.keys() == {"one", "two"}, "a lane that failed may have taken its time for that"
    run_lanes(lane("one"))
    assert read_times()["two"] == kept["two"]
    run([lane("one"), lane("four")], 2, io.StringIO(), are_whole=False)
    assert read_times().keys() == {"one", "two"}, "some files of a lane say nothing of the whole"


@pytest.mark.parametrize("text", ["", "[]", '{"core": 7}', '{"core": {"minutes": 9}}'])
def test_times_that_cannot_be_read_are_not_known(text: str) -> None:
    lanes.REPORTS.mkdir()
    (lanes.REPORTS / TIMES).write_text(text)
    assert read_times() == {}


def test_the_longest_lane_starts_first_and_those_that_only_compute_last() -> None:
    given = [Lane(name, []) for name in ("types", "state", "core", "new", "spark session")]
    times = {"types": Took(300, 60), "core": Took(100, 90), "spark session": Took(200, 80), "state": Took(400, 80)}
    assert [lane.name for lane in longest_first(given, times)] == ["new", "spark session", "core", "state", "types"]
    assert [lane.name for lane in longest_first(given, {})] == ["core", "new", "spark session", "types", "state"]


@pytest.mark.parametrize(("name", "nice"), [("core", 0), ("state", lanes.NICE)])
def test_a_lane_that_only_computes_leaves_the_processors_to_the_others(name: str, nice: int) -> None:
    lane = Lane(name, [sys.executable, "-c", f"import os; assert os.nice(0) == {min(19, os.nice(0) + nice)}"])
    assert run_lanes(lane)[0]


def test_a_lane_that_took_much_more_cpu_than_the_last_time_is_named() -> None:
    times = {"core": Took(100, 100), "state": Took(100, 100)}
    said = [*summary([lane_that_took("core", 180), lane_that_took("state", 140)], QUIET, times)]
    assert said == ["core took 1.8 times the CPU of the last run (100 s)", f"{QUIET}."]


def test_the_end_says_whether_the_machine_was_short_of_cpu_and_who_failed_meanwhile() -> None:
    failed = lane_that_took("core", 10, status=1, notes=Notes(3, 1))
    said = [*summary([failed, lane_that_took("state", 10, notes=Notes(2, 0))], BUSY, {})]
    assert said == [
        f"{BUSY}: 5 waits were extended, 1 of them in vain.",
        "core: 1 failed while the machine was short of CPU; 3 waits were extended, 1 of them in vain.",
    ]
    assert [*summary([failed], QUIET, {})] == [f"{QUIET}: 3 waits were extended, 1 of them in vain."]


def test_waits_that_tests_extend_are_counted(tmp_path: Path) -> None:
    text = """
from scripts.pressure import EXTENDED_WAITS
import os, subprocess, sys

def test_extends():
    note = "import os; open(os.environ['EXTENDED_WAITS'], 'a').write('extended' + chr(10))"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", note], check=True)
"""
    lane = pytest_lane("one", [file_of_tests(tmp_path, text)])
    passed, printed = run_lanes(lane)
    assert passed, printed
    assert lane.notes == Notes(2, 0)
    assert "2 waits were extended, 0 of them in vain." in printed[-2]
