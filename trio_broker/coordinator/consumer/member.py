"""A member of a consumer group as its records describe it: its subscription, its epoch and its assignment.

A value: nothing changes it, ``attrs.evolve`` makes the next one. Two members are equal when the same records would be
written for them, so a comparison shows whether a heartbeat changed anything.

Source: Kafka's ConsumerGroupMember and MemberState; KIP-848, KIP-1251 for the epochs of partitions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafka_wire.stored.groups import ClassicMemberMetadata
from trio_broker.coordinator.runtime.result import RequestContext

JOIN_EPOCH: Final = 0
"""The epoch in the heartbeat of a member that joins, or joins again without any partitions."""

LEAVE_EPOCH: Final = -1
"""The epoch in the heartbeat of a member that leaves for good."""

STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that left and means to come back: its partitions wait for it."""

UNCHANGED_TIMEOUT: Final = -1
"""The rebalance timeout in a heartbeat that does not change it."""

PartitionEpochs = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch at which the member got it."""

Target = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

NO_PARTITIONS: Final[Mapping[bytes, Mapping[int, int]]] = {}
EMPTY_TARGET: Final[Target] = {}


class MemberState(enum.IntEnum):
    """How far a member is on its way to the target assignment; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and has not confirmed that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have not given up."""
    UNKNOWN = 127
    """A newer broker wrote a state that this one does not know."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@attrs.frozen(kw_only=True, weakref_slot=False)
class ConsumerMember:
    """One member. ``member_epoch`` is the epoch of its next heartbeat, and what clients use as generation id.

    ``previous_member_epoch`` is accepted, too, because the last response may have been lost. ``assigned`` are the
    partitions that it may use, ``pending_revocation`` those that it has to give up and owns until it confirms that.
    ``classic`` is set when the member speaks the classic protocol.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: PartitionEpochs = attrs.field(factory=dict)
    pending_revocation: PartitionEpochs = attrs.field(factory=dict)
    classic: ClassicMemberMetadata | None = None

    @property
    def pattern(self) -> str | None:
        """The regular expression subscribed to. An empty one is none: librdkafka sends it beside names."""
        return self.subscribed_topic_regex or None

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has all that it should have at ``target_epoch``, and nothing else."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def has_had(self, topic_id: bytes, partition: int, *, since_epoch: int) -> bool:
        """Whether it has the partition, and has had it since ``since_epoch`` or before."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        if epoch is None:
            epoch = self.pending_revocation.get(topic_id, {}).get(partition)
        return epoch is not None and epoch <= since_epoch

    def updated_by(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerMember:
        """The member with the fields of ``request``; the same object if nothing changes."""
        names = request.subscribed_topic_names
        updated = ConsumerMember(
            member_id=self.member_id,
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            instance_id=request.instance_id or self.instance_id,
            rack_id=request.rack_id or self.rack_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms
            if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT
            else request.rebalance_timeout_ms,
            client_id=context.client_id,
            client_host=context.client_host,
            subscribed_topic_names=self.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=self.subscribed_topic_regex
            if request.subscribed_topic_regex is None
            else request.subscribed_topic_regex,
            server_assignor=request.server_assignor or self.server_assignor,
            assigned=self.assigned,
            pending_revocation=self.pending_revocation,
            classic=None,
        )
        return self if updated == self else updated

    def at(
        self, member_epoch: int, state: MemberState, assigned: PartitionEpochs, pending: PartitionEpochs
    ) -> ConsumerMember:
        """The member after one step of its reconciliation; the epoch it leaves becomes the previous one."""
        return attrs.evolve(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )

    def replaced_by(self, member_id: str) -> ConsumerMember:
        """The static member under a new member id."""
        return attrs.evolve(self, member_id=member_id, member_epoch=0, previous_member_epoch=0)

    def away(self) -> ConsumerMember:
        """The static member while it is away: it keeps its assignment, and no commit for it is accepted."""
        return attrs.evolve(
            self,
            member_epoch=STATIC_LEAVE_EPOCH,
            assigned={topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()},
            pending_revocation={},
        )


def owns_no_more_than(owned: Iterable[TopicPartitions] | None, assigned: PartitionEpochs) -> bool:
    """Whether all partitions in ``owned`` are in ``assigned``; False if the member does not list them."""
    if owned is None:
        return False
    return all(partition in assigned.get(topic.topic_id, {}) for topic in owned for partition in topic.partitions)


def without_epochs(partitions: PartitionEpochs) -> Target:
    """The partitions alone."""
    return {topic: frozenset(epochs) for topic, epochs in partitions.items()}


def with_epoch(target: Target, epoch: int) -> PartitionEpochs:
    """All partitions of ``target`` as assigned at ``epoch``."""
    return {topic: dict.fromkeys(sorted(partitions), epoch) for topic, partitions in target.items()}
