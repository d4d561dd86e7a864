"""The lanes of ``scripts/check`` run every test file once, count the results, and fail when a lane fails."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from scripts import lanes
from scripts.lanes import LANES, Counts, Lane, files_with_tests, lane_of, pytest_lane, pytest_lanes, run


@pytest.fixture(autouse=True)
def _reports_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports of the run that this test belongs to stay where they are."""
    monkeypatch.setattr(lanes, "REPORTS", tmp_path / "reports")


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


def test_a_file_belongs_to_the_lane_that_names_most_of_its_path() -> None:
    assert lane_of(Path("compat/test_group_scale.py")) == "compat groups"
    assert lane_of(Path("compat/test_kcat.py")) == "compat"
    assert lane_of(Path("a_new_folder/test_new.py")) == "core"


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


def test_a_lane_that_a_signal_ends_fails() -> None:
    passed, _ = run_lanes(Lane("crash", [sys.executable, "-c", "import os; os.abort()"]))
    assert not passed
