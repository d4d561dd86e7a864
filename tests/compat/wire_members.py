"""Group members that speak the protocol by themselves: so light that hundreds of them fit into one test.

A member lives in a task: it joins, is synchronised, sends heartbeats, and joins again when it is asked to. The leader
deals the partitions out in turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import trio

from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.running_broker import Connection

HEARTBEAT_SECONDS = 0.2
SESSION_MS = 30_000
RETRY_SECONDS = 0.02

AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
"""What a coordinator answers that is not ready yet."""


@asynccontextmanager
async def connection_to(servers: str) -> AsyncIterator[Connection]:
    host, _, port = servers.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield Connection(stream)


async def find_coordinator(connection: Connection, group_id: str) -> None:
    """Return when somebody coordinates the group."""
    while True:
        response = await connection.ask(FindCoordinatorRequest(coordinator_keys=[group_id]), 4)
        code = response.coordinators[0].error_code
        if not code:
            return
        assert code in AGAIN, ErrorCode(code).name
        await trio.sleep(RETRY_SECONDS)


@attrs.define(eq=False)
class WireMember:
    """One member of a group that reads one topic of so many partitions."""

    connection: Connection
    group_id: str
    topic: str
    partition_count: int
    member_id: str = ""
    generation_id: int = -1
    owned: frozenset[int] = frozenset()
    joins: int = 0

    async def join(self) -> None:
        """Join and be synchronised, as often as it takes to have an assignment."""
        self.owned = frozenset()
        while True:
            joined = await self._joined()
            if await self._synchronised(joined):
                return

    async def _joined(self) -> JoinGroupResponse:
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[self.topic]), 0)
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="in-turn", metadata=subscription)],
            )
            response: JoinGroupResponse = await self.connection.ask(request, 9)
            self.member_id = response.member_id or self.member_id
            if not response.error_code:
                self.generation_id = response.generation_id
                self.joins += 1
                return response
            if response.error_code in AGAIN:
                await trio.sleep(RETRY_SECONDS)
            else:
                assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(response.error_code).name

    async def _synchronised(self, joined: JoinGroupResponse) -> bool:
        assignments = []
        if joined.leader == self.member_id:
            ids = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=each, assignment=self._share(at, len(ids)))
                for at, each in enumerate(ids)
            ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        response = await self.connection.ask(request, 5)
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return False
        assert not response.error_code, ErrorCode(response.error_code).name
        topics = decode_assignment(response.assignment).assigned_partitions
        self.owned = frozenset(index for topic in topics for index in topic.partitions)
        return True

    def _share(self, at: int, members: int) -> bytes:
        mine = ConsumerProtocolTopic(topic=self.topic, partitions=list(range(at, self.partition_count, members)))
        return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[mine]), 0)

    async def live(self) -> None:
        """Send heartbeats, and join again whenever the group rebalances, until cancelled."""
        while True:
            await trio.sleep(HEARTBEAT_SECONDS)
            code = await self.heartbeat()
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
            else:
                assert code == ErrorCode.NONE, code.name

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation_id, member_id=self.member_id)
        return ErrorCode((await self.connection.ask(request, 4)).error_code)

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
        response = await self.connection.ask(request, 5)
        assert not response.error_code, response

    async def commit(self, offset: int) -> None:
        """Commit ``offset`` in every partition it owns."""
        wanted = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in self.owned
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=wanted)],
        )
        response = await self.connection.ask(request, 9)
        assert all(not each.error_code for topic in response.topics for each in topic.partitions), response


async def committed(connection: Connection, *group_ids: str) -> dict[str, dict[int, int]]:
    """The offsets of each group by partition, whatever the topic, as soon as their coordinator is ready."""
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in group_ids]
    while True:
        response = await connection.ask(OffsetFetchRequest(groups=groups), 9)
        codes = {group.error_code for group in response.groups}
        if codes == {0}:
            break
        assert codes <= {0, *AGAIN}, codes
        await trio.sleep(RETRY_SECONDS)
    return {
        group.group_id: {
            each.partition_index: each.committed_offset for topic in group.topics for each in topic.partitions
        }
        for group in response.groups
    }
