"""Schemathesis, which was not written here, asks every address of a real broker's API what ``openapi.json`` allows and
what it forbids, and holds the answers to the description: by default those of topics and settings, and all by night.

It runs as a program against the port of the app, with the same requests in every run: the bounds of each parameter and
body, each method, and a few made at random. That what is refused changes nothing is what ``test_api_conformance``
adds.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from subprocess import STDOUT

import pytest
import trio

from broker_admin.app import create_app
from tests.admin.live_admin import CHANGE_HEADERS, LiveAdmin, served
from tests.oracles import absent

ENDLESS = "/(events|tail)$"
"""Streams of events, which have tests of their own."""

CONFIG = """
[parameters]
"path.broker_id" = 1

[checks.positive_data_acceptance]
# 400 and 422 too: whether a topic's name, a key's value or an address is right, only the broker can say.
expected-statuses = ["2xx", 400, 403, 404, 409, 422, 503]

[checks.negative_data_rejection]
# 413 and 431: what is too large is refused before it is read.
expected-statuses = [400, 403, 404, 405, 409, 413, 415, 422, 431, 503]
"""

OPTIONS = (
    *("--phases", "coverage,fuzzing"),
    *("--max-examples", "1"),
    *("--exclude-path-regex", ENDLESS),
    *("--warnings", "off"),
    *("--request-timeout", "60"),
    "--generation-deterministic",
    "--no-shrink",
    "--continue-on-failure",
    "--no-color",
)

A_SLICE = (
    "--include-path-regex",
    r"^/api/v1/topics(/\{topic\}(/(config|records|partitions/\{partition\}:abort-transaction))?)?$",
)
"""An eighth of the operations: every method, and each kind of parameter and body."""


@pytest.fixture
def schemathesis() -> str:
    """The program, which stands beside this interpreter."""
    found = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    return found or absent("schemathesis", "schemathesis is not installed")


@pytest.mark.parametrize(
    "chosen", [pytest.param(A_SLICE, id="a slice"), pytest.param((), id="all", marks=pytest.mark.soak)]
)
async def test_every_address_keeps_to_its_description(
    live: LiveAdmin, tmp_path: Path, schemathesis: str, chosen: tuple[str, ...]
) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    headers = [word for name, value in CHANGE_HEADERS.items() for word in ("--header", f"{name}: {value}")]
    async with served(create_app(live.view)) as url:
        address = f"{url}/api/v1/openapi.json"
        command = [schemathesis, "--config-file", str(config), "run", address, *headers, *OPTIONS, *chosen]
        result = await trio.run_process(command, capture_stdout=True, stderr=STDOUT, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stdout.decode()
