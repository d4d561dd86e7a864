"""The members of a classic group, and those that may join with a member id that they were given.

Keeps the counts that a rebalance needs at every step, so that none of them costs a walk over all members: how many
support each strategy, how many wait for the next generation, which instance id belongs to which member. It knows
neither states nor time, but for the deadlines of pending members.

Source: Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import Protocols
from trio_broker.coordinator.runtime.response_future import ResponseFuture

MAX_PENDING_MEMBERS = 1_000
"""Members that were given an id and have not come back with it (KIP-394), per group.

A client comes back within one round trip, so even the start of a thousand consumers at once has room. More of them are
clients that ask for ids without end: then the oldest id is forgotten, and the client that has it asks for another.
"""


class MemberTable:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.leader_id: str | None = None
        self.pending_joins: dict[str, float] = {}
        """Ids that were given out and not used yet, with the deadline of each in seconds."""
        self.pending_syncs: set[str] = set()
        """Members of the new generation that have not sent SyncGroup."""
        self.awaiting_join_count = 0
        """Members that wait for the next generation."""
        self._static_ids: dict[str, str] = {}
        self._supporters: dict[str, int] = {}

    # --- Questions ---

    @property
    def has_everyone_joined(self) -> bool:
        """Whether every member waits for the next generation, and none is pending."""
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether one of the strategies ``names`` is supported by every member."""
        count = len(self.members)
        return any(self._supporters.get(name, 0) == count for name in names)

    def static_member_id(self, instance_id: str) -> str | None:
        return self._static_ids.get(instance_id)

    def membership_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this is a member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one has its instance id."""
        if instance_id is not None:
            holder = self._static_ids.get(instance_id)
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
        """Add ``member``, which is new in both its ids; the first one leads."""
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self._static_ids, member.instance_id
            self._static_ids[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_joins.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member, or a pending one; if it led, the member that joined first leads now.

        The caller completes the requests of the member that wait.
        """
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old: ClassicMember, new: ClassicMember) -> None:
        """Put ``new``, the same static member under another id, in the place of ``old``, which has no request left."""
        assert old.instance_id is not None
        assert old.instance_id == new.instance_id
        self._count(old, -1)
        del self.members[old.member_id]
        self.members[new.member_id] = new
        self._count(new, 1)
        self._static_ids[old.instance_id] = new.member_id
        if self.leader_id == old.member_id:
            self.leader_id = new.member_id
        if old.member_id in self.pending_syncs:
            self.pending_syncs.discard(old.member_id)
            self.pending_syncs.add(new.member_id)

    def set_protocols(self, member: ClassicMember, protocols: Protocols) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def await_join(self, member: ClassicMember, future: ResponseFuture) -> None:
        assert member.awaiting_join is None, member.member_id
        member.awaiting_join = future
        self.awaiting_join_count += 1

    def pop_awaiting_join(self, member: ClassicMember) -> ResponseFuture | None:
        """The future of the member's JoinGroup, which no longer waits."""
        future = member.awaiting_join
        if future is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return future

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it waits for the next generation, else take the first that does; False if none does."""
        leader = None if self.leader_id is None else self.members[self.leader_id]
        if leader is None or leader.awaiting_join is None:
            leader = next((member for member in self.members.values() if member.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def _count(self, member: ClassicMember, step: int) -> None:
        self._count_protocols(member, step)
        if member.awaiting_join is not None:
            self.awaiting_join_count += step

    def _count_protocols(self, member: ClassicMember, step: int) -> None:
        for name in member.protocols:
            count = self._supporters.get(name, 0) + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]
