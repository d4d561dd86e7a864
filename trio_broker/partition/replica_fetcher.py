"""Copies partitions from one leader: asks it with Fetch, appends what it answers, and cuts what it does not have.

A request has all partitions that this fetcher follows there. What came of it is applied to each on its own:

* records, the leader's high watermark and its log start follow; in fsync mode what was appended is on the disk before
  the next request, since that says so;
* where the logs part (``diverging_epoch``), the own one is cut at the end of the last epoch that both have, which may
  take several rounds, and never at the high watermark (KIP-101, KIP-279, KIP-595);
* an offset that the leader does not have any more, or not yet, is one it has told the ends of its log about;
* any other error is waited out, for that partition alone; one that cannot be appended to is left alone until the next
  leader epoch.

Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
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
from trio_broker.partition.follower_appends import FollowerAppends, Truncation
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.state import NO_EPOCH
from trio_broker.storage.leader_epochs import UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from trio_broker.storage.log import Log

log = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""How long a leader may take beside the wait that it was asked for, Kafka's ``replica.socket.timeout.ms``."""


class LeaderEndPoint(Protocol):
    """The connection to one leader; a ``NetworkClient``."""

    async def send(self, message: Request[Any], /, *, timeout_seconds: float) -> Any: ...


@attrs.define(eq=False)
class PartitionFetchState:
    """A partition that is followed, and whom in: ``leader_epoch`` is the one that the metadata have."""

    partition: Partition
    leader_epoch: int
    retry_at: float = 0.0
    """By Trio's clock: not to be asked for before."""
    is_failed: bool = False

    @property
    def key(self) -> tuple[bytes, int]:
        return self.partition.topic_id, self.partition.topic_partition.partition


@attrs.frozen(kw_only=True)
class FetcherSettings:
    """What all fetchers of a broker have in common. ``leader`` gives the connection to a broker for one of its
    fetchers, or raises RequestFailed; ``broker_epoch`` is the one of this broker's registration, -1 before it."""

    broker_id: int
    broker_epoch: Callable[[], int]
    leader: Callable[[int, int], LeaderEndPoint]
    appends: FollowerAppends
    config: Callable[[], ReplicationConfig]


