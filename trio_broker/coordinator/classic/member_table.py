"""Who is in a classic group, who is on the way in, and whom the group waits for.

Keeps the books that a rebalance asks for all the time, so that no question costs a walk over all members: how many
support each strategy, how many have joined again, which instance id belongs to which member. It knows no states and no
time but the deadlines of those on the way in.

Source: Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.classic.member import ClassicMember, PendingResponse
from trio_broker.coordinator.classic.protocols import Protocols

MAX_PENDING_MEMBERS = 1_000
"""Members that were given an id and have not come back with it (KIP-394), per group.

A client comes back within one round trip, so even the start of a thousand consumers at once has room. More of them are
clients that ask for ids without end: then the oldest id is forgotten, and whoever it belongs to is told to ask again.
"""


class MemberTable:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.leader_id: str | None = None
        self.pending_joins: dict[str, float] = {}
        """Ids given out and not used yet, with the moment, in seconds, at which each is forgotten."""
        self.pending_syncs: set[str] = set()
        """Members of the new generation that have not asked for their assignment."""
        self._static_ids: dict[str, str] = {}
        self._supporters: dict[str, int] = {}
        self._awaiting_joins = 0

    # --- Questions ---

    @property
    def has_everyone_joined(self) -> bool:
        """Whether every member waits for the next generation, and nobody is on the way in."""
        return self._awaiting_joins == len(self.members) and not self.pending_joins

    @property
    def joined_count(self) -> int:
        """Members that wait for the next generation."""
        return self._awaiting_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members: how long the others have to wait for it."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether one of the strategies ``names`` is supported by every member."""
        count = len(self.members)
        return any(self._supporters.get(name, 0) == count for name in names)

    def static_member_id(self, group_instance_id: str) -> str | None:
        return self._static_ids.get(group_instance_id)

    def membership_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """NONE if this is a member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one has its instance id."""
        if group_instance_id is not None:
            holder = self._static_ids.get(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # --- Changes ---

    def add_pending(self, member_id: str, deadline: float) -> None:
        assert member_id not in self.members, member_id
        if len(self.pending_joins) >= MAX_PENDING_MEMBERS:
            del self.pending_joins[next(iter(self.pending_joins))]
        self.pending_joins[member_id] = deadline

    def add(self, member: ClassicMember) -> None:
        """Let ``member`` in; the first one leads."""
        assert member.member_id not in self.members, member.member_id
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_ids, member.group_instance_id
            self._static_ids[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Forget a member, or someone on the way in; if it led, the member that joined first leads now.

        The requests of the member that wait are the caller's to answer.
        """
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put a static member's new self in the place of the old one, which has no waiting request any more."""
        assert old.group_instance_id is not None
        assert old.group_instance_id == new.group_instance_id
        self._count(old, -1)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self._count(new, 1)
        self._static_ids[old.group_instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.discard(old.member_id)
            self.pending_syncs.add(new.member_id)

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def await_join(self, member: ClassicMember, pending: PendingResponse) -> None:
        assert member.awaiting_join is None, member.member_id
        member.awaiting_join = pending
        self._awaiting_joins += 1

    def pop_awaiting_join(self, member: ClassicMember) -> PendingResponse | None:
        """The member's waiting JoinGroup, which from now on does not wait."""
        pending = member.awaiting_join
        if pending is not None:
            member.awaiting_join = None
            self._awaiting_joins -= 1
        return pending

    def elect_joined_leader(self) -> bool:
        """Make sure that one who has joined again leads; False if nobody has."""
        leader = None if self.leader_id is None else self.members[self.leader_id]
        if leader is None or leader.awaiting_join is None:
            leader = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def _count(self, member: ClassicMember, by: int) -> None:
        self._count_protocols(member, by)
        if member.awaiting_join is not None:
            self._awaiting_joins += by

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        for name in member.protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
