"""Counts the claims of the tests: their test functions, by folder, so that a change to the tests can be compared.

``python scripts/claims.py`` prints a table, ``python scripts/claims.py --names`` one line for each claim. A function
that loops over versions is one claim, as is one that is parametrized: how many cases pytest makes of it is no matter.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"


def claims(tests: Path = TESTS) -> Iterator[tuple[str, str]]:
    """Yield the folder and the name of each test function, those that hold in nested functions and classes included."""
    for path in sorted(tests.rglob("test_*.py")):
        folder = path.relative_to(tests).parent.as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield folder, node.name


def main() -> None:
    found = sorted(claims())
    if "--names" in sys.argv[1:]:
        print(*(f"{folder}::{name}" for folder, name in found), sep="\n")
        return
    for folder, count in sorted(Counter(folder for folder, _ in found).items()):
        print(f"{count:6} {folder}")
    print(f"{len(found):6} in all")


if __name__ == "__main__":
    main()
