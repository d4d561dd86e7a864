"""The leader of partitions as a follower asks it: Fetch and ListOffsets over a connection of the follower's own.

Its own, because a leader holds the answer to a Fetch back until it has something, and answers come in order.

Source: Kafka's RemoteLeaderEndPoint and BrokerBlockingSender.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Protocol, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kafka_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    SpecialTimestamp,
)
from kafka_wire.schema import Request
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.replication_config import ReplicationConfig
from trio_broker.network.errors import RequestFailed
from trio_broker.partition.fetch_answers import FollowerPosition
from trio_broker.partition.fetch_session_handler import FetchKey, FetchSessionHandler
from trio_broker.partition.fetch_sessions import FINAL_EPOCH

ResponseT = TypeVar("ResponseT")


class LeaderClient(Protocol):
    """See ``trio_broker.network.network_client.NetworkClient``."""

    async def send(self, message: Request[ResponseT], *, timeout_seconds: float) -> ResponseT:
        """Send a request and return its response.

        Raises:
            RequestFailed: there is none.
        """
        ...


class LeaderClients(Protocol):
    """See ``trio_broker.cluster.broker_clients.BrokerClients``."""

    def client(self, broker_id: int) -> LeaderClient:
        """Return the client of a broker.

        Raises:
            RequestNotSent: it is not there.
        """
        ...

    async def run(self) -> None: ...


@attrs.frozen
class Follower:
    """This broker as the leaders of partitions see it; ``broker_epoch`` is that of its registration."""

    node_id: int
    broker_epoch: Callable[[], int]


@attrs.frozen
class LeaderLogRange:
    """Where the log of a leader begins and ends."""

    log_start_offset: int
    log_end_offset: int


@attrs.frozen
class RemoteLeaderEndpoint:
    """See the head of the file. ``run`` is a task of the owner, without which nothing is sent."""

    leader_id: int
    clients: LeaderClients
    follower: Follower
    settings: ReplicationConfig
    session: FetchSessionHandler = attrs.field(factory=FetchSessionHandler)

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        await self.clients.run()

    async def fetch(
        self, positions: Mapping[FetchKey, FollowerPosition], *, max_wait_seconds: float = math.inf
    ) -> FetchResponse:
        """Ask for what follows the logs of the follower. Partitions without news are not in the answer, which the
        leader holds back for at most ``max_wait_seconds`` and ``replica.fetch.wait.max.ms`` where there are none.

        Raises:
            RequestFailed: there is no answer.
        """
        settings, wanted = self.settings, self.session.build(positions)
        request = FetchRequest(
            replica_state=self._replica_state(),
            max_wait_ms=math.ceil(min(settings.replica_fetch_wait_max_ms, max_wait_seconds * 1000)),
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=wanted.session_id,
            session_epoch=wanted.epoch,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[self._asked(key, positions[key]) for key in keys])
                for topic_id, keys in groupby(wanted.to_send, key=_topic_id)
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=[key.partition for key in keys])
                for topic_id, keys in groupby(wanted.to_forget, key=_topic_id)
            ],
        )
        response = await self._send(request)
        self.session.answered(response)
        return response

    async def end_wait(self) -> None:
        """Have the leader answer a Fetch that it holds back, by a request behind it that asks for nothing."""
        nothing = FetchRequest(
            replica_state=self._replica_state(), max_wait_ms=0, min_bytes=0, session_epoch=FINAL_EPOCH, topics=[]
        )
        with suppress(RequestFailed):
            await self._send(nothing)

    def _replica_state(self) -> ReplicaState:
        return ReplicaState(replica_id=self.follower.node_id, replica_epoch=self.follower.broker_epoch())

    def _asked(self, key: FetchKey, position: FollowerPosition) -> FetchPartition:
        return FetchPartition(
            partition=key.partition,
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self.settings.replica_fetch_max_bytes,
        )

    async def range_of(self, partition: TopicPartition, leader_epoch: int) -> LeaderLogRange:
        """Return where the leader's log of one partition begins and ends.

        Raises:
            RequestFailed: there is no answer.
            KafkaError: the leader's refusal.
        """
        # The end first: a log that begins behind what was its end is then seen to begin behind the follower's.
        log_end_offset = await self._offset(partition, leader_epoch, SpecialTimestamp.LATEST)
        log_start_offset = await self._offset(partition, leader_epoch, SpecialTimestamp.EARLIEST_LOCAL)
        return LeaderLogRange(log_start_offset, log_end_offset)

    async def _offset(self, partition: TopicPartition, leader_epoch: int, timestamp: SpecialTimestamp) -> int:
        wanted = ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        response = await self._send(ListOffsetsRequest(replica_id=self.follower.node_id, topics=[topic]))
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(
                f"{partition}: the leader does not say where its log begins and ends", code=ErrorCode(answer.error_code)
            )
        return answer.offset

    async def _send(self, request: Request[ResponseT]) -> ResponseT:
        client = self.clients.client(self.leader_id)
        return await client.send(request, timeout_seconds=self.settings.replica_socket_timeout_ms / 1000)


def _topic_id(key: FetchKey) -> bytes:
    return key.topic_id
