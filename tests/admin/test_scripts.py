"""The pages' own scripts: their types hold, no module is long, and none brings markup or code out of text.

The types are JSDoc's, checked by TypeScript, a package of npm: ``npm install`` in ``tests/compat/node``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker_admin.pages import UI_DIRECTORY
from tests.oracles import node_package
from tests.waits import run_program

SCRIPTS = sorted((UI_DIRECTORY / "static").glob("*.js"))

MAX_LINES = 250
"""Of one module; a longer one is two."""

MAX_ALL_LINES = 4000
"""Of all of them: beyond that a build step and a library would be worth their price (docs/decisions/0014)."""

OPTIONS = (
    *("--noEmit", "--allowJs", "--checkJs", "--strict", "--moduleResolution", "bundler"),
    *("--target", "es2022", "--module", "es2022", "--lib", "es2023,dom,dom.iterable"),
)


def test_the_types_of_all_scripts_hold() -> None:
    command = ["node", str(node_package("typescript") / "bin" / "tsc"), *OPTIONS, *map(str, SCRIPTS)]
    checked = run_program(command, 120, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_script_says_what_it_is_and_is_checked_and_short(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.startswith("// @ts-check\n/**")
    assert len(text.splitlines()) <= MAX_LINES
    assert not re.search(r"\beval\(|new Function\(|document\.write|outerHTML =|insertAdjacentHTML", text)
    assert not re.search(r"\w://", text.replace("http://www.w3.org/2000/svg", ""))


def test_all_scripts_together_stay_small() -> None:
    assert sum(len(script.read_text(encoding="utf-8").splitlines()) for script in SCRIPTS) <= MAX_ALL_LINES
