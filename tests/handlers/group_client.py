"""Talking to the groups of a whole broker in any version, from the bytes of a request to those of its answer."""

from __future__ import annotations

from typing import Any

import attrs

from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.list_groups import ListGroupsRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kafka_wire.primitives import NO_UUID
from tests.handlers.wire_client import WireClient
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.handlers.support.services import BrokerServices

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"
"""A consumer's subscription to topic ``t``, in version 1 of its own protocol."""

ASSIGNMENT = b"assigned"


GROUP_G = ConfigResource(ConfigResourceType.GROUP, "g")


@attrs.define
class Member:
    """A member of a classic group, as its answers describe it."""

    group_id: str
    member_id: str
    generation_id: int


@attrs.define
class GroupClient:
    """Clients of all versions on one connection."""

    wire: WireClient

    @property
    def services(self) -> BrokerServices:
        return self.wire.services

    def topic_id(self, topic: str) -> bytes:
        known = self.services.metadata_cache.image.topics.get(topic)
        return known.topic_id if known else bytes(15) + b"\x07"

    async def set_config(self, name: str, value: str | None, resource: ConfigResource = GROUP_G) -> None:
        """Set one of the settings of a resource, or take it away."""
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = ResourceAlterations(resource, (ConfigAlteration(name, operation, value),))
        outcome = await self.services.controller.change_configs([change])
        assert outcome.results == [resource]

    # ---- classic members ------------------------------------------------------------------------------------------

    async def join(
        self,
        version: int,
        member_id: str = "",
        *,
        group_id: str = "g",
        protocol_type: str = "consumer",
        protocols: tuple[str, ...] = ("range",),
        metadata: bytes = SUBSCRIPTION,
        session_timeout_ms: int = 10_000,
        **fields: Any,
    ) -> JoinGroupResponse:
        offered = [JoinGroupRequestProtocol(name=name, metadata=metadata) for name in protocols]
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            member_id=member_id,
            protocol_type=protocol_type,
            protocols=offered,
            **fields,
        )
        response: JoinGroupResponse = await self.wire.ask(request, version)
        return response

    async def sync(
        self, version: int, member: Member, *, protocol_type: str = "consumer", protocol_name: str = "range", **fields
    ) -> SyncGroupResponse:
        if version >= 5:
            fields |= {"protocol_type": protocol_type, "protocol_name": protocol_name}
        fields.setdefault(
            "assignments", [SyncGroupRequestAssignment(member_id=member.member_id, assignment=ASSIGNMENT)]
        )
        request = SyncGroupRequest(
            group_id=member.group_id, generation_id=member.generation_id, member_id=member.member_id, **fields
        )
        response: SyncGroupResponse = await self.wire.ask(request, version)
        return response

    async def enter(self, version: int = 3, *, group_id: str = "g", **fields: Any) -> Member:
        """Join, with a second request where the version wants it, and sync: the one member of a stable group."""
        joined = await self.join(version, group_id=group_id, **fields)
        if joined.error_code == 79:
            joined = await self.join(version, joined.member_id, group_id=group_id, **fields)
        assert joined.error_code == 0, joined
        member = Member(group_id, joined.member_id, joined.generation_id)
        synced = await self.sync(min(version, 3), member)
        assert synced.error_code == 0, synced
        return member

    async def heartbeat(self, version: int, member: Member, **fields: Any) -> int:
        request = HeartbeatRequest(
            group_id=member.group_id, generation_id=member.generation_id, member_id=member.member_id, **fields
        )
        code: int = (await self.wire.ask(request, version)).error_code
        return code

    async def leave(self, version: int, member: Member) -> int:
        """The code for the one member, wherever the version has it."""
        if version < 3:
            request = LeaveGroupRequest(group_id=member.group_id, member_id=member.member_id)
            whole: int = (await self.wire.ask(request, version)).error_code
            return whole
        request = LeaveGroupRequest(group_id=member.group_id, members=[MemberIdentity(member_id=member.member_id)])
        response = await self.wire.ask(request, version)
        code: int = response.error_code or response.members[0].error_code
        return code

    # ---- consumers of KIP-848 -------------------------------------------------------------------------------------

    async def consume(
        self, version: int, member_id: str, member_epoch: int, *, group_id: str = "g", **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        if member_epoch == 0:
            fields = {
                "rebalance_timeout_ms": 30_000,
                "subscribed_topic_names": ["t"],
                "topic_partitions": [],
                **fields,
            }
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, **fields
        )
        response: ConsumerGroupHeartbeatResponse = await self.wire.ask(request, version)
        return response

    # ---- offsets --------------------------------------------------------------------------------------------------

    async def commit(
        self,
        version: int,
        member: Member | None = None,
        *,
        group_id: str = "g",
        topic: str = "t",
        offset: int = 7,
        indexes: tuple[int, ...] = (0,),
        metadata: str | None = "",
        **fields: Any,
    ) -> list[int]:
        """Codes by partition. Without ``member``, as a consumer that assigns its partitions itself."""
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index in indexes
        ]
        topic_id = self.topic_id(topic) if version >= 10 else NO_UUID
        wanted = OffsetCommitRequestTopic(name=topic if version < 10 else "", topic_id=topic_id, partitions=partitions)
        request = OffsetCommitRequest(
            group_id=member.group_id if member else group_id,
            member_id=member.member_id if member else "",
            generation_id_or_member_epoch=member.generation_id if member else -1,
            topics=[wanted],
            **fields,
        )
        response = await self.wire.ask(request, version)
        return [partition.error_code for topic in response.topics for partition in topic.partitions]

    async def fetch(
        self, version: int, *, group_id: str = "g", topic: str = "t", indexes: tuple[int, ...] = (0,), **fields: Any
    ) -> list[tuple[int, int]]:
        """Error code and offset of each partition."""
        if version < 8:
            old = OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))
            response = await self.wire.ask(OffsetFetchRequest(group_id=group_id, topics=[old]), version)
            topics = response.topics
        else:
            wanted = OffsetFetchRequestTopics(partition_indexes=list(indexes))
            if version < 10:
                wanted.name = topic
            else:
                wanted.topic_id = self.topic_id(topic)
            group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted], **fields)
            [answer] = (await self.wire.ask(OffsetFetchRequest(groups=[group]), version)).groups
            if answer.error_code:
                return [(answer.error_code, -1)]
            topics = answer.topics
        return [(each.error_code, each.committed_offset) for topic in topics for each in topic.partitions]

    # ---- what there is --------------------------------------------------------------------------------------------

    async def state(self, group_id: str = "g") -> tuple[Any, ...]:
        """Everything that a client can see of a group: to be the same before and after a request that was refused."""
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        listed = await self.wire.ask(ListGroupsRequest(), 5)
        assert listed.error_code == 0
        return (
            await self.wire.ask(DescribeGroupsRequest(groups=[group_id]), 6),
            await self.wire.ask(OffsetFetchRequest(groups=[group]), 9),
            listed,
        )