class ReplicaFetcher:
    """See the head of the file. ``run`` is a task of the owner."""

    def __init__(self, leader_id: int, number: int, settings: FetcherSettings) -> None:
        self.leader_id = leader_id
        self.number = number
        self._settings = settings
        self._appends = settings.appends
        # In the order in which they are asked for: those that had records go to the end, so that none is starved.
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        self._changed = trio.Event()

    def __repr__(self) -> str:
        return f"<ReplicaFetcher of broker {self.leader_id}: {len(self.partitions)} partitions>"

    def add(self, partition: Partition, leader_epoch: int) -> None:
        """Follow a partition in this leader epoch from now on, also one that has failed in an earlier one."""
        known = self.partitions.get(partition.topic_partition)
        if known is None or known.partition is not partition or known.leader_epoch != leader_epoch:
            self.partitions[partition.topic_partition] = PartitionFetchState(partition, leader_epoch)
            self._changed.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Follow a partition no longer; what is under way for it comes to nothing."""
        self.partitions.pop(topic_partition, None)

    async def run(self) -> None:
        """Fetch until cancelled."""
        while True:
            await self.fetch_once()

    async def fetch_once(self) -> None:
        """Ask once for all that is due, or wait until something is."""
        now = trio.current_time()
        waiting = [each for each in self.partitions.values() if not each.is_failed]
        due = [each for each in waiting if each.retry_at <= now]
        if not due:
            self._changed = trio.Event()
            with trio.move_on_at(min((each.retry_at for each in waiting), default=float("inf"))):
                await self._changed.wait()
            return
        offsets = [each.partition.log_end_offset for each in due]
        settings = self._settings.config()
        wait_seconds = settings.replica_fetch_wait_max_ms / 1000
        try:
            response: FetchResponse = await self._send(self._request(due, settings), wait_seconds)
        except RequestFailed as error:
            log.debug("%r: %s", self, error)
            self._delay(due)
            return
        if response.error_code:
            log.warning("%r: the leader refuses: %s", self, ErrorCode(response.error_code).name)
            self._delay(due)
            return
        await self._apply(due, offsets, response)

    async def _send(self, message: Request[Any], wait_seconds: float = 0.0) -> Any:
        leader = self._settings.leader(self.leader_id, self.number)
        return await leader.send(message, timeout_seconds=wait_seconds + ANSWER_SECONDS)

    def _request(self, due: Sequence[PartitionFetchState], settings: ReplicationConfig) -> FetchRequest:
        topics: dict[bytes, FetchTopic] = {}
        for each in due:
            partition, epoch = each.partition, each.partition.log.latest_epoch
            topic = topics.get(partition.topic_id)
            if topic is None:
                topic = topics[partition.topic_id] = FetchTopic(topic_id=partition.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=partition.topic_partition.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=partition.log_end_offset,
                    last_fetched_epoch=NO_EPOCH if epoch is None else epoch,
                    log_start_offset=partition.log_start_offset,
                    partition_max_bytes=settings.replica_fetch_max_bytes,
                )
            )
        return FetchRequest(
            replica_state=ReplicaState(
                replica_id=self._settings.broker_id, replica_epoch=self._settings.broker_epoch()
            ),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            topics=list(topics.values()),
        )

    def _delay(self, states: Sequence[PartitionFetchState]) -> None:
        retry_at = trio.current_time() + self._settings.config().replica_fetch_backoff_ms / 1000
        for each in states:
            each.retry_at = retry_at

    # ---- what came of it ------------------------------------------------------------------------------------------

    async def _apply(self, due: Sequence[PartitionFetchState], offsets: Sequence[int], response: FetchResponse) -> None:
        topics = response.responses
        answers = {(topic.topic_id, data.partition_index): data for topic in topics for data in topic.partitions}
        truncations: dict[Partition, Truncation] = {}
        appended: list[PartitionFetchState] = []
        for each, offset in zip(due, offsets, strict=True):
            data = answers.get(each.key)
            # It may have been taken away, or belong to another leader by now.
            if self.partitions.get(each.partition.topic_partition) is not each:
                continue
            if data is None:
                self._delay([each])
            elif data.error_code:
                await self._refused(each, ErrorCode(data.error_code))
            elif data.diverging_epoch.epoch >= 0:
                end = EpochEndOffset(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                cut = truncation_offset(each.partition.log, end)
                truncations[each.partition] = Truncation(cut, each.leader_epoch)
            elif await self._done(each, self._take(each, offset, data)) and data.records:
                appended.append(each)
        await self._truncate(truncations)
        await self._end_round(appended)

    async def _done(self, state: PartitionFetchState, work: Awaitable[object]) -> bool:
        """Whether ``work`` on a partition has ended well. One that cannot go on waits for its next leader epoch."""
        try:
            await work
        except KafkaError as error:
            # The leader may have changed: the metadata tell. What came damaged is fetched again.
            if state.partition.failure is None and error.code in PASSING_CODES:
                self._delay([state])
            else:
                state.is_failed = True
                log.error("%s is no longer followed: %s", state.partition.topic_partition, error)
            return False
        return True

    async def _take(self, state: PartitionFetchState, offset: int, data: PartitionData) -> None:
        partition = state.partition
        partition.writer.require_following(state.leader_epoch)
        if data.records and partition.log_end_offset == offset:
            await self._appends.append(partition, memoryview(data.records), leader_epoch=state.leader_epoch)
            partition.writer.require_following(state.leader_epoch)
        partition.writer.leader_reported(data.high_watermark)
        await self._appends.advance_log_start(partition, data.log_start_offset)

    async def _end_round(self, appended: Sequence[PartitionFetchState]) -> None:
        for each in appended:
            topic_partition = each.partition.topic_partition
            if self.partitions.get(topic_partition) is each:
                self.partitions[topic_partition] = self.partitions.pop(topic_partition)
            if each.partition.durability is Durability.FSYNC:
                await self._appends.flusher.wait_idle(each.partition.writer)

    async def _truncate(self, truncations: dict[Partition, Truncation]) -> None:
        if not truncations:
            return
        for partition, cut in truncations.items():
            name, what = partition.topic_partition, "begins anew at" if cut.begins_anew else "is cut at"
            log.info("%s %s %d, as its leader of epoch %d has it", name, what, cut.offset, cut.leader_epoch)
            if cut.offset < partition.high_watermark:
                log.warning("%s: that is below its high watermark %d", name, partition.high_watermark)
        refusals = await self._appends.truncate(truncations)
        for partition, error in refusals.items():
            if (state := self.partitions.get(partition.topic_partition)) is not None:
                await self._done(state, _raised(error))

    async def _refused(self, state: PartitionFetchState, code: ErrorCode) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._done(state, self._find_offset(state))
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is ahead of the metadata here; they will say how to go on.
            state.is_failed = True
        else:
            self._delay([state])

    async def _find_offset(self, state: PartitionFetchState) -> None:
        """Go on where the leader's log is, whose end is before the own one (after an unclean election), or whose start
        is behind it.

        Raises:
            KafkaError: the leader, or the disk, refuses.
        """
        partition, end_offset = state.partition, state.partition.log_end_offset
        leader_end = await self._leader_offset(state, SpecialTimestamp.LATEST)
        if leader_end < end_offset:
            await self._truncate({partition: Truncation(leader_end, state.leader_epoch)})
            return
        leader_start = await self._leader_offset(state, SpecialTimestamp.EARLIEST)
        if leader_start > end_offset:
            await self._truncate({partition: Truncation(leader_start, state.leader_epoch, begins_anew=True)})

    async def _leader_offset(self, state: PartitionFetchState, timestamp: SpecialTimestamp) -> int:
        topic_partition = state.partition.topic_partition
        wanted = ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=state.leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._settings.broker_id,
            topics=[ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])],
        )
        try:
            response = await self._send(request)
        except RequestFailed as error:
            raise KafkaError(str(error), code=ErrorCode.NETWORK_EXCEPTION) from None
        [[answer]] = [topic.partitions for topic in response.topics]
        if answer.error_code:
            raise KafkaError(f"{topic_partition}: no offset of its leader", code=ErrorCode(answer.error_code))
        offset: int = answer.offset
        return offset


PASSING_CODES = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""After which the same is tried again; a disk that has failed for good is told by the partition's failure."""


def truncation_offset(log: Log, leader: EpochEndOffset) -> int:
    """Where to cut a log whose leader says that an epoch ends at an offset: at most at the end of that epoch in both.

    Where the own log does not know the epoch, at the end of the next lower one, and the leader is asked about that.
    """
    own = log.end_offset_for_epoch(leader.epoch)
    if own.end_offset == UNDEFINED_EPOCH_OFFSET:
        return min(leader.end_offset, log.log_end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, log.log_end_offset)
    return min(own.end_offset, leader.end_offset, log.log_end_offset)


async def _raised(error: KafkaError) -> None:
    raise error
