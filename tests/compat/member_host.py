"""Consumers of clients in other languages, behind the face of ``group_members``.

They live in a process of their own, a host, which runs ``java/Members.java`` or one of ``node/*_members.mjs``. The host
receives, as lines of JSON, who joins, commits, seeks or leaves, and writes as such what each member owns and reads.
One host holds many members, since starting a JVM costs as much as a test; one that is killed takes all of its with it.
"""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from tests.compat.group_members import (
    HEARTBEAT_MS,
    METADATA_AGE_MS,
    POLL_SECONDS,
    SESSION_MS,
    WAIT_SECONDS,
    Commit,
    Crowd,
    Member,
    Place,
    Received,
)
from tests.waits import within


class HostFailed(Exception):
    """The process ended by itself, or a member of it failed, or refused what it was asked."""


class MemberHost:
    """A process with members in it; ``close`` or ``kill`` ends it."""

    def __init__(self, command: list[str]) -> None:
        self.ended = threading.Event()
        self._ends = False
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._numbers = itertools.count()
        self._answers: dict[int, Future[Any]] = {}
        self._events: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name="members' host", daemon=True)
        self._reader.start()

    def new_member(self) -> tuple[int, queue.SimpleQueue[dict[str, Any]]]:
        """Its number, and where what happens to it arrives."""
        with self._lock:
            number = next(self._numbers)
            self._events[number] = queue.SimpleQueue()
            return number, self._events[number]

    def request(self, member: int, call: str, **arguments: Any) -> Future[Any]:
        """Have ``member`` do something; the answer comes later, or HostFailed."""
        answer: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            number = next(self._numbers)
            self._answers[number] = answer
            line = json.dumps({"id": number, "member": member, "call": call, **arguments})
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return answer

    def ask(self, member: int, call: str, **arguments: Any) -> Any:
        return within(self.request(member, call, **arguments).result, WAIT_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "id" not in message:
                self._events[message["member"]].put(message)
            elif "error" in message:
                self._answers.pop(message["id"]).set_exception(HostFailed(message["error"]))
            else:
                self._answers.pop(message["id"]).set_result(message["result"])
        self.ended.set()
        for answer in self._answers.values():
            answer.set_exception(HostFailed("the host has ended"))

    @property
    def failed(self) -> bool:
        """Whether it has ended and nobody had asked for that."""
        return self.ended.is_set() and not self._ends

    def kill(self) -> None:
        """End it without a word to the broker."""
        self._ends = True
        self._process.kill()
        self._finish()

    def close(self) -> None:
        """End it, when its members have left."""
        self._ends = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._finish()

    def _finish(self) -> None:
        within(self._process.wait, WAIT_SECONDS)
        within(self._reader.join, WAIT_SECONDS)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


class HostedMember(Member):
    """A consumer in a host. ``settings`` holds the host, and what the kind of client shall receive beside the usual."""

    settings_of_kind: ClassVar[dict[str, Any]] = {}

    commits_metadata: ClassVar[bool] = True
    """Whether its commits may carry a text."""

    reads_what_is_new: ClassVar[bool] = True
    """Whether it may be relied upon to notice new partitions and to read them."""

    def open(self) -> None:
        self.host: MemberHost = self.settings.pop("host")
        self._gone = False
        self.number, self._reported = self.host.new_member()
        settings = {
            "session_ms": SESSION_MS,
            "heartbeat_ms": HEARTBEAT_MS,
            "metadata_age_ms": METADATA_AGE_MS,
            "poll_ms": int(POLL_SECONDS * 1000),
            "instance_id": self.instance_id,
            "auto_commit_ms": None,
            **self.settings_of_kind,
            **self.settings,
        }
        self._ask("join", servers=self.servers, group=self.group_id, topics=self.topics, settings=settings)
        self._owned: frozenset[Place] = frozenset()

    def _ask(self, call: str, **arguments: Any) -> Any:
        return self.host.ask(self.number, call, **arguments)

    def close(self) -> None:
        if not self._gone and not self.host.ended.is_set():
            self._ask("leave")

    def poll(self) -> list[Received]:
        """Take what has come since. A member of a killed host hears nothing more, and keeps what it last had."""
        received: list[Received] = []
        if self.host.failed:
            raise HostFailed("the host has ended")
        try:
            message = self._reported.get(timeout=POLL_SECONDS)
            while True:
                if "failed" in message:
                    self._gone = True
                    raise HostFailed(message["failed"])
                if "owned" in message:
                    self._owned = frozenset(Place(*place) for place in message["owned"])
                    return received
                received += [
                    Received(Place(topic, partition), offset, value.encode())
                    for topic, partition, offset, value in message["received"]
                ]
                message = self._reported.get_nowait()
        except queue.Empty:
            return received

    def assignment(self) -> frozenset[Place]:
        return self._owned

    def commit(self, offsets: dict[Place, Commit] | None = None) -> None:
        self._ask("commit", offsets=_offsets_as_json(offsets))

    def commit_soon(self, offsets: dict[Place, Commit], done: Callable[[], None]) -> None:
        def answered(answer: Future[Any]) -> None:
            answer.result()
            done()

        self.host.request(self.number, "commit_soon", offsets=_offsets_as_json(offsets)).add_done_callback(answered)

    def committed(self, place: Place) -> int | None:
        found: int | None = self._ask("committed", place=place)
        return found

    def seek(self, place: Place, offset: int) -> None:
        self._ask("seek", place=place, offset=offset)

    def pause(self, place: Place) -> None:
        self._ask("pause", place=place)

    def resume(self, place: Place) -> None:
        self._ask("resume", place=place)

    def end_offset(self, place: Place) -> int:
        return int(self._ask("end_offset", place=place))


def _offsets_as_json(offsets: dict[Place, Commit] | None) -> list[list[Any]] | None:
    return None if offsets is None else [[*place, *commit] for place, commit in offsets.items()]


class HostedCrowd(Crowd):
    """Members that live in ``host`` unless another is given."""

    def __init__(self, servers: str, host: MemberHost) -> None:
        super().__init__(servers)
        self.host = host

    def join(self, kind: type[Member], group_id: str, *topics: str, **settings: Any) -> Member:
        if issubclass(kind, HostedMember):
            settings.setdefault("host", self.host)
        return super().join(kind, group_id, *topics, **settings)

    def failure_of(self, member: Member) -> BaseException:
        """Return what ended ``member``, when something has; it is watched no more."""
        self.members.remove(member)
        self.wait(lambda: member.failure)
        assert member.failure is not None
        return member.failure
