"""Whether some partition had two owners.

Two promises, checked apart because each sees what the other cannot:

* In one generation of a classic group every partition has one owner. What counts is the generation that a member was in
  when it was assigned a partition, or when it committed one; time does not matter. A commit counts only from the
  member's assignment in that generation on, which may add nothing: before it, a cooperative member still has partitions
  of the generation before, and a generation that no record was written for has its number again after a restart.
* At no time have two members a partition that is surely theirs. A member owns a partition from the moment it learns so
  until its revoke callback has returned, and a member that waits for its word must not be given the partition earlier.

*Surely* is what needs care. A member that is silent for longer than its session is removed from the group without
knowing, and goes on believing. So where an ownership ends in anything but a revocation that the group waited for, or
where the process was held up since, or had joined the next generation before it let go, it counts only up to the last
proof that the coordinator still knew the member: its assignment, or a commit that was acknowledged, from the moment
that it was begun.

Source: KIP-429 and KIP-848 for who waits for whom; Kafka's ClassicGroup and CurrentAssignmentBuilder.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import attrs

from tests.checking.history import Event, Op, Violation

ONE_OWNER_PER_GENERATION = "one owner per generation"
ONE_OWNER_AT_A_TIME = "one owner at a time"
NO_COMMIT_OF_AN_OLD_GENERATION = "no commit of an old generation"


@attrs.frozen
class Ownership:
    """A partition was surely one member's from ``start`` to ``end``, which ``first`` and ``last`` show."""

    group: str
    partition: int
    process: str
    start: float
    end: float
    first: Event
    last: Event


def check_ownership(history: Sequence[Event], *, generations_of: frozenset[str]) -> list[Violation]:
    """Every partition with two owners. ``generations_of`` names the groups that have generations, not member epochs."""
    classic = [event for event in history if event.group in generations_of]
    return [
        *_two_owners_in_a_generation(classic),
        *_commits_of_old_generations(classic),
        *_two_owners_at_a_time(ownerships(history)),
    ]


# --- by generation ---


def _two_owners_in_a_generation(history: Iterable[Event]) -> Iterator[Violation]:
    owners: dict[tuple[str, int, int], Event] = {}
    assigned: set[tuple[str, int]] = set()
    for event in history:
        if event.generation is None or not event.is_ok:
            continue
        if event.op is Op.ASSIGN:
            assigned.add((event.process, event.generation))
        elif event.op is not Op.COMMIT or (event.process, event.generation) not in assigned:
            continue
        for partition in event.partitions or event.offsets:
            known = owners.setdefault((event.group, event.generation, partition), event)
            if known.process != event.process:
                text = f"{event.group}, generation {event.generation}: partition {partition}"
                yield Violation(ONE_OWNER_PER_GENERATION, text, (known, event))


def _commits_of_old_generations(history: Sequence[Event]) -> Iterator[Violation]:
    """A commit that began when somebody had already been assigned something in a later generation, and was accepted."""
    newest: dict[str, Event] = {}
    begun = sorted((event for event in history if event.generation is not None), key=lambda event: event.invoked)
    assigned = sorted(
        (event for event in begun if event.op is Op.ASSIGN), key=lambda event: event.invoked, reverse=True
    )
    for event in begun:
        while assigned and assigned[-1].invoked < event.invoked:
            last = assigned.pop()
            if last.group not in newest or _generation(newest[last.group]) < _generation(last):
                newest[last.group] = last
        known = newest.get(event.group)
        if event.op is Op.COMMIT and event.is_ok and known is not None and _generation(event) < _generation(known):
            text = f"{event.group} was in generation {known.generation} and accepted a commit of {event.generation}"
            yield Violation(NO_COMMIT_OF_AN_OLD_GENERATION, text, (known, event))


def _generation(event: Event) -> int:
    assert event.generation is not None
    return event.generation


# --- by time ---


def ownerships(history: Sequence[Event]) -> list[Ownership]:
    """When each partition was surely whose."""
    by_process: dict[str, list[Event]] = defaultdict(list)
    for event in history:
        by_process[event.process].append(event)
    return [ownership for events in by_process.values() for ownership in _of_one_process(events)]


@attrs.define
class _Held:
    """A partition that a process has: how it came to have it, and the last proof that it was right."""

    since: Event
    proof: Event

    def surely(self, partition: int, end: float, last: Event) -> Ownership:
        return Ownership(self.since.group, partition, self.since.process, self.since.invoked, end, self.since, last)

    def up_to_the_proof(self, partition: int) -> Ownership:
        return self.surely(partition, self.proof.invoked, self.proof)


def _of_one_process(events: Sequence[Event]) -> Iterator[Ownership]:
    stalls = [event for event in events if event.op is Op.STALL]
    closing = min((event.invoked for event in events if event.op is Op.CLOSE), default=math.inf)
    held: dict[int, _Held] = {}
    # By their ends, so that what is committed in a revoke callback comes before the end of the callback.
    for event in sorted(events, key=lambda event: (event.completed, event.invoked)):
        if event.op is Op.ASSIGN:
            for partition in event.partitions:
                held.setdefault(partition, _Held(event, event))
        elif event.op is Op.COMMIT and event.is_ok and event.generation is not None:
            for partition in event.offsets:
                if partition in held:
                    held[partition].proof = event
        elif event.op is Op.REVOKE:
            awaited = event.is_ok and event.invoked < closing and event.generation is not None
            for partition in event.partitions:
                if (known := held.pop(partition, None)) is not None:
                    sure = awaited and not any(_overlap(stall, known.proof, event) for stall in stalls)
                    yield known.surely(partition, event.completed, event) if sure else known.up_to_the_proof(partition)
        elif event.op is Op.LOST:
            for partition in event.partitions:
                if (known := held.pop(partition, None)) is not None:
                    yield known.up_to_the_proof(partition)
    for partition, known in held.items():
        yield known.up_to_the_proof(partition)


def _overlap(stall: Event, proof: Event, end: Event) -> bool:
    return stall.invoked < end.completed and proof.invoked < stall.completed


def _two_owners_at_a_time(all_ownerships: Iterable[Ownership]) -> Iterator[Violation]:
    by_partition: dict[tuple[str, int], list[Ownership]] = defaultdict(list)
    for ownership in all_ownerships:
        by_partition[ownership.group, ownership.partition].append(ownership)
    for (group, partition), owned in by_partition.items():
        owned.sort(key=lambda ownership: ownership.start)
        longest = owned[0]
        for ownership in owned[1:]:
            if ownership.start < longest.end and ownership.process != longest.process:
                text = (
                    f"{group}: partition {partition} was {ownership.process}'s at {ownership.start:.3f}"
                    f" and {longest.process}'s until {longest.end:.3f}"
                )
                yield Violation(
                    ONE_OWNER_AT_A_TIME, text, (longest.first, longest.last, ownership.first, ownership.last)
                )
            longest = max(longest, ownership, key=lambda each: each.end)
