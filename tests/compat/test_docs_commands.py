"""The examples of docs/commands.md and docs/transactions.md, run one after the other against a new broker, print what
the pages show.

``…`` on the page stands for one word, or at the end of a line for its rest. Widths of columns follow their content, so
only words are compared. What the examples do with kcat is done with confluent-kafka here, which is librdkafka as well.
The first command is a process of its own; the others run in the process of the tests, because a start takes far longer
than they.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer

from tests.waits import run_program, within
from trio_broker.cli import main
from trio_broker.testing.process import BrokerProcess

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "commands.md", DOCS / "transactions.md")
ELSEWHERE = (DOCS / "cluster.md", DOCS / "security.md", DOCS / "access.md", DOCS / "tokens.md")
"""Have what needs several brokers, a login, or an authorizer; other tests run it."""
SECONDS = 60

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSUME = re.compile(r"kcat .*-G (\w+) (\w+)")


@attrs.frozen
class Example:
    """One line that somebody types, and what it prints."""

    command: str
    printed: list[str]


def examples() -> list[Example]:
    return examples_in("\n".join(page.read_text(encoding="utf-8") for page in PAGES))


def examples_in(text: str) -> list[Example]:
    """What the blocks of a text show."""
    found: list[Example] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Example(line.removeprefix("$ "), []))
            else:
                found[-1].printed.append(line)
    return found


@attrs.define
class Shell:
    """Runs the examples against one broker."""

    bootstrap_servers: str
    consumer: Consumer | None = None
    has_started: bool = False
    """Whether a command has been a process."""

    def run(self, command: str) -> list[str]:
        """What a command prints, on both outputs."""
        if found := CONSUME.fullmatch(command):
            return self.consume(found[1], found[2])
        if command == "kill kcat":
            return self.leave()
        piped = b""
        *sources, last = command.split(" | ")
        for source in sources:
            piped = self.process(source, piped, stderr=subprocess.PIPE).stdout
        completed = self.process(last, piped, stderr=subprocess.STDOUT)
        printed = completed.stdout.decode()
        failed = "trio-broker: " in printed or "Error: " in printed
        assert (completed.returncode != 0) == failed, completed
        return printed.splitlines()

    def process(self, command: str, piped: bytes, stderr: int) -> subprocess.CompletedProcess[bytes]:
        """Run one program of a line."""
        words = shlex.split(command)
        assert words[0] in ("trio-broker", "seq", "printf"), command
        if words[0] == "trio-broker":
            server = [] if "--bootstrap-server" in words else ["--bootstrap-server", self.bootstrap_servers]
            if self.has_started:
                result = CliRunner().invoke(main, [*words[1:], *server], input=piped)
                out = result.stdout_bytes if stderr == subprocess.PIPE else result.output_bytes
                return subprocess.CompletedProcess(words, result.exit_code, out)
            self.has_started = True
            words = [sys.executable, "-m", "trio_broker", *words[1:], *server]
        return run_program(words, SECONDS, input=piped, stdout=subprocess.PIPE, stderr=stderr)

    def consume(self, group: str, topic: str) -> list[str]:
        settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self.consumer = Consumer({"bootstrap.servers": self.bootstrap_servers, **settings})
        self.consumer.subscribe([topic])
        for _ in range(14):
            assert within(self.consumer.poll, SECONDS) is not None, f"nothing came in {SECONDS} s"
        self.consumer.commit(asynchronous=False)
        return []

    def leave(self) -> list[str]:
        if self.consumer is not None:
            self.consumer.close()
            self.consumer = None
        return []


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    overrides = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", overrides=overrides, has_admin=False) as broker:
        shell = Shell(broker.bootstrap_servers)
        yield shell
        shell.leave()


def agrees(printed: str, shown: str) -> bool:
    """Whether a line is as the page shows it, width of columns aside."""
    pattern = r"\s+".join(re.escape(word).replace("…", r"\S+") for word in shown.split())
    if pattern.endswith(r"\S+"):
        pattern = pattern.removesuffix(r"\S+") + ".+"
    return re.fullmatch(pattern, printed.strip()) is not None


def test_the_pages_show_what_the_commands_print(shell: Shell) -> None:
    for example in examples():
        printed = shell.run(example.command)
        output = f"$ {example.command}\n" + "\n".join(printed)
        assert len(printed) == len(example.printed), output
        for line, shown in zip(printed, example.printed, strict=True):
            assert agrees(line, shown), f"{output}\nthe page shows: {shown}"


def test_the_pages_show_every_command() -> None:
    shown = {" ".join(each.split()[1:3]) for example in examples() for each in example.command.split(" | ")}
    assert {"produce greetings", "consume greetings"} <= shown
    lists = re.findall(r"^trio-broker (\w+) +([a-z].+)$", PAGES[0].read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lists) == 9
    named = {f"{group} {name}" for group, names in lists for name in names.split(" | ")}
    others = "".join(page.read_text(encoding="utf-8") for page in ELSEWHERE)
    elsewhere = {each for each in named if f"trio-broker {each}" in others}
    assert named - shown - elsewhere == {"configs describe"}
