"""One step of a member towards its target assignment: the reconciliation of KIP-848.

A member gives up partitions first and gets others afterwards. While it owns partitions that are not in its target, it
stays at its epoch (UNREVOKED_PARTITIONS) until a heartbeat confirms that it has given them up. Then it moves to the
epoch of the target and gets those of its new partitions that no other member owns; while others still own some of them
it is in UNRELEASED_PARTITIONS, and each heartbeat tries again. In STABLE it has its target.

Partitions of topics that a member is no longer subscribed to are revoked at once, before a new target is computed.

Source: Kafka's CurrentAssignmentBuilder; KIP-848, "Reconciliation of the group".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_heartbeat import TopicPartitions
from trio_broker.coordinator.consumer.member import ConsumerMember, MemberState, PartitionEpochs, Target


@attrs.frozen(kw_only=True)
class Reconciliation:
    """What the next step of a member depends on.

    ``subscribed_topic_ids`` are those of the topics that exist. ``owners`` returns the members that own
    partitions of a topic. ``owned`` are the partitions that the member lists as its own, None if it lists none.
    """

    target_epoch: int
    target: Target
    subscription_changed: bool
    subscribed_topic_ids: frozenset[bytes]
    owners: Callable[[bytes], Mapping[int, str]]
    owned: Sequence[TopicPartitions] | None

    def next_step(self, member: ConsumerMember) -> ConsumerMember:
        """The member after one step, or unchanged if no step is possible.

        Raises:
            Refused: ``FENCED_MEMBER_EPOCH``: it is in a state that this broker does not know, and has to join anew.
        """
        match member.state:
            case MemberState.STABLE if member.member_epoch == self.target_epoch:
                return self._without_lost_topics(member) if self.subscription_changed else member
            case MemberState.UNREVOKED_PARTITIONS if self._still_has(member.pending_revocation):
                return self._without_lost_topics(member) if self.subscription_changed else member
            case MemberState.UNKNOWN if self.owned is None or self.owned:
                text = f"member {member.member_id} is in a state that this broker does not know, and has to join anew"
                raise KafkaError(text, code=ErrorCode.FENCED_MEMBER_EPOCH)
        return self._towards_target(member)

    def _still_has(self, partitions: PartitionEpochs) -> bool:
        """Whether the member may still use any of ``partitions``; it may if it does not list what it owns."""
        if self.owned is None:
            return True
        return any(index in partitions.get(topic.topic_id, {}) for topic in self.owned for index in topic.partitions)

    def _without_lost_topics(self, member: ConsumerMember) -> ConsumerMember:
        lost = {topic: epochs for topic, epochs in member.assigned.items() if topic not in self.subscribed_topic_ids}
        if not lost:
            return member
        kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in lost}
        pending = dict(member.pending_revocation)
        for topic, epochs in lost.items():
            pending[topic] = {**pending.get(topic, {}), **epochs}
        if self._still_has(pending):
            return member.at(member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
        return member.at(member.member_epoch, member.state, kept, member.pending_revocation)

    def _towards_target(self, member: ConsumerMember) -> ConsumerMember:
        kept: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        gained: dict[bytes, dict[int, int]] = {}
        has_unreleased = False
        for topic in sorted(self.target.keys() | member.assigned.keys()):
            wanted = self.target.get(topic, frozenset()) if topic in self.subscribed_topic_ids else frozenset()
            had = member.assigned.get(topic)
            missing = sorted(wanted if had is None else wanted - had.keys())
            if owners := self.owners(topic):
                free = [index for index in missing if self._is_free(member, topic, index, owners)]
                has_unreleased |= len(free) < len(missing)
            else:
                free = missing
            if had is not None:
                if stays := {index: epoch for index, epoch in had.items() if index in wanted}:
                    kept[topic] = stays
                if goes := {index: epoch for index, epoch in had.items() if index not in wanted}:
                    revoked[topic] = goes
            if free:
                gained[topic] = dict.fromkeys(free, self.target_epoch)
        if revoked and self._still_has(revoked):
            return member.at(self._epoch_to_stay_at(member), MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        for topic, epochs in gained.items():
            kept[topic] = {**kept[topic], **epochs} if topic in kept else epochs
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return member.at(self.target_epoch, state, kept, {})

    def _epoch_to_stay_at(self, member: ConsumerMember) -> int:
        return self.target_epoch if member.state is MemberState.UNKNOWN else member.member_epoch

    def _is_free(self, member: ConsumerMember, topic_id: bytes, partition: int, owners: Mapping[int, str]) -> bool:
        """Whether no other member owns the partition. What the member itself had to give up it may get back."""
        owner = owners.get(partition)
        return owner in (None, member.member_id) or partition in member.pending_revocation.get(topic_id, {})
