"""Every line of the README that is meant to be pasted works: the quick start, the test, the tuning, the Spark job.

The lines run in the README's order against a broker of their own. Its addresses stand in for the default ones; what
installs packages or changes the shell is not run again, since the tests run in such an environment already. That of the
Spark job runs here by night, and by default in the session of the tests (``tests/spark/test_readme_export.py``).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.session_fixture import java_options
from tests.waits import run_program
from trio_broker.testing import BrokerProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SECONDS = 300.0
SOONER_THAN_A_SESSION_SECONDS = 40.0
"""A second consumer that waits for the session of the first to end would take 45 s."""

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALLED_HERE = {". .venv/bin/activate", "pip install kafka-python", "python", "pip install -e '.[spark]'"}


def blocks(section: str, language: str) -> list[str]:
    """The blocks of one language in the section with that heading."""
    text = re.split(r"^##+ ", README.partition(f"# {section}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [block["text"] for block in BLOCK.finditer(text) if block["language"] == language]


def commands(text: str) -> list[str]:
    """The lines of a block, those that a backslash joins as one."""
    return text.replace("\\\n", " ").splitlines()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # An empty group would wait three seconds for more members; nothing here depends on that.
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("readme") / "data", overrides=overrides) as broker:
        yield broker


def at(broker: BrokerProcess, text: str) -> str:
    """``text`` with the addresses of ``broker`` in place of the default ones."""
    text = text.replace("127.0.0.1:9092", broker.bootstrap_servers)
    return text.replace("http://127.0.0.1:9644/", broker.admin_url)


def paste_into_python(text: str, seconds: float = SECONDS) -> str:
    """What an interactive interpreter prints for ``text``."""
    completed = run_program(
        [sys.executable, "-W", "ignore", "-i", "-q"], seconds, input=text, capture_output=True, text=True
    )
    assert "Error" not in completed.stderr, completed.stderr
    assert completed.returncode == 0
    return completed.stdout


def run_trio_broker(broker: BrokerProcess, line: str, directory: Path, **environment: str) -> str:
    """What a command prints; ``echo … |`` before it is its input."""
    echo, _, command = line.rpartition("|")
    words = shlex.split(command)
    assert words[0] == "trio-broker", line
    completed = run_program(
        [sys.executable, "-m", "trio_broker", *words[1:], "--bootstrap-server", broker.bootstrap_servers],
        SECONDS,
        cwd=directory,
        env={**os.environ, **environment},
        input=echo.removeprefix("echo ").strip(" '") + "\n" if echo else "",
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def lag(table: str) -> str:
    """The column LAG of the first row of a table."""
    names, row, *_ = (line.split() for line in table.replace("LOG END", "END").splitlines())
    return dict(zip(names, row, strict=False))["LAG"]


def test_the_quick_start_prints_what_was_sent_and_leaves_a_committed_offset(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    (pasted,) = blocks("Quick start", "python")
    for _ in range(2):
        printed = paste_into_python(at(broker, pasted), SOONER_THAN_A_SESSION_SECONDS)
        assert re.findall(r"b'hello \d'", printed) == [f"b'hello {number}'" for number in range(5)]
    shell, looked = (commands(block) for block in blocks("Quick start", "sh"))
    assert set(shell) <= INSTALLED_HERE
    read, _, to_read, described, _, consumed = (run_trio_broker(broker, line, tmp_path) for line in looked)
    assert lag(read) == "0"
    assert lag(to_read) == "10"
    assert "topic: greetings" in described
    assert consumed == "hello from a shell\n"


def test_the_test_with_a_broker_passes(tmp_path: Path) -> None:
    (example,) = blocks("In a test", "python")
    (tmp_path / "test_orders.py").write_text(example, encoding="utf-8")
    completed = run_program(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "test_orders.py"],
        SECONDS,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in completed.stdout, completed.stdout + completed.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_change_with_curl_is_made(broker: BrokerProcess) -> None:
    (line,) = commands(*blocks("Seen and tuned while it runs", "sh"))
    completed = run_program(
        ["curl", "-sS", "--fail", *shlex.split(at(broker, line))[1:]],
        SECONDS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"value":"12"' in completed.stdout


@pytest.mark.soak
@pytest.mark.spark
def test_the_export_writes_a_table_in_a_process_of_its_own(broker: BrokerProcess, tmp_path: Path) -> None:
    paste_into_python(at(broker, *blocks("Quick start", "python")))
    install, export = commands(*blocks("With Spark", "sh"))
    assert install in INSTALLED_HERE
    run_trio_broker(broker, export, tmp_path, JDK_JAVA_OPTIONS=java_options())
    assert list((tmp_path / "greetings-table").rglob("*.parquet"))


def test_what_is_installed_by_hand_is_what_the_tests_run_with() -> None:
    assert any(requirement.startswith("kafka-python") for requirement in PROJECT["optional-dependencies"]["test"])


def test_ci_finds_the_command_that_checks_everything() -> None:
    lines = README.splitlines()
    assert "    python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && scripts/check" in lines
    assert "    python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/trio-broker start" in lines


def test_versions_of_python_and_licence_are_those_of_the_package() -> None:
    classifiers = " ".join(PROJECT["classifiers"])
    assert re.findall(r"Python :: (3\.\d+)", classifiers) == re.findall(
        r"3\.\d+", README.partition("with Python ")[2].partition(".\n")[0].partition("**")[0]
    )
    assert f"SPDX: `{PROJECT['license']}`" in README


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []
