"""The broker that is measured: a process of its own with a data directory that goes away with it.

The directory must lie on a real disk, or syncing and cold reads would mean nothing; ``--directory`` says where.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import attrs

from trio_broker.testing.process import BrokerProcess

QUIET = ("--log-level", "WARNING")
"""A line for every connection would be measured too."""


LAST_WORDS_LINES = 30
"""Of the broker's output, shown with whatever went wrong: a traceback and what came before it."""


class Peer(Protocol):
    """A broker that runs as a process, ours or Kafka's."""

    @property
    def pid(self) -> int: ...

    @property
    def port(self) -> int: ...

    @property
    def data_directory(self) -> Path: ...


@attrs.define
class SlowDiskBroker(BrokerProcess):
    """A broker whose every sync and cold read takes ``delay_ms`` longer (``bench.slow_disk``)."""

    delay_ms: float = 0.0

    def command(self) -> list[str]:
        # attrs makes a new class for slots, so super() without arguments would look in the one that is gone.
        _, _, _, *arguments = BrokerProcess.command(self)
        return [sys.executable, "-m", "bench.slow_disk", str(self.delay_ms), *arguments]


@attrs.define
class StepTimedBroker(BrokerProcess):
    """A broker whose slow steps are written to ``steps`` (``bench.step_times``)."""

    steps: Path = Path()

    def command(self) -> list[str]:
        _, _, _, *arguments = BrokerProcess.command(self)
        return [sys.executable, "-m", "bench.step_times", str(self.steps), *arguments]


IN_MEMORY = Path("/dev/shm")
"""Where thousands of logs are made if it exists: they take minutes on a slow disk."""


def memory_or(directory: Path) -> Path:
    """Where to make logs that are not read: in memory, or else in ``directory``."""
    return IN_MEMORY if IN_MEMORY.is_dir() else directory


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """A new directory under ``parent``, removed in the end."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def broker(
    parent: Path, overrides: Mapping[str, str] | None = None, *, delay_ms: float = 0.0
) -> Iterator[BrokerProcess]:
    """A broker that runs in a new directory under ``parent``."""
    with scratch(parent) as directory:
        settings = overrides or {}
        process = (
            SlowDiskBroker(directory, settings, QUIET, delay_ms=delay_ms)
            if delay_ms
            else BrokerProcess(directory, settings, QUIET)
        )
        try:
            with process:
                yield process
        except Exception as error:
            error.add_note("The broker's last words:\n" + "\n".join(process.output[-LAST_WORDS_LINES:]))
            raise


def partition_directory(process: BrokerProcess, topic: str, partition: int) -> Path:
    return process.data_directory / f"{topic}-{partition}"


def change_config(process: BrokerProcess, key: str, value: str) -> None:
    """Change a config of the running broker over its admin HTTP. Raises HTTPError when it refuses."""
    request = urllib.request.Request(
        f"{process.admin_url.rstrip('/')}/api/v1/config",
        data=json.dumps({key: value}).encode(),
        method="PATCH",
        headers={"Content-Type": "application/json", "X-Requested-With": "bench"},
    )
    with urllib.request.urlopen(request, timeout=30):
        pass


def admin(process: BrokerProcess, path: str) -> Any:
    """Ask the admin HTTP for JSON."""
    with urllib.request.urlopen(f"{process.admin_url.rstrip('/')}{path}", timeout=30) as response:
        return json.load(response)
