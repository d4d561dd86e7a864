"""A broker as a process of its own, for tests that kill it and benchmarks that measure its memory.

The process runs ``trio-broker start`` with ports that the system picks. It is ready when it has printed the addresses
on which it listens, because it then answers requests.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType

import attrs

START_SECONDS = 60.0
"""A start takes less than a second. A minute leaves room for a loaded test machine; after it the start has failed."""

STOP_SECONDS = 60.0
"""Longer than ``shutdown.grace.ms``, the time for requests under way, and the last flush together."""

launch: Callable[..., subprocess.Popen[str]] = subprocess.Popen
"""Starts the process, as ``subprocess.Popen`` does."""

LISTENING = re.compile(r"^listening +(?P<listener>\w+)://(?P<address>\S+)$")
ADMIN = re.compile(r"^admin +(?P<url>\S+)$")


class BrokerDidNotStart(Exception):
    """The process ended before it listened, or did not listen in time. The message has the output of the process."""


@attrs.define
class BrokerProcess:
    """One ``trio-broker start``. Use it as a context manager, or call ``start`` and ``stop``.

    ``has_admin`` is whether it has the admin page, whose modules are a third of a start. Without it, ``admin_url`` is
    "off".
    """

    data_directory: Path
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    arguments: Iterable[str] = ()
    bootstrap_servers: str = ""
    admin_url: str = ""
    output: list[str] = attrs.field(factory=list)
    has_admin: bool = True
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

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        """The command line. A restart asks for the port of the last start, so that clients reconnect; ``listeners``
        among ``overrides`` have ports of their own."""
        port = str(self.port) if self.bootstrap_servers else "0"
        ports = () if "listeners" in self.overrides else ("--port", port)
        admin = ("--admin-port", "0") if self.has_admin else ("--override", "admin.listener=")
        settings = [argument for key, value in self.overrides.items() for argument in ("--override", f"{key}={value}")]
        return [
            *(sys.executable, "-m", "trio_broker", "start"),
            *("--data-dir", str(self.data_directory), *ports, *admin),
            *settings,
            *self.arguments,
        ]

    def start(self) -> BrokerProcess:
        """Start the process and wait until it listens.

        Raises:
            BrokerDidNotStart: the process ended first, or took longer than ``START_SECONDS``.
        """
        self._ready.clear()
        self.admin_url = ""
        self._process = launch(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            # Python buffers output to a pipe, so the line with the address would arrive only when the process ends.
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
        # The output has ended, so the process has too. ``start`` wakes up, and the missing URL tells it of the failure.
        self._ready.set()

    def stop(self) -> int:
        """Stop the process as an operator would, with SIGTERM, and return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End the process with SIGKILL, so that all data in its memory is lost; return its exit code."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        if self.is_running:
            self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS)
        assert self._reader is not None
        # The reader ends at the end of the output. The pipe is closed after it, or the last lines would be lost.
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.is_running:
            self.stop()
        else:
            self._end(signal.SIGKILL)
