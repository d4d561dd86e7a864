"""A process that forks members, so that one more member costs milliseconds rather than the import of three clients.

The nursery has no threads and no clients, which is what makes forking safe. It reads commands, one line of JSON each,
and says when a member has ended. It alone reaps its children, and only then forgets their ids, so a signal never
reaches another process. Members end with it: when its input ends, or when they find that they have another parent.

Source: fork(2), waitpid(2); the fork server of Python's multiprocessing, for the idea.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tests.checking.history import Recorder
from tests.checking.recorded_members import KINDS, Client, live
from tests.checking.transactional_loops import LOOPS
from tests.waits import within

NewClient = Callable[[Recorder, str, str], Client]

CLIENTS: dict[str, NewClient] = {kind.name: kind for kind in KINDS} | {loop.name: loop for loop in LOOPS}

LOG_SUFFIX = ".log"

REAP_SECONDS = 0.05

START_SECONDS = 60.0
"""Three clients are imported first; loaded test machines are slow."""

END_SECONDS = 30.0
"""Longer than any client takes to leave."""


class MemberForker:
    """The nursery as seen from outside. ``ended`` has the exit code of every member that is gone."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ended: dict[str, int] = {}
        self._someone_ended = threading.Condition()
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.checking.member_forker", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, name="member nursery", daemon=True)
        self._reader.start()
        assert within(self._ready.wait, START_SECONDS), "the nursery did not start"

    def start(self, process: str, kind: str, group: str, servers: str, topic: str) -> None:
        self._say(start=process, kind=kind, group=group, servers=servers, topic=topic)

    def signal(self, process: str, number: signal.Signals) -> None:
        """Send a signal to a member, or to nobody if it has ended."""
        self._say(signal=process, number=int(number))

    def wait_until_ended(self, *processes: str) -> None:
        """Return when they all have ended.

        Raises:
            TimeoutError: some do not end.
        """
        with self._someone_ended:
            if not within(
                partial(self._someone_ended.wait_for, lambda: self.ended.keys() >= set(processes)), END_SECONDS
            ):
                raise TimeoutError(f"these do not end: {set(processes) - self.ended.keys()}")

    def log_of(self, process: str) -> str:
        """The end of what a member printed."""
        path = self.directory / f"{process}{LOG_SUFFIX}"
        lines = path.read_text(errors="replace").splitlines() if path.exists() else ["nothing"]
        return "\n".join(lines[-20:])

    def close(self) -> None:
        """End every member that is left, and the nursery."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        within(self._process.wait, END_SECONDS)
        within(self._reader.join, END_SECONDS)
        self._process.stdout.close()

    def _say(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "ready" in message:
                self._ready.set()
                continue
            with self._someone_ended:
                self.ended[message["ended"]] = message["code"]
                self._someone_ended.notify_all()


# --- inside ---


def serve(directory: Path) -> None:
    """Fork, signal and reap until the input ends, then kill those that are left."""
    # A member may be asked to leave before it can listen: the signal waits until it does.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    children: dict[str, int] = {}
    buffer = b""
    print(json.dumps({"ready": os.getpid()}), flush=True)
    while True:
        readable, _, _ = select.select([0], [], [], REAP_SECONDS)
        if readable:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                _execute(json.loads(line), directory, children)
        _reap(children, os.WNOHANG)
    for pid in children.values():
        os.kill(pid, signal.SIGKILL)
    _reap(children, 0)


def _execute(command: dict[str, Any], directory: Path, children: dict[str, int]) -> None:
    if "start" in command:
        process = command["start"]
        pid = os.fork()
        if pid == 0:
            _be_a_member(directory, process, command)
        children[process] = pid
    elif (known := children.get(command["signal"])) is not None:
        os.kill(known, command["number"])


def _reap(children: dict[str, int], options: int) -> None:
    for process, child in list(children.items()):
        pid, status = os.waitpid(child, options)
        if pid:
            del children[process]
            print(json.dumps({"ended": process, "code": os.waitstatus_to_exitcode(status)}), flush=True)


def _be_a_member(directory: Path, process: str, command: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        log = os.open(directory / f"{process}{LOG_SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, target)
        ends, nursery = threading.Event(), os.getppid()
        signal.signal(signal.SIGTERM, lambda *_: ends.set())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with, args=(nursery, ends), daemon=True).start()
        recorder = Recorder(directory, process, command["group"])
        live(CLIENTS[command["kind"]], recorder, command["servers"], command["topic"], ends)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end_with(nursery: int, ends: threading.Event) -> None:
    """End this process when its nursery is gone without having said so."""
    while not ends.wait(1.0):
        if os.getppid() != nursery:
            os._exit(1)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
