"""Whether a committed offset was lost, or went back by itself.

The offset that a group has committed for a partition is one register. Commits write it; asking for it reads it, and so
does every member that is assigned the partition, since the first record that it gets is the one it was given to begin
with. A read is right when some commit wrote what it found, and nothing is known to have been true between the end of
that commit and the beginning of the read: no acknowledged commit of another offset, and no read that found another.

A commit whose answer never came may be what a read finds, at any time after it began. It is no reason for a read to be
wrong, until somebody has read it.

Source: Kafka's OffsetMetadataManager; the definition of a linearizable register.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

import attrs

from tests.checking.history import Event, Op, Outcome, Violation

COMMITS_STAY = "an acknowledged commit stays"

BEGINNING = 0
"""Where members begin that find no commit; one who begins there has found none, or zero."""


@attrs.frozen
class Look:
    """The register had ``offset`` at some time between ``invoked`` and ``completed``."""

    offset: int | None
    invoked: float
    completed: float
    event: Event


@attrs.define
class Register:
    """What is known of one group's offset in one partition."""

    writes: list[Look] = attrs.field(factory=list)
    """Commits that were accepted, or may have been."""

    reads: list[Look] = attrs.field(factory=list)


def registers(history: Sequence[Event]) -> dict[tuple[str, int], Register]:
    """All registers by group and partition."""
    found: dict[tuple[str, int], Register] = defaultdict(Register)
    for event in history:
        for partition, offset in event.offsets.items():
            look = Look(offset, event.invoked, event.completed if event.is_ok else math.inf, event)
            if event.op is Op.COMMIT and event.outcome is not Outcome.FAIL:
                found[event.group, partition].writes.append(look)
            elif event.op is Op.FETCH_OFFSETS and event.is_ok:
                found[event.group, partition].reads.append(look)
    for group, partition, look in _beginnings(history):
        found[group, partition].reads.append(look)
    return found


def _beginnings(history: Sequence[Event]) -> Iterator[tuple[str, int, Look]]:
    """Where each member began in each partition after it was assigned: a read between the two.

    One that goes on exactly where it had stopped tells nothing: kafka-python keeps its position in partitions that it
    has before and after a rebalance (``SubscriptionState._apply_assignment``).
    """
    assigned: dict[tuple[str, int], Event] = {}
    stopped: dict[tuple[str, int], int] = {}
    for event in history:
        if event.op is Op.ASSIGN:
            assigned.update({(event.process, partition): event for partition in event.partitions})
        elif event.op in (Op.REVOKE, Op.LOST):
            for partition in event.partitions:
                assigned.pop((event.process, partition), None)
        elif event.op is Op.POLL:
            for record in event.records:
                place = event.process, record.partition
                start = assigned.pop(place, None)
                if start is not None and stopped.get(place) != record.offset:
                    yield event.group, record.partition, Look(record.offset, start.invoked, event.completed, event)
                stopped[place] = record.offset + 1


def check_commits(history: Sequence[Event]) -> list[Violation]:
    """Every read that found what it should not have."""
    return [
        Violation(COMMITS_STAY, f"{group}, partition {partition}: {text}", events)
        for (group, partition), register in registers(history).items()
        for text, events in _wrong_reads(register)
    ]


def _wrong_reads(register: Register) -> Iterator[tuple[str, tuple[Event, ...]]]:
    certain = (look for look in (*register.writes, *register.reads) if look.completed < math.inf)
    known = deque(sorted(certain, key=lambda look: look.completed))
    latest = _Latest()
    for read in sorted(register.reads, key=lambda look: look.invoked):
        while known and known[0].completed < read.invoked:
            latest.add(known.popleft())
        sources = _sources(register, read)
        if not sources:
            yield f"nobody ever committed {read.offset}", (read.event,)
            continue
        source = max(sources, key=lambda look: look.completed)
        newer = latest.of_another_offset(read)
        if newer is not None and newer.invoked > source.completed:
            text = f"found {read.offset} when {newer.offset} had been committed or seen later"
            yield text, tuple(look.event for look in (source, newer, read) if look is not _NOTHING)


_NOTHING = Look(None, -math.inf, -math.inf, Event("", Op.COMMIT, -math.inf))
"""The register as it begins."""


def _sources(register: Register, read: Look) -> list[Look]:
    """All that may have put there what ``read`` found."""
    sources = [write for write in register.writes if write.offset == read.offset and write.invoked < read.completed]
    if read.offset is None or _is_beginning(read):
        sources.append(_NOTHING)
    return sources


def _is_beginning(read: Look) -> bool:
    return read.event.op is Op.POLL and read.offset == BEGINNING


class _Latest:
    """Of what is known for sure, what began last; and the last with an offset other than that one's."""

    def __init__(self) -> None:
        self.first: Look | None = None
        self.other: Look | None = None

    def add(self, look: Look) -> None:
        if self.first is None or look.invoked >= self.first.invoked:
            if self.first is not None and self.first.offset != look.offset:
                self.other = self.first
            self.first = look
        elif look.offset != self.first.offset and (self.other is None or look.invoked > self.other.invoked):
            self.other = look

    def of_another_offset(self, read: Look) -> Look | None:
        if self.first is None or not _same(self.first, read):
            return self.first
        return None if self.other is None or _same(self.other, read) else self.other


def _same(known: Look, read: Look) -> bool:
    """Whether both may have found the same: who begins at the beginning, or finds nothing, may have found the other."""
    if known.offset == read.offset:
        return True
    return {known.offset, read.offset} == {None, BEGINNING} and (_is_beginning(known) or _is_beginning(read))
