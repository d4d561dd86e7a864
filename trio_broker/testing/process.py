"""A broker as a process of its own, for tests that kill it and benchmarks that weigh it.

Started through the command a user would type, with ports that it picks itself; ready when it says that it listens,
which it does after its first Metadata answer could be given.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import attrs

START_SECONDS = 60.0
"""A broker that has not said after a minute that it listens never will; loaded test machines are slow."""

STOP_SECONDS = 60.0
"""Longer than the grace for requests in flight and the last flush together."""

LISTENING = re.compile(r"^listening +(?P<listener>\w+)://(?P<address>\S+)$")
ADMIN = re.compile(r"^admin +(?P<url>\S+)$")


class BrokerDidNotStart(Exception):
    """The process ended, or stayed silent, before it listened. The message holds what it printed."""


@attrs.define
class BrokerProcess:
    """One ``trio-broker start``. Use it as a context manager, or call ``start`` and ``stop``."""

    data_directory: Path
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    arguments: Iterable[str] = ()
    bootstrap_servers: str = ""
    admin_url: str = ""
    output: list[str] = attrs.field(factory=list)
    _process: subprocess.Popen[str] | None = None
    _reader: threading.Thread | None = None
    _ready: threading.Event = attrs.field(factory=threading.Event)

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker was not started"
        return self._process

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    @property
    def pid(self) -> int:
        return self.process.pid

    def command(self) -> list[str]:
        """What is run. A restart asks for the port of before, so that clients find the broker again."""
        port = str(self.port) if self.bootstrap_servers else "0"
        settings = [argument for key, value in self.overrides.items() for argument in ("--override", f"{key}={value}")]
        return [
            *(sys.executable, "-m", "trio_broker", "start"),
            *("--data-dir", str(self.data_directory), "--port", port, "--admin-port", "0"),
            *settings,
            *self.arguments,
        ]

    def start(self) -> BrokerProcess:
        """Start the process and wait until it listens.

        Raises:
            BrokerDidNotStart: it ended first, or took longer than ``START_SECONDS``.
        """
        self._ready.clear()
        self.admin_url = ""
        self._process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            # Python buffers what goes to a pipe; the line that says that it listens would come at the end.
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self._reader = threading.Thread(target=self._read_output, name="broker output", daemon=True)
        self._reader.start()
        if not self._ready.wait(START_SECONDS) or not self.admin_url:
            self.kill()
            raise BrokerDidNotStart("\n".join(self.output))
        return self

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip("\n"))
            if found := LISTENING.match(self.output[-1]):
                self.bootstrap_servers = found["address"]
            elif found := ADMIN.match(self.output[-1]):
                self.admin_url = found["url"]
                self._ready.set()
        # The output ended, so the process did: ``start`` wakes at once, and sees by the missing URL that it failed.
        self._ready.set()

    def stop(self) -> int:
        """Ask it to stop as an operator would (SIGTERM), and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it with SIGKILL: nothing it holds in memory survives."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        assert self._reader is not None
        # The reader ends with the output, so that nothing printed at the end is lost, and only then is the pipe closed.
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        else:
            self._end(signal.SIGKILL)
