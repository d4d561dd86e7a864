"""The fragments of ``newsfragments/`` become an entry of the changelog."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import trio_broker

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def towncrier(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "towncrier", *arguments]
    completed = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_the_fragments_that_lie_here_can_be_rendered():
    assert f"## {trio_broker.__version__} (" in towncrier(
        ROOT, "build", "--draft", "--version", trio_broker.__version__
    )


def test_a_release_writes_its_fragments_above_the_releases_before_it(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    fragments = tmp_path / "newsfragments"
    fragments.mkdir()
    (fragments / "README.md").write_text("# News fragments\n")
    (fragments / "clock.added.md").write_text("The broker tells the time.\n")
    (fragments / "noise.removed.md").write_text("It no longer strikes the hour.\n")
    towncrier(tmp_path, "build", "--yes", "--version", "9.9.0", "--date", "2027-01-01")
    written = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    intro, marker, releases = CHANGELOG.partition("<!-- releases -->\n")
    assert written.startswith(intro + marker)
    assert written.endswith(releases)
    entry = written.removeprefix(intro + marker).removesuffix(releases)
    assert re.sub(r"\n+", "\n", entry.strip()).splitlines() == [
        "## 9.9.0 (2027-01-01)",
        "### Added",
        "- The broker tells the time.",
        "### Removed",
        "- It no longer strikes the hour.",
    ]


def test_the_version_has_an_entry_or_will_get_one():
    """A version without an entry is one that is being prepared: its fragments lie in the folder."""
    is_released = f"\n## {trio_broker.__version__}" in CHANGELOG
    assert is_released or list((ROOT / "newsfragments").glob("*.*.md"))
