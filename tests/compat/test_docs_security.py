"""The walk of docs/security.md, "From nothing to safe": the commands that stand there, with the clients named there.

Only ports differ: the system chooses them, by the variables of the options.
"""

from __future__ import annotations

import re
import shlex
import shutil
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx
import pytest
from click.testing import CliRunner

from tests.compat.test_docs_commands import DOCS, agrees, examples_in
from tests.oracles import absent
from tests.waits import run_program
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

PAGE = DOCS / "security.md"
BLOCK = re.compile(r"^```(console|python|sh)\n.*?^```$", re.MULTILINE | re.DOTALL)
SECONDS = 60


@attrs.define
class StartAsWritten(BrokerProcess):
    """``trio-broker start`` by the words of the page."""

    words: tuple[str, ...] = ()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "trio_broker", *self.words[1:]]


@attrs.define
class Walk:
    """Goes by the blocks of the section, one after the other, in the directory where the broker was started."""

    broker: BrokerProcess
    password: str = ""

    @property
    def servers(self) -> str:
        return f"localhost:{self.broker.port}"

    def go(self, kind: str, block: str) -> None:
        text = block.partition("\n")[2].removesuffix("```")
        written = text.replace("localhost:9092", self.servers).replace("PASSWORD", self.password)
        match kind:
            case "console":
                self.type(block)
            case "python":
                run_program([sys.executable, "-c", written], SECONDS, check=True)
            case _:
                read = run_program(shlex.split(written), SECONDS, capture_output=True, text=True)
                assert read.stdout == "hello\n", (read.stderr, self.broker.output)

    def type(self, block: str) -> None:
        for example in examples_in(block):
            words = shlex.split(example.command)
            if words[0] == "export" or words[1] == "start":
                continue
            result = CliRunner(env={"TRIO_BROKER_BOOTSTRAP_SERVER": self.servers}).invoke(main, words[1:])
            printed = result.output.splitlines()
            assert result.exit_code == 0, result.output
            assert len(printed) == len(example.printed), result.output
            for line, shown in zip(printed, example.printed, strict=True):
                assert agrees(line, shown), f"{line}\nthe page shows: {shown}"
                if line.startswith("password: "):
                    self.password = line.removeprefix("password: ")


def admin_page(broker: BrokerProcess) -> str:
    """The overview of a broker without records, by HTTPS, with the token of its file."""
    secure = broker.data_directory.with_name("trio-broker-data-secure")
    assert broker.admin_url.startswith("https://")
    token = (secure / "admin-tokens").read_text().split()[1]
    trusting = ssl.create_default_context(cafile=secure / "ca.pem")
    return httpx.get(broker.admin_url, headers={"Authorization": f"Bearer {token}"}, verify=trusting).text


def section() -> str:
    return PAGE.read_text(encoding="utf-8").partition("## From nothing to safe\n")[2].partition("\n## ")[0]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    if shutil.which("kcat") is None:
        absent("kcat", "there is no kcat")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIO_BROKER_PORT", "0")
    monkeypatch.setenv("TRIO_BROKER_ADMIN_PORT", "0")
    start = examples_in(section())[0].command
    with StartAsWritten(tmp_path / "trio-broker-data", words=tuple(shlex.split(start))) as broker:
        yield broker


def test_the_section_leads_from_nothing_to_clients_that_may_what_they_need(broker: BrokerProcess) -> None:
    page = admin_page(broker)
    for client in ("confluent-kafka", "kafkajs", "kcat", "Kafka&#39;s own tools", "trio-broker users create USER"):
        assert client in page, page
    assert page.count(str(Path.cwd() / "trio-broker-data-secure" / "ca.pem")) >= 4
    walk = Walk(broker)
    for found in BLOCK.finditer(section()):
        walk.go(found[1], found[0])
