"""PySpark finds the formats by the names of top-level modules, and imports all of those unguarded."""

from __future__ import annotations

import json
import sys
from pkgutil import iter_modules

from tests.waits import run_program

HEAVY = ("trio", "asyncio", "numpy", "numba", "pyarrow", "cramjam", "pandas")

LOOK_UP = """
import json, sys
from importlib import import_module
import pyspark.sql.datasource
before = set(sys.modules)
found = {name: import_module(name).DefaultSource.name() for name in sys.argv[1:]}
print(json.dumps({"formats": found, "modules": sorted(set(sys.modules) - before)}))
"""


def test_our_modules_are_found_at_the_top_level() -> None:
    assert "pyspark_trio_broker" in {module.name for module in iter_modules()}


def test_the_look_up_costs_no_heavy_import() -> None:
    names = sorted(module.name for module in iter_modules() if module.name.startswith("pyspark_trio_broker"))
    answer = run_program([sys.executable, "-c", LOOK_UP, *names], 60, capture_output=True, text=True, check=True)
    reported = json.loads(answer.stdout)
    assert reported["formats"]["pyspark_trio_broker"] == "trio_broker"
    assert {module.partition(".")[0] for module in reported["modules"]}.isdisjoint(HEAVY)
