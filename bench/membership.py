"""Members of a classic group, as cheaply as a benchmark needs them: frames built once, answers read if they matter."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

import attrs

from bench.wire import BenchError, answer, ask, request_frame, require
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

FIND_COORDINATOR_VERSION = 2
JOIN_VERSION = 7
SYNC_VERSION = 5
COMMIT_VERSION = 8

SESSION_TIMEOUT_MS = 600_000
"""No member of a benchmark sends heartbeats, and none shall be missed."""

PROTOCOL = "range"


def subscription(topic: str, number: int) -> bytes:
    """What a consumer says of itself in the ``consumer`` protocol, version 0, with ``number`` as its own data."""
    return struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">iq", 8, number)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    """The assignment of a consumer in the ``consumer`` protocol, version 0."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    numbers = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + name + numbers + struct.pack(">i", -1)


def find_coordinator(sock: socket.socket, group_id: str) -> None:
    """Let the broker create what it keeps groups in. Raises BenchError when it does not."""
    response = ask(sock, FindCoordinatorRequest(key=group_id), FIND_COORDINATOR_VERSION)
    require(response.error_code, "finding the coordinator")


@attrs.define
class Member:
    """One member on a connection of its own."""

    sock: socket.socket
    group_id: str
    topic: str
    member_id: str = ""
    generation_id: int = -1
    leader_id: str = ""
    member_ids: Sequence[str] = ()
    joins: int = 0
    """In its subscription, so that each join causes a rebalance, in whichever order they come."""

    def ask_for_id(self) -> None:
        """The first JoinGroup, which a newcomer is sent away from with an id."""
        response = ask(self.sock, self.join_request(), JOIN_VERSION)
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise BenchError(f"the first join: {ErrorCode(response.error_code).name}")
        self.member_id = response.member_id

    def join_request(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=PROTOCOL, metadata=subscription(self.topic, self.joins))],
        )

    def send_join(self) -> None:
        self.joins += 1
        self.sock.sendall(request_frame(self.join_request(), JOIN_VERSION))

    def receive_join(self) -> None:
        """Wait until everybody has joined."""
        response = answer(self.sock, JoinGroupRequest, JOIN_VERSION)
        require(response.error_code, "joining")
        self.generation_id, self.leader_id = response.generation_id, response.leader
        self.member_ids = [member.member_id for member in response.members]

    def send_sync(self) -> None:
        """Ask for an assignment; the leader brings everybody's, one partition for each."""
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment(self.topic, [index]))
            for index, member_id in enumerate(self.member_ids)
        ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
            assignments=assignments if self.leader_id == self.member_id else [],
        )
        self.sock.sendall(request_frame(request, SYNC_VERSION))

    def receive_sync(self) -> None:
        require(answer(self.sock, SyncGroupRequest, SYNC_VERSION).error_code, "syncing")

    def commit_frame(self, partition: int) -> bytearray:
        """A commit of one partition, to be sent again and again."""
        position = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=123_456, committed_leader_epoch=0, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation_id,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[position])],
        )
        return request_frame(request, COMMIT_VERSION)


def rebalance(members: Sequence[Member]) -> None:
    """Let everybody join and sync, each in a request that waits for the others."""
    for member in members:
        member.send_join()
    for member in members:
        member.receive_join()
    for member in members:
        member.send_sync()
    for member in members:
        member.receive_sync()
