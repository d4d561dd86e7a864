"""A run says whether the machine was short of CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import pressure
from scripts.pressure import EXTENDED, IN_VAIN, CpuOfRun, Notes, read_notes, stalled_seconds


def test_what_linux_counts_is_read_in_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "PRESSURE_FILE", tmp_path / "cpu")
    (tmp_path / "cpu").write_text(
        "some avg10=97.14 avg60=85.59 avg300=34.95 total=11855503135\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )
    assert stalled_seconds() == 11855.503135


def test_elsewhere_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "PRESSURE_FILE", tmp_path / "cpu")
    assert stalled_seconds() is None
    run = CpuOfRun(600, 100, None, processors=2)
    assert not run.was_short
    assert str(run).startswith("Whether this machine was short of CPU is not known")


def test_a_run_that_waited_for_others_was_short_of_cpu() -> None:
    run = CpuOfRun(4200, 1020, 4116, processors=2)
    assert run.was_short
    assert str(run) == "This machine was short of CPU (PSI 98%; the checks had 12% of its processors)"


@pytest.mark.parametrize(
    ("cpu_seconds", "stalled"), [(950, 450), (100, 10)], ids=["its own lanes waited for each other", "it slept"]
)
def test_a_run_that_had_the_machine_to_itself_was_not(cpu_seconds: float, stalled: float) -> None:
    run = CpuOfRun(500, cpu_seconds, stalled, processors=2)
    assert not run.was_short
    assert "was not short of CPU" in str(run)


def test_notes_of_waits_are_counted(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "none") == Notes()
    (tmp_path / "notes").write_text(f"{EXTENDED}\n{EXTENDED}\n{IN_VAIN}\n")
    assert read_notes(tmp_path / "notes") == Notes(2, 1)
    assert str(Notes(2, 1) + Notes(1, 0)) == "3 waits were extended, 1 of them in vain"
