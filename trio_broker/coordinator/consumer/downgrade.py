"""A consumer group becomes a classic group, while its members go on.

When the last member that speaks the consumer protocol leaves, or a member of the classic protocol takes its place, the
members that are left have what they had as their target, and rebalance. The classic group is a new object, with the
records that make the one group into the other in the log; they are appended in the batch of the event that led to it.
If that fails, the consumer group is still what it was.

Source: Kafka's GroupMetadataManager.convertToClassicGroup and ClassicGroup.fromConsumerGroup; KIP-848, "Online
migration".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolTopic,
    encode_assignment,
    protocol_version,
)
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.consumer.member import ConsumerMember, Target
from trio_broker.coordinator.consumer.records import group_tombstones
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult, group_event
from trio_broker.coordinator.runtime.result import Now


@attrs.frozen(kw_only=True)
class Downgrade:
    """Who is in the classic group that a consumer group becomes.

    ``leaving`` are removed. ``joining`` is the static member that replaced the last one of the consumer protocol; the
    result of the event has its records. With ``rebalance`` the members have to rebalance at once, for ``reason``.
    """

    leaving: frozenset[str] = frozenset()
    joining: ConsumerMember | None = None
    rebalance: bool
    reason: str


def downgraded(
    downgrade: Downgrade, stored: StoredConsumerGroup, settings: GroupCoordinatorConfig, now: Now, image: MetadataImage
) -> GroupResult:
    """Return what follows after the result of the event; it replaces the group with the classic one.

    The generation is the group's epoch, and every member has its target as its assignment.
    """
    joining = downgrade.joining
    replaced = None if joining is None else stored.static_member(joining.instance_id)
    staying = [
        member
        for member in stored.members.values()
        if member is not replaced and member.member_id not in downgrade.leaving
    ]
    tombstoned = [member_id for member_id in stored.members if replaced is None or member_id != replaced.member_id]
    if joining is not None:
        staying.append(joining)
        tombstoned.append(joining.member_id)
    classic = ClassicGroup.of_members(
        stored.group_id,
        settings,
        now,
        generation_id=stored.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        members=[_classic_member(member, stored.target_of(member), image) for member in staying],
    )
    kind = GroupEventKind.PROTOCOL_CHANGED
    result = GroupResult(
        records=[*group_tombstones(stored.group_id, tombstoned, stored.patterns), classic.metadata_record()],
        events=[group_event(kind, now, stored.group_epoch, reason="from consumer to classic")],
        replace_with=classic,
    )
    if downgrade.rebalance:
        result.extend(classic.start_rebalance(downgrade.reason, now))
    return result


def _classic_member(member: ConsumerMember, target: Target, image: MetadataImage) -> ClassicMember:
    assert member.classic is not None, member
    protocols = {protocol.name: protocol.metadata for protocol in member.classic.supported_protocols}
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=protocols,
        assignment=assignment_bytes(target, member.classic.supported_protocols[0].metadata, image),
    )


def assignment_bytes(partitions: Mapping[bytes, Iterable[int]], metadata: bytes, image: MetadataImage) -> bytes:
    """``partitions`` as a client of the classic protocol reads them, in the version in which it wrote ``metadata``."""
    assigned = [
        ConsumerProtocolTopic(topic=image.topics_by_id[topic_id].name, partitions=sorted(indexes))
        for topic_id, indexes in sorted(partitions.items())
        if topic_id in image.topics_by_id
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), protocol_version(metadata))
