"""What every process of a run saw of one topic and its groups, as a history that a checker can judge afterwards.

An event has a beginning and an end, both on the one monotonic clock that all processes of a machine share, so events of
different processes can be put in order where they do not overlap. What began and never ended (its process was killed)
may have happened or not, and so may whatever ended in an error that a client reports after retrying: both are ``info``,
and only what a client refused by itself is ``fail``.

Each process writes a file of its own, two or more lines for each event, each line with one ``write``: what a killed
process has written is whole.

Source: the histories of Jepsen; Kafka's documentation of ConsumerRebalanceListener for what the callbacks mean.
"""

from __future__ import annotations

import enum
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

HISTORY_SUFFIX = ".history.jsonl"

NO_GENERATION = -1
"""What clients say while they are in no group."""


class Op(enum.StrEnum):
    """What happened. The first twelve are reported by the processes, the others by the test that disturbs them."""

    JOIN = "join"
    ASSIGN = "assign"
    REVOKE = "revoke"
    LOST = "lost"
    POLL = "poll"
    COMMIT = "commit"
    CLOSE = "close"
    STALL = "stall"
    FETCH_OFFSETS = "fetch-offsets"
    SEND = "send"
    INIT_PRODUCER_ID = "init-producer-id"
    TRANSACTION = "transaction"
    READ_COMMITTED = "read-committed"
    KILL = "kill"
    LEAVE = "leave"
    PAUSE = "pause"
    RESUME = "resume"
    GROW = "grow"
    KILL_BROKER = "kill-broker"
    RESTART_BROKER = "restart-broker"


class Outcome(enum.StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@attrs.frozen
class Record:
    """One record as somebody saw it. ``value`` is a number that no other record has."""

    partition: int
    offset: int
    value: int


@attrs.frozen
class Event:
    """One thing that ``process`` did or saw, between ``invoked`` and ``completed``, in seconds.

    ``generation`` is the member epoch where KIP-848 is spoken, and None where it was not the same before and after: the
    event was of one or the other.
    ``offsets`` are committed or found per partition, None where nothing is committed; of a reading of committed records
    they are the last stable offsets. ``inputs`` are the records that those of a transaction were made from, and
    ``ending`` is when its end was first asked for.
    """

    process: str
    op: Op
    invoked: float
    completed: float = math.inf
    outcome: Outcome = Outcome.INFO
    group: str = ""
    member_id: str = ""
    generation: int | None = None
    partitions: tuple[int, ...] = ()
    offsets: Mapping[int, int | None] = attrs.field(factory=dict)
    records: tuple[Record, ...] = ()
    error: str = ""
    transactional_id: str = ""
    inputs: tuple[Record, ...] = ()
    ending: float = math.inf

    @property
    def is_ok(self) -> bool:
        return self.outcome is Outcome.OK

    def __str__(self) -> str:
        where = f" {self.group}" if self.group else ""
        generation = "" if self.generation is None else f" generation {self.generation}"
        what = f" {list(self.partitions)}" if self.partitions else ""
        what += f" {dict(self.offsets)}" if self.offsets else ""
        what += f" {self.transactional_id}" if self.transactional_id else ""
        return (
            f"{self.invoked:.3f}-{self.completed:.3f} {self.process}{where}{generation} {self.op}{what} {self.outcome}"
        )


@attrs.define
class Draft:
    """An event that is going on: what is known of it so far, to be written when it ends."""

    write: Callable[[dict[str, Any]], None]
    outcome: Outcome = Outcome.OK
    details: dict[str, Any] = attrs.field(factory=dict)

    def tell(self, **fields: Any) -> None:
        self.details |= fields

    def tell_at_once(self, **fields: Any) -> None:
        """Tell what is to be known even if the process is killed before the event ends."""
        self.write(fields)

    def failed(self, error: object, outcome: Outcome = Outcome.INFO) -> None:
        self.outcome = outcome
        self.details["error"] = f"{type(error).__name__}: {error}"


class Recorder:
    """Writes the history of one process. Any thread may tell."""

    def __init__(self, directory: Path, process: str, group: str = "") -> None:
        self.process, self.group = process, group
        path = directory / f"{process}{HISTORY_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @contextmanager
    def doing(self, op: Op, **fields: Any) -> Iterator[Draft]:
        """Tell of what the block does; an exception of the block makes it ``info`` and goes on."""
        with self._lock:
            number = next(self._numbers)
        self._write({"number": number, "op": op, "invoked": time.monotonic(), "group": self.group} | fields)
        draft = Draft(lambda fields: self._write({"number": number} | fields))
        try:
            yield draft
        except BaseException as error:
            draft.failed(error)
            raise
        finally:
            end = {"number": number, "completed": time.monotonic(), "outcome": draft.outcome}
            self._write(end | draft.details)

    def tell(self, op: Op, **fields: Any) -> None:
        """Tell of what took no time."""
        with self.doing(op, **fields):
            pass

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def read_history(directory: Path) -> list[Event]:
    """Everything that was recorded in ``directory``, in the order in which it began."""
    events = [
        event
        for path in directory.glob(f"*{HISTORY_SUFFIX}")
        for event in _read(path.name.removesuffix(HISTORY_SUFFIX), path.read_text(encoding="ascii").splitlines())
    ]
    return sorted(events, key=lambda event: event.invoked)


def _read(process: str, lines: Iterable[str]) -> Iterator[Event]:
    details: dict[int, dict[str, Any]] = {}
    for line in lines:
        fields = json.loads(line)
        details.setdefault(fields.pop("number"), {}).update(fields)
    for fields in details.values():
        yield Event(
            process=process,
            op=Op(fields.pop("op")),
            outcome=Outcome(fields.pop("outcome", Outcome.INFO)),
            partitions=tuple(fields.pop("partitions", ())),
            offsets={int(partition): offset for partition, offset in fields.pop("offsets", {}).items()},
            records=tuple(Record(*record) for record in fields.pop("records", ())),
            inputs=tuple(Record(*record) for record in fields.pop("inputs", ())),
            **fields,
        )


@attrs.frozen
class Violation:
    """A promise that was broken: which one, and the fewest events that show it."""

    promise: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.promise}: {self.text}", *(str(event) for event in self.events)])
