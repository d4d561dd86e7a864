"""Makes every PartitionChangeRecord: who leads a partition, who is in sync, and who has a replica, after a change.

A change is asked for by its targets, such as another ISR or other replicas; what follows from them is decided here, in
this order: whether they complete a reassignment, which replicas are eligible to lead (KIP-966), who leads, and whether
a new leader epoch begins. The record names what differs from the partition as it is.

A leader is a live replica of the ISR. An unclean election makes one that is not the whole ISR, and marks the partition
as recovering (KIP-704). A new leader epoch begins with another leader and with each replica that is taken away, which
must not go on following. A smaller ISR begins none (KAFKA-15021).

Source: Kafka's PartitionChangeBuilder and PartitionReassignmentReplicas.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final

import attrs

from kafka_wire.stored.metadata import PartitionChangeRecord
from trio_broker.cluster.metadata_image import NO_LEADER, PartitionImage, directory_beside

RECOVERED: Final = 0
"""The leader has every committed record."""

RECOVERING: Final = 1
"""The leader was elected uncleanly, and has not yet recovered from it (KIP-704)."""

IsAcceptableLeader = Callable[[int, bytes], bool]
"""Whether a broker could lead now, with its replica in the log directory of this id."""


class Election(enum.Enum):
    """Which leader a change looks for."""

    PREFERRED = enum.auto()
    """The first replica if it is in sync, and else as ``ONLINE``."""
    ONLINE = enum.auto()
    """The leader that there is, or else the first replica that is live and in sync."""
    UNCLEAN = enum.auto()
    """As ``ONLINE``, or else any live replica, at a loss of records."""


@attrs.frozen
class Assignment:
    """The replicas of a partition, preferred leader first, and those of them that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: PartitionImage) -> Assignment:
        return cls(partition.replicas, partition.adding_replicas, partition.removing_replicas)

    def reassigned_to(self, target: Sequence[int]) -> Assignment:
        """The beginning of a reassignment to ``target``: the replicas that it removes stay until it is complete.

        What an earlier reassignment was adding still counts as added, so that a cancellation takes it out.
        """
        removing = tuple(sorted(set(self.replicas).difference(target)))
        replicas = (*target, *removing)
        original = self.reverted().replicas
        return Assignment(replicas, tuple(sorted(set(replicas).difference(original))), removing)

    def reverted(self) -> Assignment:
        """The replicas before the reassignment."""
        return Assignment(without(self.replicas, self.adding))

    def completed(self, isr: Sequence[int]) -> Assignment:
        """The replicas after the reassignment, if all that stay are in ``isr``; else itself."""
        if not self.adding and not self.removing:
            return self
        remaining = without(self.replicas, self.removing)
        is_complete = remaining and set(remaining).issubset(isr)
        return Assignment(remaining) if is_complete else self


def without(replicas: Iterable[int], others: Container[int]) -> tuple[int, ...]:
    """``replicas`` without the ``others``, in their order."""
    return tuple(replica for replica in replicas if replica not in others)


@attrs.frozen
class _Leadership:
    """Who leads and who could, as the steps of a change decide it one after the other."""

    leader: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    recovery_state: int


@attrs.frozen(kw_only=True)
class PartitionChangeBuilder:
    """One change of the partition ``index`` of a topic. Targets that are not given are what the partition has.

    With ``begins_leader_epoch`` a new leader epoch begins even under the same leader. ``unclean_shutdown_replicas``
    have ended without a clean stop, so they may lack records that they had. ``emptied_replicas`` come back without
    their log, so they have none of them.
    """

    partition: PartitionImage
    topic_id: bytes
    index: int
    is_acceptable_leader: IsAcceptableLeader
    min_insync_replicas: int
    eligible_leader_replicas_enabled: bool
    election: Election = Election.ONLINE
    begins_leader_epoch: bool = False
    unclean_shutdown_replicas: tuple[int, ...] = ()
    emptied_replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = attrs.field()
    assignment: Assignment = attrs.field()
    leader_recovery_state: int = attrs.field()
    directories: tuple[bytes, ...] = attrs.field()
    """Beside the present replicas."""

    @isr.default
    def _present_isr(self) -> tuple[int, ...]:
        return self.partition.isr

    @assignment.default
    def _present_assignment(self) -> Assignment:
        return Assignment.of(self.partition)

    @leader_recovery_state.default
    def _present_recovery_state(self) -> int:
        return self.partition.leader_recovery_state

    @directories.default
    def _present_directories(self) -> tuple[bytes, ...]:
        return self.partition.directories

    def build(self) -> PartitionChangeRecord | None:
        """Return the record of the change; None if it would change nothing."""
        assignment = self.assignment.completed(self.isr)
        isr = self.isr if assignment == self.assignment else without(self.isr, self.assignment.removing)
        leadership = self._elected(assignment.replicas, isr)
        return self._record(assignment, leadership, self._last_known_leader(leadership))

    # --- who could lead ---

    def _eligible_leader_replicas(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> tuple[int, ...]:
        """Replicas that have left the ISR since it was too small to commit anything, and so have all that is committed.

        With an ISR that is large enough the high watermark moves on without them.
        """
        if not self.eligible_leader_replicas_enabled or self._may_commit(replicas, isr):
            return ()
        candidates = set(self.partition.eligible_leader_replicas).union(self.partition.isr)
        return tuple(sorted(candidates.intersection(replicas).difference(isr, self.unclean_shutdown_replicas)))

    def _may_commit(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> bool:
        return len(isr) >= min(self.min_insync_replicas, len(replicas))

    def _can_lead(self, replica: int) -> bool:
        return replica != NO_LEADER and self.is_acceptable_leader(replica, self._directory_of(replica))

    # --- who leads ---

    def _elected(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> _Leadership:
        elr = self._eligible_leader_replicas(replicas, isr)
        leader = self._clean_leader(replicas, isr or elr)
        if leader != NO_LEADER:
            # A replica that is eligible leads alone until others have followed it.
            isr = isr or (leader,)
            elr = () if self._may_commit(replicas, isr) else without(elr, isr)
            return _Leadership(leader, isr, elr, self.leader_recovery_state)
        leader = self._unclean_leader(replicas, isr, elr)
        if leader != NO_LEADER:
            return _Leadership(leader, (leader,), (), RECOVERING)
        # Without eligible replicas the last of the ISR stay in it: nothing else would say who has all records.
        isr = isr if self.eligible_leader_replicas_enabled else isr or self.partition.isr
        return _Leadership(NO_LEADER, isr, elr, self.leader_recovery_state)

    def _clean_leader(self, replicas: tuple[int, ...], candidates: tuple[int, ...]) -> int:
        """The first live one of ``candidates``, with the leader that there is before all others, or the preferred."""
        first = (replicas[0],) if self.election is Election.PREFERRED else ()
        order = (*first, self.partition.leader, *replicas)
        return next((each for each in order if each in candidates and self._can_lead(each)), NO_LEADER)

    def _unclean_leader(self, replicas: tuple[int, ...], isr: tuple[int, ...], elr: tuple[int, ...]) -> int:
        """The last known leader where nobody is eligible any more, or else any live replica if that is allowed."""
        last_known = without(self.partition.last_known_elr, self.emptied_replicas)
        is_last_known = self.eligible_leader_replicas_enabled and not isr and not elr and len(last_known) == 1
        order = (*(last_known if is_last_known else ()), *(replicas if self.election is Election.UNCLEAN else ()))
        return next((each for each in order if each in replicas and self._can_lead(each)), NO_LEADER)

    def _last_known_leader(self, after: _Leadership) -> tuple[int, ...]:
        """The last leader while a partition has neither leader nor ISR (KIP-966's last known leader).

        Not one without its log: elected, it would have the others cut theirs to nothing. Kafka elects it.
        """
        before = self.partition
        if after.leader != NO_LEADER:
            return ()
        if not self.eligible_leader_replicas_enabled or after.isr or not before.isr:
            last_known = before.last_known_elr
        else:
            last_known = (before.leader if before.leader != NO_LEADER else before.isr[0],)
        return without(last_known, self.emptied_replicas)

    # --- the record ---

    def _record(
        self, assignment: Assignment, after: _Leadership, last_known_leader: tuple[int, ...]
    ) -> PartitionChangeRecord | None:
        before = self.partition
        changes: dict[str, Any] = {}

        def note(name: str, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
            if new != old:
                changes[name] = list(new)

        note("replicas", before.replicas, assignment.replicas)
        note("directories", before.directories, self._directories(assignment.replicas))
        note("adding_replicas", before.adding_replicas, assignment.adding)
        note("removing_replicas", before.removing_replicas, assignment.removing)
        note("isr", before.isr, after.isr)
        note("eligible_leader_replicas", before.eligible_leader_replicas, after.elr)
        note("last_known_elr", before.last_known_elr, last_known_leader)
        if after.recovery_state != before.leader_recovery_state:
            changes["leader_recovery_state"] = after.recovery_state
        if self._is_new_epoch(assignment, after.leader):
            changes["leader"] = after.leader
        if not changes:
            return None
        return PartitionChangeRecord(partition_id=self.index, topic_id=self.topic_id, **changes)

    def _is_new_epoch(self, assignment: Assignment, leader: int) -> bool:
        before = self.partition
        if leader != before.leader or not set(assignment.replicas).issuperset(before.replicas):
            return True
        return self.begins_leader_epoch and leader != NO_LEADER

    def _directories(self, replicas: tuple[int, ...]) -> tuple[bytes, ...]:
        if replicas == self.partition.replicas:
            return self.directories
        return tuple(map(self._directory_of, replicas))

    def _directory_of(self, replica: int) -> bytes:
        return directory_beside(self.partition.replicas, self.directories, replica)


def new_leader_epoch(
    partition: PartitionImage, topic_id: bytes, index: int, leader: int
) -> PartitionChangeRecord | None:
    """Return the change that begins a leader epoch under the only replica of a partition, which leads it; None for any
    other partition.

    As ``PartitionChangeBuilder`` would make it, in a tenth of the time: at the start of a node that is a cluster alone
    there are tens of thousands of such partitions.
    """
    alone = (leader,)
    if partition.leader == leader and partition.replicas == alone and partition.isr == alone:
        return PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)
    return None
