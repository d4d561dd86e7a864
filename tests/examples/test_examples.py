"""The programs of ``examples/``, run as a user runs them against a real broker, print what they promise.

``tests/spark/test_example_stream.py`` runs the one that needs Spark, in the session of the run.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waits import run_program
from trio_broker.testing import BrokerProcess

ROOT = Path(__file__).parents[2]
SECONDS = 120.0
"""Far longer than any of them takes."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    overrides = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("examples") / "data", overrides=overrides) as broker:
        yield broker


def run(*command: str) -> str:
    """What a program prints; it ends well."""
    completed = run_program(
        [sys.executable, *command],
        SECONDS,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_a_group_that_commits_goes_on_where_it_stopped(broker: BrokerProcess) -> None:
    example = ("examples/produce_and_consume.py", broker.bootstrap_servers)
    first, second = run(*example), run(*example)
    assert re.findall(r"at (\d+):", first) == ["0", "1", "2", "3", "4"]
    assert re.findall(r"at (\d+):", second) == ["5", "6", "7", "8", "9"]


def test_the_service_sums_up_the_orders_of_each_customer(broker: BrokerProcess) -> None:
    assert run("examples/order_service.py", broker.bootstrap_servers) == "ada: 35\nben: 20\ncleo: 99\n"


def test_the_fixture_gives_each_test_a_broker() -> None:
    assert "2 passed" in run("-m", "pytest", "-p", "no:cacheprovider", "examples/test_with_a_broker.py")


def test_a_setting_is_changed_refused_and_reset_over_http(broker: BrokerProcess) -> None:
    lines = run("examples/tune_over_http.py", broker.admin_url).splitlines()
    assert lines[0].startswith("8 I/O threads, ")
    assert lines[1] == "num.io.threads = 16 (DYNAMIC_BROKER_CONFIG)"
    assert lines[2].startswith("num.io.threads = 1000 is refused with 422: ")
    assert lines[3] == "num.io.threads = 8 (DEFAULT_CONFIG)"


def test_the_index_names_every_example() -> None:
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(re.findall(r"\]\((\w+\.py)\)", index))
