"""A group coordinator over real logs, and members of its groups that need no socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from trio_broker.bootstrap import open_services
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.common.request_phase import RequestPhase
from trio_broker.config.broker_config import load_broker_config
from trio_broker.config.listeners import advertised_endpoints
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime

LATEST_JOIN = 9


def no_park(phase: RequestPhase) -> None:
    """A request that holds no handler slot."""


@attrs.define
class CoordinatorHarness:
    """The services of a broker without a network, their clock, and short ways to be a client of its groups."""

    services: BrokerServices
    clock: ManualClock

    @property
    def groups(self):
        return self.services.groups

    def advance(self, seconds: float) -> None:
        """Let wall clock time pass; the clock of timers is Trio's own."""
        self.clock.advance(seconds)

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        [outcome] = await self.services.controller.create_topics([NewTopic(name=name, num_partitions=partitions)])
        assert not isinstance(outcome, Exception), outcome

    # ---- classic members

    async def join(self, group_id: str, member_id: str = "", **fields: Any) -> JoinGroupResponse:
        """One JoinGroup of a consumer."""
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            session_timeout_ms=fields.pop("session_timeout_ms", 10_000),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 60_000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"subscription")],
            **fields,
        )
        response: JoinGroupResponse = await self.groups.call(
            group_id, request, RequestContext("client", "/127.0.0.1", LATEST_JOIN), no_park
        )
        return response

    async def enter(self, group_id: str, **fields: Any) -> JoinGroupResponse:
        """Join as a newcomer does: ask for an id, and come again with it."""
        first = await self.join(group_id, **fields)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return await self.join(group_id, first.member_id, **fields)

    async def sync(self, joined: JoinGroupResponse, group_id: str, **assignments: bytes) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()],
        )
        response: SyncGroupResponse = await self.groups.call(
            group_id, request, RequestContext("client", "/127.0.0.1", 5), no_park
        )
        return response

    async def settle(self, group_id: str) -> JoinGroupResponse:
        """A group of one member in a stable generation."""
        joined = await self.enter(group_id)
        synced = await self.sync(joined, group_id, **{joined.member_id: b"assignment"})
        assert synced.error_code == 0
        return joined

    async def heartbeat(self, joined: JoinGroupResponse, group_id: str) -> int:
        request = HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id)
        code: int = (
            await self.groups.call(group_id, request, RequestContext("client", "/127.0.0.1", 4), no_park)
        ).error_code
        return code

    async def leave(self, joined: JoinGroupResponse, group_id: str) -> int:
        request = LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=joined.member_id)])
        response = await self.groups.call(group_id, request, RequestContext("client", "/127.0.0.1", 5), no_park)
        code: int = response.error_code or response.members[0].error_code
        return code

    # ---- offsets

    async def commit(self, group_id: str, offset: int, *, topic: str = "t", member: Any = None, **fields: Any) -> int:
        """Commit in partition 0, as a simple consumer or a member; the partition's error code."""
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=fields.pop("metadata", None)
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=member.generation_id if member else -1,
            member_id=member.member_id if member else "",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
            **fields,
        )
        response = await self.groups.call(group_id, request, RequestContext("client", "/127.0.0.1", 9), no_park)
        code: int = response.topics[0].partitions[0].error_code
        return code

    async def committed(self, group_id: str) -> dict[str, dict[int, int]]:
        """What the group has committed, by topic and partition."""
        request = OffsetFetchRequestGroup(group_id=group_id, topics=None)
        response = await self.groups.fetch_offsets(request, no_park)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return {
            topic.name: {each.partition_index: each.committed_offset for each in topic.partitions}
            for topic in response.topics
        }


@asynccontextmanager
async def running_coordinator(directory: Path, *, clock: ManualClock | None = None, **settings: str):
    """Open the services of a broker on ``directory`` with its coordinator running; closed cleanly at the end."""
    overrides = {
        "log.dirs": str(directory),
        "listeners": "PLAINTEXT://localhost:9092",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    config = load_broker_config(None, overrides, {})
    clock = clock or ManualClock()
    advertised = {endpoint.listener_name: endpoint for endpoint in advertised_endpoints(config.socket_server)}
    async with open_services(config, real_runtime(clock), advertised) as services, trio.open_nursery() as nursery:
        await nursery.start(services.replicas.run)
        await nursery.start(services.groups.run)
        await services.groups.runtime.wait_until_loaded()
        yield CoordinatorHarness(services, clock)
        services.groups.runtime.close()
        nursery.cancel_scope.cancel()
