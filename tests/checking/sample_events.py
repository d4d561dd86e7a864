"""Made-up events, for histories that show a checker what it must find, and what it must let pass."""

from __future__ import annotations

import math
from typing import Any

from tests.checking.history import Event, Op, Outcome, Record

GROUP = "g"


def event(op: Op, process: str, at: float, until: float | None = None, **fields: Any) -> Event:
    """Something that worked; it takes no time unless ``until`` says so."""
    completed = at if until is None else until
    told: dict[str, Any] = {"group": GROUP, "outcome": Outcome.OK, "generation": 1} | fields
    return Event(process, op, at, completed, **told)


def assign(process: str, at: float, *partitions: int, **fields: Any) -> Event:
    return event(Op.ASSIGN, process, at, partitions=partitions, **fields)


def revoke(process: str, at: float, *partitions: int, **fields: Any) -> Event:
    return event(Op.REVOKE, process, at, partitions=partitions, **fields)


def lost(process: str, at: float, *partitions: int, **fields: Any) -> Event:
    return event(Op.LOST, process, at, partitions=partitions, **fields)


def commit(process: str, at: float, offsets: dict[int, int], **fields: Any) -> Event:
    return event(Op.COMMIT, process, at, offsets=offsets, **fields)


def doubtful_commit(process: str, at: float, offsets: dict[int, int]) -> Event:
    return commit(process, at, offsets, until=math.inf, outcome=Outcome.INFO)


def fetch(at: float, offsets: dict[int, int | None], **fields: Any) -> Event:
    return event(Op.FETCH_OFFSETS, "observer", at, offsets=offsets, **fields)


def poll(process: str, at: float, partition: int, *offsets: int, **fields: Any) -> Event:
    """Records whose values say where they are, as ``send`` sends them."""
    return event(Op.POLL, process, at, records=tuple(placed(partition, offset) for offset in offsets), **fields)


def send(at: float, partition: int, *offsets: int, **fields: Any) -> Event:
    fields = {"group": ""} | fields
    return event(Op.SEND, "sender", at, records=tuple(placed(partition, offset) for offset in offsets), **fields)


def placed(partition: int, offset: int) -> Record:
    return Record(partition, offset, 1000 * partition + offset)


def promises(violations: list[Any]) -> list[str]:
    return [violation.promise for violation in violations]
