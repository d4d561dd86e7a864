"""Members of groups in a simulation, of the classic protocol and of the consumer protocol (KIP-848).

A member reads its partitions from the committed offsets on, commits every now and then, stalls now and then for longer
than its session, leaves, and comes back. It tells the history what it had and when.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

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
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.checking.history import Op, Outcome, Record
from tests.simulation.simulated_clients import RETRIABLE, RETRY_SECONDS, TOPIC, Reader
from tests.simulation.simulated_world import Connection, ConnectionLost, World

SESSION_SECONDS = 10.0
HEARTBEAT_SECONDS = 1.0
REBALANCE_SECONDS = 15.0

STALE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Codes after which a member has lost what it had."""


class LostMembership(Exception):
    """The group goes on without this member."""


class Rebalancing(Exception):
    """The group asks its members to join again."""


@attrs.define(eq=False)
class Member(ABC):
    """One member of ``group_id``. ``topic_id`` and ``partitions`` are the topic's."""

    world: World
    name: str
    group_id: str
    topic_id: bytes
    partitions: int
    has_generations = False
    member_id: str = ""
    epoch: int = -1
    connection: Connection = attrs.field(init=False)
    reader: Reader = attrs.field(init=False)
    is_leaving: bool = False
    owned: set[int] = attrs.field(factory=set)
    _committed: dict[int, int] = attrs.field(factory=dict)
    _heartbeat_at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.connection = self.world.connection(self.name)
        # Fetches wait on a connection of their own, as in every client.
        self.reader = Reader(self.world, self.world.connection(f"{self.name} reader"))

    async def run(self) -> None:
        """Be a member until cancelled, or until it was asked to leave."""
        while not self.is_leaving:
            try:
                await self.find_coordinator()
                await self.membership()
            except (ConnectionLost, LostMembership) as error:
                self.world.note(self.name, "begins again", type(error).__name__)
                if isinstance(error, LostMembership) or not self.may_rejoin:
                    self.forget_membership()
                self.lose()
                await trio.sleep(RETRY_SECONDS)
        self.world.tell(self.name, Op.CLOSE, self.group_id)
        self.connection.close()
        self.reader.connection.close()

    @property
    def may_rejoin(self) -> bool:
        """Whether a member that was cut off may join again by its id."""
        return self.world.random.random() < 0.7

    def forget_membership(self) -> None:
        self.member_id, self.epoch = "", -1

    @abstractmethod
    async def membership(self) -> None:
        """Join, and be a member until that ends.

        Raises:
            LostMembership, ConnectionLost: it has ended.
        """

    @abstractmethod
    async def heartbeat(self) -> None:
        """Send a sign of life, and do what the answer asks for."""

    async def find_coordinator(self) -> None:
        while True:
            response = await self.connection.ask(FindCoordinatorRequest(coordinator_keys=[self.group_id]), 4)
            code = ErrorCode(response.coordinators[0].error_code)
            if not code:
                return
            assert code in RETRIABLE, code.name
            await trio.sleep(RETRY_SECONDS)

    # ---- partitions

    async def take(self, partitions: Iterable[int]) -> None:
        """Own ``partitions`` from now on, each from its committed offset."""
        new = sorted(partitions)
        self.owned.update(new)
        self.world.tell(
            self.name, Op.ASSIGN, self.group_id, partitions=tuple(new), member_id=self.member_id, generation=self.epoch
        )
        if new:
            offsets = await self.committed_offsets(new)
            self.reader.positions |= {partition: offsets.get(partition) or 0 for partition in new}
            self._committed |= {partition: self.reader.positions[partition] for partition in new}

    def give_up(self, partitions: Iterable[int]) -> None:
        """Own ``partitions`` no longer, of this member's own accord."""
        gone = self._drop(partitions)
        self.world.tell(
            self.name, Op.REVOKE, self.group_id, partitions=gone, member_id=self.member_id, generation=self.epoch
        )

    def lose(self) -> None:
        """Own nothing any longer: the group goes on without this member, or may do so."""
        self.world.tell(self.name, Op.LOST, self.group_id, partitions=self._drop(self.owned))

    def _drop(self, partitions: Iterable[int]) -> tuple[int, ...]:
        gone = tuple(sorted(partitions))
        self.owned.difference_update(gone)
        for partition in gone:
            self.reader.positions.pop(partition, None)
        return gone

    async def committed_offsets(self, partitions: Sequence[int]) -> dict[int, int | None]:
        """What the group has committed, as soon as the coordinator says so.

        Raises:
            LostMembership, ConnectionLost: it does not.
        """
        group = OffsetFetchRequestGroup(
            group_id=self.group_id,
            member_id=None if self.has_generations else self.member_id,
            member_epoch=-1 if self.has_generations else self.epoch,
            topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))],
        )
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        while True:
            with self.world.doing(self.name, Op.FETCH_OFFSETS, self.group_id) as draft:
                found = (await self.connection.ask(request, 9)).groups[0]
                places = [each for topic in found.topics for each in topic.partitions]
                # What a transaction holds back is an error of its partition alone.
                code = ErrorCode(found.error_code or next((each.error_code for each in places if each.error_code), 0))
                if code:
                    draft.failed(code.name, Outcome.FAIL)
                else:
                    offsets = {
                        each.partition_index: None if each.committed_offset < 0 else each.committed_offset
                        for each in places
                    }
                    draft.fields["offsets"] = offsets
                    return offsets
            if code in STALE:
                raise LostMembership(code.name)
            assert code in RETRIABLE or code is ErrorCode.UNSTABLE_OFFSET_COMMIT, code.name
            await trio.sleep(RETRY_SECONDS)

    async def commit(self) -> None:
        """Commit the positions.

        Raises:
            LostMembership, Rebalancing, ConnectionLost: perhaps nothing was committed.
        """
        offsets = {
            partition: offset
            for partition, offset in self.reader.positions.items()
            if offset != self._committed.get(partition)
        }
        if not offsets:
            return
        wanted = [
            OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
            for partition, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=wanted)],
        )
        with self.world.doing(
            self.name, Op.COMMIT, self.group_id, offsets=offsets, member_id=self.member_id, generation=self.epoch
        ) as draft:
            response = await self.connection.ask(request, 9)
            codes = {ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions}
            code = next((code for code in codes if code), ErrorCode.NONE)
            if code in RETRIABLE:
                draft.failed(code.name, Outcome.INFO)
            elif code:
                draft.failed(code.name, Outcome.FAIL)
            else:
                self._committed |= offsets
        if code in STALE:
            raise LostMembership(code.name)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            raise Rebalancing
        assert not code or code in RETRIABLE, code.name

    # ---- reading

    def received(self, records: Sequence[Record]) -> None:
        """Process ``records``."""
        self.world.tell(self.name, Op.POLL, self.group_id, records=tuple(records))

    async def consume(self) -> None:
        """Read, commit and send heartbeats until the group asks for something else, or this member leaves.

        Raises:
            LostMembership, Rebalancing, ConnectionLost: what ended it.
        """
        chance = self.world.random
        while not self.is_leaving:
            if chance.random() < 0.005 and self.world.faults:
                with self.world.doing(self.name, Op.STALL, self.group_id):
                    await trio.sleep(SESSION_SECONDS * chance.uniform(0.5, 3))
            if self.reader.positions:
                try:
                    records = await self.reader.poll(max_wait_ms=chance.choice((0, 200, 500)))
                except ConnectionLost:
                    records = []
                    await trio.sleep(RETRY_SECONDS)
                if records:
                    self.received(records)
            else:
                await trio.sleep(RETRY_SECONDS)
            if chance.random() < 0.3:
                await self.commit()
            if trio.current_time() >= self._heartbeat_at:
                self._heartbeat_at = trio.current_time() + HEARTBEAT_SECONDS
                await self.heartbeat()


