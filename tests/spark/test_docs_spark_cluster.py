"""The commands and programs of docs/spark-cluster.md, run as they stand there.

Two things are done otherwise: nothing is installed, so that the environments of the page are directories whose Python
starts that of the tests, packed by tar; and ports are free ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.spark.pipelines.table_rows import read_table
from tests.spark.session_fixture import java_options
from tests.spark.topic_records import fill, numbers
from tests.waits import within
from trio_broker.cluster.etcd.server import free_port
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark-cluster.md").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
SECONDS = 1200
"""For a dozen JVMs to start, one after the other, on a machine that does other things as well."""

COUNT = 500
PORTS = ("7077", "8080", "15002")
INSTALLED_HERE = re.compile(r"^(python3 -m venv|\S+/pip install) .*\n", re.MULTILINE)
PROGRAM = re.compile(r"`(?P<name>\w+\.py)`(?:(?!`\w+\.py`).)*?^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TESTED = re.compile(r"\[`(?P<name>test_\w+)`\]\(\.\./(?P<path>[\w/]+\.py)\)")

[EXPORT_BY_COMMAND] = re.findall(r"`(trio-broker pipeline export [^`]*)`", PAGE)
CONNECT_JOBS = f"""
python3 count_by_connect.py
python3 export_by_connect.py
{" ".join(EXPORT_BY_COMMAND.split())}
$SPARK_HOME/sbin/stop-connect-server.sh
"""


def programs() -> dict[str, str]:
    """The Python programs of the page, by their names."""
    return {match["name"]: match["text"] for match in PROGRAM.finditer(PAGE)}


def commands() -> str:
    """The commands of the page, one block after the other."""
    return "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def make_environment(directory: Path) -> None:
    """A directory with the Python of the tests where a virtual environment has its own."""
    python = directory / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)


def make_wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        for source, package in ((ROOT, "trio_broker"), (ROOT / "protocol", "kafka_wire")):
            for module in (source / package).rglob("*.py"):
                wheel.write(module, module.relative_to(source))


def test_every_program_of_the_page_is_named() -> None:
    assert set(programs()) == {"count.py", "count_registered.py", "count_by_connect.py", "export_by_connect.py"}
    assert len(programs()) == PAGE.count("```python\n")


def test_the_page_names_extras_that_there_are() -> None:
    named = set(re.findall(r"trio-broker\[([\w-]+)\]", PAGE))
    assert named == {"spark-provided", "spark-connect"}
    assert named | {"spark"} <= set(EXTRAS)


def test_the_development_extra_uses_that_of_spark_connect_and_repeats_none_of_its_packages() -> None:
    [own] = [each for each in EXTRAS["dev"] if each.startswith("trio-broker[")]
    assert "spark-connect" in own
    assert not any(re.match(r"pyspark|pandas|grpc", each) for each in EXTRAS["dev"])


def test_packages_that_are_installed_by_hand_are_those_of_the_project() -> None:
    [by_hand] = re.findall(r"`pip install (attrs [^`]*)`", PAGE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[ ;\[]", each)[0] for each in (*project["dependencies"], *EXTRAS["spark-provided"])}
    assert set(by_hand.split()) <= declared
    assert {re.split(r"[ ;\[]", each)[0] for each in EXTRAS["spark-provided"]} <= set(by_hand.split())


def test_every_test_that_the_page_names_is_there() -> None:
    named = [(match["name"], ROOT / match["path"]) for match in TESTED.finditer(PAGE)]
    assert len(named) == PAGE.count("[`test_") > 0
    assert [name for name, path in named if f"def {name}(" not in path.read_text(encoding="utf-8")] == []


@pytest.mark.spark
@pytest.mark.soak
def test_the_commands_of_the_page_do_what_it_says(kafka_broker_session: BrokerThread, tmp_path: Path) -> None:
    kafka_broker_session.create_topic("orders")
    fill(kafka_broker_session, "orders", numbers(0, COUNT))
    ports = {port: str(free_port()) for port in PORTS}
    settings = {"spark.connect.grpc.binding.port": ports["15002"], "spark.ui.enabled": "false"}

    def here(text: str) -> str:
        text = text.replace("127.0.0.1:9092", kafka_broker_session.bootstrap_servers)
        text = text.replace("/opt/", f"{tmp_path}/")
        return re.sub(rf"\b({'|'.join(PORTS)})\b", lambda found: ports[found[0]], text)

    for name, text in programs().items():
        (tmp_path / name).write_text(here(text))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in settings.items())
    )
    for environment in ("environment", "libraries"):
        make_environment(tmp_path / environment)
    packer = tmp_path / "environment" / "bin" / "venv-pack"
    packer.write_text("#!/bin/sh\nexec tar -czf environment.tar.gz -C environment .\n")
    packer.chmod(0o755)
    make_wheel(tmp_path / "trio_broker-0-py3-none-any.whl")
    script = "set -e\n" + here(INSTALLED_HERE.sub("", commands()) + CONNECT_JOBS)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JDK_JAVA_OPTIONS": java_options(),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOG_DIR": str(tmp_path / "logs"),
        "SPARK_PID_DIR": str(tmp_path / "pids"),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
    }
    with (tmp_path / "printed").open("w") as printed, (tmp_path / "errors").open("w") as errors:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=variables,
            stdout=printed,
            stderr=errors,
            start_new_session=True,
        )
    try:
        status = within(shell.wait, SECONDS)
    finally:
        # The master and the workers, which the page starts in the background.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)

    assert status == 0, (tmp_path / "errors").read_text()[-5000:]
    lines = (tmp_path / "printed").read_text().splitlines()
    assert [line for line in lines if line.startswith("records:")] == [f"records: {COUNT}"] * 4
    assert f"exported: {{'rows': {COUNT}}}" in lines
    for name in ("orders-table", "orders-by-command"):
        table = read_table(Target(Format.PARQUET, str(tmp_path / name)))
        assert sorted(map(int, table["value"].to_pylist())) == list(range(COUNT))
