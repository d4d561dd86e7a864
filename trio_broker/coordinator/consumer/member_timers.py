"""The deadlines of a consumer group's members; a member that misses one is removed from the group.

Deadlines are in ``Now.monotonic_seconds``. To move one on, as every heartbeat does with the session, costs one
assignment: the earliest of all is a lower bound, and is made exact only when it has passed.

Source: the timers that Kafka's GroupMetadataManager schedules.
"""

from __future__ import annotations

import enum
import itertools

import attrs

MAX_DUE_AT_ONCE = 500
"""Members that are due which one call returns; the next call returns others. Without a limit a thousand members that
fall silent at once would be removed by one update, whose records may not fit into a batch, and take half a second."""


class MemberTimer(enum.Enum):
    """What a member has to do; the values are the reasons in the timeline when it did not."""

    SESSION = "no heartbeat came within its session timeout"
    REVOCATION = "it did not give up its partitions within its rebalance timeout"
    JOIN = "it did not join again within its rebalance timeout"
    SYNC = "it did not ask for its assignment within its rebalance timeout"


@attrs.frozen
class DueMember:
    member_id: str
    timer: MemberTimer


class MemberTimers:
    """The deadlines of all members of one group."""

    def __init__(self) -> None:
        self._deadlines: dict[MemberTimer, dict[str, float]] = {timer: {} for timer in MemberTimer}
        self._earliest: float | None = None

    def start(self, timer: MemberTimer, member_id: str, deadline: float) -> None:
        """Set the deadline, in place of an earlier one."""
        self._deadlines[timer][member_id] = deadline
        if self._earliest is None or deadline < self._earliest:
            self._earliest = deadline

    def start_if_absent(self, timer: MemberTimer, member_id: str, deadline: float) -> None:
        """As ``start``, unless the timer runs already."""
        if member_id not in self._deadlines[timer]:
            self.start(timer, member_id, deadline)

    def is_running(self, timer: MemberTimer, member_id: str) -> bool:
        return member_id in self._deadlines[timer]

    def cancel(self, timer: MemberTimer, member_id: str) -> None:
        self._deadlines[timer].pop(member_id, None)

    def cancel_all(self, member_id: str) -> None:
        """The member was removed."""
        for deadlines in self._deadlines.values():
            deadlines.pop(member_id, None)

    def next_deadline(self) -> float | None:
        """A lower bound of all deadlines."""
        return self._earliest

    def pop_due(self, now: float, at_most: int = MAX_DUE_AT_ONCE) -> list[DueMember]:
        """Return members that are due, each once and ``at_most`` of them, and drop their deadlines."""
        if self._earliest is None or now < self._earliest:
            return []
        due: dict[str, DueMember] = {}
        for timer, deadlines in self._deadlines.items():
            late = (member_id for member_id, deadline in deadlines.items() if deadline <= now)
            for member_id in list(itertools.islice(late, at_most - len(due))):
                due.setdefault(member_id, DueMember(member_id, timer))
                del deadlines[member_id]
        self._earliest = min(
            (min(deadlines.values()) for deadlines in self._deadlines.values() if deadlines), default=None
        )
        return list(due.values())
