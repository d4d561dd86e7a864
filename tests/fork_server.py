"""Brokers and commands of the tests as forks of one process that has imported what a broker needs.

Imports are three quarters of the CPU of a start, and a run of the tests starts more than a hundred brokers and as many
other commands: ``run_command`` is for those. ``launch`` takes the place of ``subprocess.Popen`` in ``BrokerProcess``:
it asks the fork server, a process with one thread, which forks; the child runs ``trio-broker`` with the given
arguments, environment, working directory and output. It is a process like any other, with a pid of its own; it ends as
the interpreter does, or by the signal that kills it.

A broker by another command than the plain one (another Python, a shell before it) is started by ``subprocess``, as all
are where the system has no pidfd. ``tests/compat/test_command_line.py`` starts the command itself, imports and all.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

import attrs

from tests.waits import run_program, within
from trio_broker.cli import main as run
from trio_broker.handlers.support.registry import served_apis

PLAIN_COMMAND = [sys.executable, "-m", "trio_broker", "start"]

REQUEST_BYTES = 1 << 17
"""The largest request, arguments and environment as JSON. Linux sends that through a socket as one message."""

STATUS = struct.Struct("=i")
"""What the pipe of a child's status carries: its pid, and when it has ended, its exit code as ``subprocess`` has it."""


def launch(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """``subprocess.Popen(command, **options)`` for ``BrokerProcess``, whose options differ in ``env`` alone."""
    if list(command[: len(PLAIN_COMMAND)]) != PLAIN_COMMAND or not has_pidfd():
        return subprocess.Popen(command, **options)
    # It has what BrokerProcess and its tests use of a Popen.
    return cast("subprocess.Popen[str]", forked(command[3:], options["env"]))


@cache
def has_pidfd() -> bool:
    """Whether a process can be waited for by a descriptor; a container may refuse what its kernel has."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


@attrs.define
class ForkedProcess:
    """A child of the fork server, to be used as a ``subprocess.Popen`` is."""

    pid: int
    _status: int
    stdout: IO[str] | None = None
    returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(PLAIN_COMMAND, timeout or 0)
            self.returncode = read_status(self._status)
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def forked(arguments: Sequence[str], environment: dict[str, str]) -> ForkedProcess:
    """A new process that runs ``trio-broker`` with ``arguments``; what it prints is its ``stdout``."""
    output, output_of_child = os.pipe()
    with open(os.devnull) as nothing:
        pid, status = fork(arguments, environment, (nothing.fileno(), output_of_child, output_of_child))
    os.close(output_of_child)
    return ForkedProcess(pid, status, os.fdopen(output, encoding="utf-8"))


def run_command(
    arguments: Sequence[str | Path], seconds: float, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """What came of ``trio-broker`` with ``arguments``, which found ``given`` on its standard input.

    Raises:
        subprocess.TimeoutExpired: it took longer.
    """
    words = [str(word) for word in arguments]
    if not has_pidfd():
        return run_program(
            [*PLAIN_COMMAND[:-1], *words],
            seconds,
            text=True,
            capture_output=True,
            input=given,
            env={**os.environ, **environment},
        )
    with (
        tempfile.TemporaryFile("w+") as stdin,
        tempfile.TemporaryFile("w+") as stdout,
        tempfile.TemporaryFile("w+") as errors,
    ):
        stdin.write(given)
        stdin.seek(0)
        streams = (stdin.fileno(), stdout.fileno(), errors.fileno())
        process = ForkedProcess(*fork(words, {**os.environ, **environment}, streams))
        try:
            code = within(process.wait, seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise
        for stream in (stdout, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(words, code, stdout.read(), errors.read())


def fork(arguments: Sequence[str], environment: dict[str, str], streams: tuple[int, int, int]) -> tuple[int, int]:
    """Start ``trio-broker`` on these standard streams; return its pid, and the pipe of its exit code."""
    request = {"arguments": arguments, "environment": environment, "directory": str(Path.cwd())}
    status, status_of_child = os.pipe()
    socket.send_fds(fork_server(), [json.dumps(request).encode()], [*streams, status_of_child])
    os.close(status_of_child)
    return read_status(status), status


def read_status(pipe: int) -> int:
    data = os.read(pipe, STATUS.size)
    assert data, "the fork server has ended"
    return int(STATUS.unpack(data)[0])


@cache
def fork_server() -> socket.socket:
    """Where the fork server of this process takes requests; it is started at the first, and ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            # Pipes as its children's are: streams remember whether their file can be searched.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours


def serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request. Returns the request in the child, and None in the fork server when there are no more."""
    children: dict[int, tuple[int, int]] = {}
    while True:
        ready = select.select([requests.fileno(), *children], [], [])[0]
        for pidfd in children.keys() & set(ready):
            report_end(pidfd, *children.pop(pidfd))
        if requests.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
        if not message:
            return None
        *streams, status = descriptors
        if (pid := os.fork()) == 0:
            for standard, stream in enumerate(streams):
                os.dup2(stream, standard)
            requests.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            return cast("dict[str, Any]", json.loads(message))
        for stream in streams:
            os.close(stream)
        os.write(status, STATUS.pack(pid))
        children[os.pidfd_open(pid)] = pid, status


def report_end(pidfd: int, pid: int, status: int) -> None:
    _, wait_status = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, STATUS.pack(os.waitstatus_to_exitcode(wait_status)))
    os.close(pidfd)
    os.close(status)


IMPORTED_AT_START = ("trio_broker.broker", "trio_broker.broker_view.live", "broker_admin.app", "broker_admin.guard")
"""Modules that a start imports step by step, each with what it imports itself."""


def main() -> None:
    gc.disable()  # as a start does while it imports
    for name in IMPORTED_AT_START:
        importlib.import_module(name)
    served_apis()
    gc.freeze()
    gc.enable()
    if request := serve(socket.socket(fileno=int(sys.argv[1]))):
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["directory"])
        sys.argv = ["trio-broker", *request["arguments"]]
        run()


if __name__ == "__main__":
    main()
