"""Made-up events, for histories that show a checker what it must find, and what it must let pass."""

from __future__ import annotations

import math
from typing import Any

from tests.checking.history import Event, Op, Outcome, Record

GROUP = "g"


def event(op: Op, process: str, at: float, until: float | None = None, **fields: Any) -> Event:
    """Something that worked; it takes no time unless ``until`` says so."""
    completed = at if until is None else until
    given: dict[str, Any] = {"group": GROUP, "outcome": Outcome.OK, "generation": 1} | fields
    return Event(process, op, at, completed, **given)


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


def transaction(process: str, at: float, until: float, *records: Record, **fields: Any) -> Event:
    """One that was committed; its end is asked for shortly before ``until``."""
    given: dict[str, Any] = {"group": "", "transactional_id": "t", "ending": until - 0.1} | fields
    return event(Op.TRANSACTION, process, at, until, records=records, **given)


def aborted(process: str, at: float, until: float, *records: Record, **fields: Any) -> Event:
    return transaction(process, at, until, *records, outcome=Outcome.FAIL, **fields)


def doubtful(process: str, at: float, until: float, *records: Record, **fields: Any) -> Event:
    """A transaction whose commit was asked for, and nobody knows what became of it."""
    return transaction(process, at, math.inf, *records, outcome=Outcome.INFO, **{"ending": until} | fields)


def init_producer_id(process: str, at: float, until: float | None = None, **fields: Any) -> Event:
    return event(Op.INIT_PRODUCER_ID, process, at, until, **{"transactional_id": "t", "group": ""} | fields)


def read_committed(at: float, *records: Record, stable: dict[int, int] | None = None, **fields: Any) -> Event:
    """``stable`` has the last stable offsets; without, they are behind the records."""
    ends = {record.partition: record.offset + 1 for record in records}
    return event(Op.READ_COMMITTED, "reader", at, records=records, offsets=ends if stable is None else stable, **fields)


def placed(partition: int, offset: int) -> Record:
    return Record(partition, offset, 1000 * partition + offset)


def promises(violations: list[Any]) -> list[str]:
    return [violation.promise for violation in violations]
