"""Commands of clients, run in the process of the tests."""

from __future__ import annotations

import json
from typing import Any

import attrs
from click.testing import CliRunner, Result

from trio_broker.cli import main


@attrs.frozen
class CommandLine:
    """The command, which asks one cluster."""

    bootstrap_servers: str

    def run(self, *arguments: str, given: str | None = None) -> Result:
        return CliRunner().invoke(main, [*arguments, "--bootstrap-server", self.bootstrap_servers], input=given)

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        """What a command that must succeed prints, which finds ``given`` on its standard input."""
        completed = self.run(*arguments, given=given)
        assert completed.exit_code == 0, completed.output
        return completed.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def refusal(self, *arguments: str) -> str:
        """The one line that a command which must fail ends with."""
        completed = self.run(*arguments)
        assert completed.exit_code == 1, completed.output
        [line] = [line for line in completed.stderr.splitlines() if line.startswith("trio-broker: ")]
        return line.removeprefix("trio-broker: ")

    def offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What a group has committed."""
        return {
            (each["topic"], each["partition"]): each["committed_offset"] for each in self.json("groups", "lag", group)
        }
