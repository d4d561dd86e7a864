"""What happens to groups in a chaos run, drawn from a seed: the same seed, the same steps.

The plan knows who is there, so it never kills the dead or wakes the wakeful. Groups may become empty on the way, and
have a member at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import attrs

from tests.checking.history import Op
from tests.checking.recorded_members import SESSION_MS

FIRST_PARTITIONS = 3
MOST_PARTITIONS = 12
MOST_MEMBERS = 4

WEIGHTS = {
    Op.JOIN: 30,
    Op.LEAVE: 20,
    Op.KILL: 20,
    Op.PAUSE: 14,
    Op.KILL_BROKER: 7,
    Op.RESTART_BROKER: 4,
    Op.GROW: 5,
}

LAST_ONE_GOES = 0.15
"""How likely it is that a group is left empty when its last member is chosen to go: it happens, and proves little."""

BETWEEN_SECONDS = (0.1, 1.6)
"""Often shorter than a rebalance takes, so that things happen within rebalances as well."""

PAUSE_SECONDS = (0.2, 2 * SESSION_MS / 1000)
"""Some sleep within their session, most beyond it."""


@attrs.frozen
class Step:
    """``op`` happens to a member, the broker or the topic, ``after`` seconds. Random events are those that count."""

    after: float
    op: Op
    group: str = ""
    process: str = ""
    counts: bool = True


class _Planner:
    def __init__(self, seed: int, groups: Sequence[str]) -> None:
        self.random = Random(seed)
        self.members: dict[str, list[str]] = {group: [] for group in groups}
        self.asleep: dict[str, float] = {}
        """When each of those who sleep wakes up."""
        self.partitions = FIRST_PARTITIONS
        self.joined = 0
        self.now = 0.0
        self._reported = 0.0

    def step(self, op: Op, group: str = "", process: str = "", *, counts: bool = True) -> Step:
        after, self._reported = self.now - self._reported, self.now
        return Step(after, op, group, process, counts)

    def join(self, group: str, *, counts: bool = True) -> Step:
        self.joined += 1
        process = f"{group}-{self.joined}"
        self.members[group].append(process)
        return self.step(Op.JOIN, group, process, counts=counts)

    def wake(self, before: float) -> Iterator[Step]:
        for process, when in sorted(self.asleep.items(), key=lambda item: item[1]):
            if when < before:
                del self.asleep[process]
                self.now = max(self.now, when)
                yield self.step(Op.RESUME, process.rpartition("-")[0], process, counts=False)

    def event(self) -> Step:
        """Draw until something is drawn that can happen."""
        while True:
            [op] = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
            group = self.random.choice(list(self.members))
            if (step := self._happens(op, group)) is not None:
                return step

    def _happens(self, op: Op, group: str) -> Step | None:
        members = self.members[group]
        awake = [process for process in members if process not in self.asleep]
        if op in (Op.KILL_BROKER, Op.RESTART_BROKER):
            return self.step(op)
        if op is Op.GROW and self.partitions < MOST_PARTITIONS:
            self.partitions += 1
            return self.step(op)
        if op is Op.JOIN and len(members) < MOST_MEMBERS:
            return self.join(group)
        if op in (Op.KILL, Op.LEAVE) and len(members) == 1 and self.random.random() > LAST_ONE_GOES:
            return None
        if op is Op.KILL and members:
            process = self.random.choice(members)
            members.remove(process)
            self.asleep.pop(process, None)
            return self.step(op, group, process)
        if op is Op.LEAVE and awake:
            process = self.random.choice(awake)
            members.remove(process)
            return self.step(op, group, process)
        if op is Op.PAUSE and awake:
            process = self.random.choice(awake)
            self.asleep[process] = self.now + self.random.uniform(*PAUSE_SECONDS)
            return self.step(op, group, process)
        return None


def plan(seed: int, events: int, groups: Sequence[str], *, members: int = 2, pace: float = 1.0) -> list[Step]:
    """``events`` random events, and what belongs to them.

    That is the first ``members`` of each group, waking up, and in the end a member for each group that has none.
    """
    planner = _Planner(seed, groups)
    steps = [planner.join(group, counts=False) for _ in range(members) for group in groups]
    for _ in range(events):
        until = planner.now + pace * planner.random.uniform(*BETWEEN_SECONDS)
        steps += planner.wake(until)
        planner.now = until
        steps.append(planner.event())
    steps += planner.wake(float("inf"))
    steps += [planner.join(group, counts=False) for group, members in planner.members.items() if not members]
    return steps
