"""Two members of groups that do everything right, while others do not.

A classic member and one of KIP-848, each alone in its group, on a connection of its own. Many times a second they say
that they live, commit a position that grows, and read it back. Nothing but their own requests may change what they
are: a lost membership, a refused commit or a position that is not the last acknowledged one is an ``Unwell``. How long
the slowest heartbeat took is noted, and no more: machines differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import attrs

from fuzz.raw_client import RawConnection
from kafka_wire.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

PAUSE_SECONDS: Final = 0.02
"""Between two rounds: far more often than real members, so that a stall does not fall between two."""

SESSION_MS: Final = 45_000
"""Longer than a busy machine keeps a member from sending a heartbeat; the shortest that Kafka allows by default in the
protocol of KIP-848."""

GROUP_RESOURCE: Final = 32
SET: Final = 0

RETRIES: Final = 600
RETRY_SECONDS: Final = 0.05

AGAIN: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
"""What a coordinator answers that has just started."""

FIND_VERSION: Final = 4
JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
CONSUMER_HEARTBEAT_VERSION: Final = 1
OFFSETS_VERSION: Final = 9
ALTER_CONFIGS_VERSION: Final = 1


class Unwell(AssertionError):
    """Somebody who did everything right was treated as if not."""


def require(code: int, doing: str) -> None:
    if code:
        raise Unwell(f"{doing}: {ErrorCode(code).name}")


@attrs.define
class GoodGroup:
    """The two members. Their groups are ``<name>-classic`` and ``<name>-consumer``; both read ``topic``."""

    port: int
    name: str
    topic: str
    connection: RawConnection = attrs.field(init=False)
    member_id: str = ""
    generation_id: int = -1
    member_epoch: int = 0
    committed: int = 0
    rounds: int = 0
    slowest_seconds: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.connection = RawConnection.open(self.port)
        for group_id in self.group_ids:
            request = FindCoordinatorRequest(coordinator_keys=[group_id])
            self._ask_until_ready(request, FIND_VERSION, lambda answer: answer.coordinators[0].error_code)
        self._join()
        self._keep_consumer_session()
        self._consumer_heartbeat(joins=True)

    @property
    def group_ids(self) -> tuple[str, str]:
        return f"{self.name}-classic", f"{self.name}-consumer"

    def reconnect(self) -> None:
        """The broker was started again. Its groups are to be what they were."""
        self.connection.close()
        self.connection = RawConnection.open(self.port)
        self._ask_until_ready(self._heartbeat_request(), HEARTBEAT_VERSION, lambda answer: answer.error_code)
        for group_id in self.group_ids:
            if (found := self._position(group_id)) != self.committed:
                raise Unwell(f"{group_id} had committed {self.committed}, after the restart it is {found}")

    def check(self) -> None:
        """One round of everything.

        Raises:
            Unwell: something was refused or came back wrong.
            WrongAnswer, TimeoutError, OSError: there is no right answer.
        """
        began = time.perf_counter()
        require(self.connection.ask(self._heartbeat_request(), HEARTBEAT_VERSION).error_code, "classic heartbeat")
        self._consumer_heartbeat()
        self.slowest_seconds = max(self.slowest_seconds, time.perf_counter() - began)
        self.rounds += 1
        for group_id in self.group_ids:
            self._commit(group_id, self.rounds)
        self.committed = self.rounds
        for group_id in self.group_ids:
            if (found := self._position(group_id)) != self.committed:
                raise Unwell(f"{group_id} committed {self.committed} and reads {found}")

    def close(self) -> None:
        self.connection.close()

    # --- Steps ---

    def _ask_until_ready(self, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        for _ in range(RETRIES):
            response = self.connection.ask(request, version)
            code = code_of(response)
            if code not in AGAIN:
                require(code, type(request).__name__)
                return response
            time.sleep(RETRY_SECONDS)
        raise Unwell(f"{type(request).__name__} is not answered: {ErrorCode(code).name}")

    def _join(self) -> None:
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[self.topic]), 0)
        group_id, _ = self.group_ids
        for _ in range(2):
            request = JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            )
            joined = self.connection.ask(request, JOIN_VERSION)
            self.member_id = joined.member_id
        require(joined.error_code, "join")
        self.generation_id = joined.generation_id
        mine = [SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"")]
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=mine,
        )
        require(self.connection.ask(sync, SYNC_VERSION).error_code, "sync")

    def _keep_consumer_session(self) -> None:
        """Let the session of KIP-848, which is the group's setting, be as long as the other one."""
        session = AlterableConfig(name="consumer.session.timeout.ms", config_operation=SET, value=str(SESSION_MS))
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=self.group_ids[1], configs=[session]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = self.connection.ask(request, ALTER_CONFIGS_VERSION)
        require(answer.responses[0].error_code, "setting the session")

    def _heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=self.group_ids[0], generation_id=self.generation_id, member_id=self.member_id)

    def _consumer_heartbeat(self, *, joins: bool = False) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_ids[1], member_id=self.name, member_epoch=self.member_epoch
        )
        if joins:
            request.rebalance_timeout_ms = SESSION_MS
            request.subscribed_topic_names = [self.topic]
            request.topic_partitions = []
        response = self.connection.ask(request, CONSUMER_HEARTBEAT_VERSION)
        require(response.error_code, "consumer heartbeat")
        self.member_epoch = response.member_epoch

    def _commit(self, group_id: str, offset: int) -> None:
        is_classic = group_id == self.group_ids[0]
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=self.generation_id if is_classic else self.member_epoch,
            member_id=self.member_id if is_classic else self.name,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        response = self.connection.ask(request, OFFSETS_VERSION)
        require(response.topics[0].partitions[0].error_code, f"commit of {group_id}")

    def _position(self, group_id: str) -> int:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        [group] = self._ask_until_ready(request, OFFSETS_VERSION, lambda answer: answer.groups[0].error_code).groups
        offset: int = group.topics[0].partitions[0].committed_offset if group.topics else 0
        return offset


class GoodGroupThread(threading.Thread):
    """Keeps a ``GoodGroup`` at it while others are at theirs; ``problem`` is the first thing that went wrong."""

    def __init__(self, group: GoodGroup) -> None:
        super().__init__(name="good group", daemon=True)
        self.group = group
        self.problem: str | None = None
        self._enough = threading.Event()

    def run(self) -> None:
        try:
            while not self._enough.wait(PAUSE_SECONDS):
                self.group.check()
        except (AssertionError, OSError) as error:
            self.problem = repr(error)

    def finish(self) -> None:
        """Stop, after the round that is under way."""
        self._enough.set()
        self.join()


@contextmanager
def beside(group: GoodGroup) -> Iterator[GoodGroupThread]:
    """Keep ``group`` at it while the block runs.

    Raises:
        Unwell: something went wrong with it meanwhile.
    """
    thread = GoodGroupThread(group)
    thread.start()
    try:
        yield thread
    finally:
        thread.finish()
    if thread.problem is not None:
        raise Unwell(f"the good group: {thread.problem}")
