"""Group members in processes of their own, so that killing one leaves nobody to say goodbye."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

from tests.compat.group_members import EVERY_KIND, WAIT_SECONDS, Member, Place, moved
from tests.waits import within


class KillableMember:
    """A member in a process of its own, which says what it owns and can be killed."""

    def __init__(self, kind: type[Member], servers: str, group_id: str, *topics: str, **settings: Any) -> None:
        self.owned: frozenset[Place] = frozenset()
        command = [sys.executable, "-m", "tests.compat.killable_member", kind.name, servers, group_id]
        self._process = subprocess.Popen(
            [*command, json.dumps(settings), *topics], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, name=f"killable member of {group_id}", daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"<killable member {sorted(self.owned)}>"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with moved:
                self.owned = frozenset(Place(*each) for each in json.loads(line))
                moved.notify_all()

    def kill(self) -> None:
        """End it without a word to the broker."""
        self._process.kill()
        within(self._process.wait, WAIT_SECONDS)
        within(self._reader.join, WAIT_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def run_and_report(name: str, servers: str, group_id: str, settings: str, topics: Iterable[str]) -> None:
    """Be a member that is killed: print what is owned whenever that changes, until killed or until stdin ends."""
    [kind] = [kind for kind in EVERY_KIND if kind.name == name]
    member = kind(servers, group_id, *topics, **json.loads(settings))
    printed: frozenset[Place] | None = None
    alone = threading.Event()

    def read_to_the_end() -> None:
        sys.stdin.read()
        alone.set()

    threading.Thread(target=read_to_the_end, daemon=True).start()
    while not alone.is_set():
        with moved:
            moved.wait(1.0)
        if member.owned != printed:
            printed = member.owned
            print(json.dumps(sorted(printed)), flush=True)


if __name__ == "__main__":
    _, name, servers, group_id, settings, *topics = sys.argv
    run_and_report(name, servers, group_id, settings, topics)