class ClassicMember(Member):
    """Of the classic protocol, eager: it gives up everything before it joins again."""

    has_generations = True

    async def membership(self) -> None:
        while not self.is_leaving:
            if self.owned:
                with contextlib.suppress(Rebalancing):
                    await self.commit()
            self.give_up(self.owned)
            joined = await self._join()
            owned = await self._synchronise(joined)
            if owned is None:
                continue
            await self.take(owned)
            try:
                await self.consume()
            except Rebalancing:
                continue
        await self._leave()

    async def _join(self) -> JoinGroupResponse:
        subscription = encode_subscription(ConsumerProtocolSubscription(topics=[TOPIC]), 0)
        while True:
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=round(SESSION_SECONDS * 1000),
                rebalance_timeout_ms=round(REBALANCE_SECONDS * 1000),
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="in-turn", metadata=subscription)],
            )
            response: JoinGroupResponse = await self.connection.ask(request, 9)
            code = ErrorCode(response.error_code)
            if not code:
                self.member_id, self.epoch = response.member_id, response.generation_id
                return response
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            elif code in STALE:
                raise LostMembership(code.name)
            else:
                assert code in RETRIABLE or code is ErrorCode.REBALANCE_IN_PROGRESS, code.name
                await trio.sleep(RETRY_SECONDS)

    async def _synchronise(self, joined: JoinGroupResponse) -> list[int] | None:
        """The partitions of this member, None if it has to join again."""
        assignments = []
        if joined.leader == self.member_id:
            ids = sorted(member.member_id for member in joined.members)
            assignments = [
                SyncGroupRequestAssignment(member_id=each, assignment=self._share(at, len(ids)))
                for at, each in enumerate(ids)
            ]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.epoch,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        while True:
            response = await self.connection.ask(request, 5)
            code = ErrorCode(response.error_code)
            if not code:
                topics = decode_assignment(response.assignment).assigned_partitions
                return [index for topic in topics for index in topic.partitions]
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                return None
            if code in STALE:
                raise LostMembership(code.name)
            assert code in RETRIABLE, code.name
            await trio.sleep(RETRY_SECONDS)

    def _share(self, at: int, members: int) -> bytes:
        mine = ConsumerProtocolTopic(topic=TOPIC, partitions=list(range(at, self.partitions, members)))
        return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=[mine]), 0)

    async def heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id)
        code = ErrorCode((await self.connection.ask(request, 4)).error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            raise Rebalancing
        if code in STALE:
            raise LostMembership(code.name)
        assert not code or code in RETRIABLE, code.name

    async def _leave(self) -> None:
        with contextlib.suppress(Rebalancing):
            await self.commit()
        self.give_up(self.owned)
        request = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
        await self.connection.ask(request, 5)


class ConsumerMember(Member):
    """Of the consumer protocol: the broker assigns, and waits for what must be given up first."""

    _was_answered: bool = False

    async def membership(self) -> None:
        self.epoch = 0
        if not self.member_id:
            self.member_id = f"{self.name}-{self.world.new_value()}"
        # A member that joins has nothing.
        self.lose()
        await self.heartbeat()
        await self.consume()
        try:
            await self.commit()
        except LostMembership:
            return
        self.give_up(self.owned)
        self.epoch = -1
        await self._send_heartbeat()

    async def heartbeat(self) -> None:
        assignment = await self._send_heartbeat()
        if assignment is None:
            return
        gone = self.owned - assignment
        if gone:
            await self.commit()
            self.give_up(gone)
        if new := assignment - self.owned:
            await self.take(new)
        # The broker learns at once what was given up; others wait for it.
        self._heartbeat_at = 0.0

    async def _send_heartbeat(self) -> set[int] | None:
        """Send one; return the assignment if the answer has one.

        Raises:
            LostMembership: the group does not know this member any more.
        """
        joining = self.epoch == 0
        # After an answer that did not come or was an error, all fields are sent, as by Kafka's client: the group then
        # repeats the assignment that may have been in it.
        is_full, self._was_answered = joining or not self._was_answered, False
        owned = TopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=round(REBALANCE_SECONDS * 1000) if is_full else -1,
            subscribed_topic_names=[TOPIC] if is_full else None,
            topic_partitions=[owned] if self.owned else [],
        )
        response = await self.connection.ask(request, 1)
        code = ErrorCode(response.error_code)
        if code in STALE:
            raise LostMembership(code.name)
        if code:
            assert code in RETRIABLE, code.name
            if joining:
                raise LostMembership(code.name)
            return None
        self._was_answered = True
        if self.epoch >= 0:
            self.epoch = response.member_epoch
        if response.assignment is None:
            return None
        return {index for topic in response.assignment.topic_partitions for index in topic.partitions}
