"""One member of a classic group.

Source: Kafka's ClassicGroupMember.
"""

from __future__ import annotations

import attrs

from kafka_wire.messages.describe_groups import DescribedGroupMember
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponseMember
from kafka_wire.stored.groups import MemberMetadata
from trio_broker.coordinator.classic.protocols import (
    CONSUMER_PROTOCOL_TYPE,
    Protocols,
    assigned_partitions,
    protocols_of,
    subscribed_topics,
)
from trio_broker.coordinator.classic.responses import rebalance_timeout_ms
from trio_broker.coordinator.reporting.snapshot import MemberSnapshot
from trio_broker.coordinator.runtime.response_future import ResponseFuture

NO_ASSIGNMENT = b""
NO_DEADLINE = float("inf")


@attrs.define(eq=False)
class ClassicMember:
    """What a member says of itself, its assignment, and its requests that wait for a response.

    ``session_deadline`` is in seconds of the clock that never goes back. ``is_new`` holds until the first generation
    that the member is part of: up to then it may not know its own id, so that it cannot send heartbeats.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = NO_ASSIGNMENT
    is_new: bool = False
    session_deadline: float = NO_DEADLINE
    awaiting_join: ResponseFuture | None = None
    awaiting_sync: ResponseFuture | None = None

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol: str) -> ClassicMember:
        """A member as a generation's record has it: of its strategies only the chosen one is known."""
        return cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocols={protocol: bytes(stored.subscription)},
            assignment=bytes(stored.assignment),
        )

    @property
    def has_session_timeout(self) -> bool:
        """Whether silence ends the membership now. A member that waits for a response sends no heartbeats; a new one is
        not waited for without end all the same, since its client may be gone.
        """
        return self.is_new or (self.awaiting_join is None and self.awaiting_sync is None)

    def metadata(self, protocol: str | None) -> bytes:
        """The member's bytes for the strategy ``protocol``."""
        return self.protocols.get(protocol, b"") if protocol is not None else b""

    def replaced_by(self, member_id: str, request: JoinGroupRequest) -> ClassicMember:
        """The same static member under a new id, as ``request`` describes it, without requests that wait."""
        return attrs.evolve(
            self,
            member_id=member_id,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocols=protocols_of(request.protocols),
            session_deadline=NO_DEADLINE,
            awaiting_join=None,
            awaiting_sync=None,
            is_new=False,
        )

    # --- In the fields of each message ---

    def for_leader(self, protocol: str | None) -> JoinGroupResponseMember:
        return JoinGroupResponseMember(
            member_id=self.member_id, group_instance_id=self.instance_id, metadata=self.metadata(protocol)
        )

    def stored(self, protocol: str | None, assignment: bytes | None = None) -> MemberMetadata:
        """For the log, with ``assignment`` in the place of the member's own if there is one."""
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=self.assignment if assignment is None else assignment,
        )

    def described(self, protocol: str | None) -> DescribedGroupMember:
        """For DescribeGroups. Without a protocol, as in an unstable group, the metadata is empty."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=self.metadata(protocol),
            member_assignment=self.assignment,
        )

    def snapshot(self, protocol_type: str | None, protocol: str | None) -> MemberSnapshot:
        is_consumer = protocol_type == CONSUMER_PROTOCOL_TYPE
        topics = subscribed_topics(self.metadata(protocol)) if is_consumer else None
        return MemberSnapshot(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topics=topics or (),
            assignment=assigned_partitions(self.assignment) if is_consumer else None,
        )
