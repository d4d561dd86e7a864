"""A command imports what it needs: no event loop for a list of topics, no client for a broker."""

from __future__ import annotations

import sys

import pytest

from tests.waits import run_program

HEAVY = {"trio", "hypercorn", "starlette", "jinja2", "prometheus_client", "cattrs", "asyncio", "broker_admin"}

PROGRAM = """
import sys
from trio_broker.cli import main
try:
    main({arguments!r})
except SystemExit as end:
    assert (end.code or 0) == {exit_code}, end
print("imported:", *sorted(sys.modules))
"""


def imported_by(*arguments: str, exit_code: int = 0) -> set[str]:
    """The modules that a command imports, which ends with this code."""
    completed = run_program(
        [sys.executable, "-c", PROGRAM.format(arguments=list(arguments), exit_code=exit_code)],
        60,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(completed.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("groups", "describe"),
        ("transactions", "abort"),
        ("configs", "alter"),
        ("cluster", "info"),
        ("produce",),
        ("consume",),
        ("version",),
    ],
)
def test_a_command_for_any_kafka_imports_no_broker_and_no_event_loop(command: tuple[str, ...]):
    modules = imported_by(*command, "--help")
    assert modules & HEAVY == set()
    assert {name for name in modules if name.startswith(("trio_broker.broker", "trio_broker.config"))} == set()


@pytest.mark.parametrize("command", ["export", "etl"])
def test_a_pipeline_imports_neither_spark_nor_arrow_before_it_runs(command: str):
    modules = imported_by("pipeline", command, "--help")
    assert modules & (HEAVY | {"pyspark", "pyarrow", "numpy", "numba", "pyiceberg", "deltalake"}) == set()


def test_start_imports_no_client_and_of_the_wire_its_limits_alone():
    modules = imported_by("start", "--help")
    heavy = {name for name in modules if name.startswith(("trio_broker.client", "kafka_wire."))}
    assert heavy == {"kafka_wire.limits"}


def test_a_mistake_in_the_configuration_is_reported_before_the_broker_is_loaded():
    """Loading it is the longest part of a start."""
    modules = imported_by("start", "--override", "num.io.threads=many", exit_code=1)
    assert modules & (HEAVY | {"trio_broker.broker"}) == set()


def test_a_broker_loads_what_reads_certificates_where_it_has_some():
    program = "import sys, trio_broker.broker, broker_admin.app; print('cryptography' in sys.modules)"
    completed = run_program([sys.executable, "-c", program], 60, capture_output=True, text=True, check=True)
    assert completed.stdout == "False\n"


def test_every_command_is_listed_by_the_help():
    completed = run_program(
        [sys.executable, "-m", "trio_broker", "--help"], 60, capture_output=True, text=True, check=True
    )
    for name in (
        "start",
        "produce",
        "consume",
        "topics",
        "groups",
        "configs",
        "cluster",
        "dump-log",
        "export-kafka",
        "import-kafka",
        "pipeline",
        "version",
    ):
        assert f"\n  {name} " in completed.stdout
