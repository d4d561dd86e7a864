"""A task that copies partitions from one of their leaders: it fetches what follows their logs here, and appends it.

One Fetch at a time for all of its partitions::

    ready partitions ──▶ Fetch ──▶ answers ──▶ append, truncate, … side by side ──▶ in fsync mode: one sync of each
          ▲                                                                                     │
          └─────────────────────────────────────────────────────────────────────────────────────┘

What can be asked for while a Fetch is under way, such as partitions that have just been elected a leader, does not wait
until the leader has something to answer that with: a second request behind it has the leader answer at once.

Asking for what follows the log says to the leader that this replica has all before. So in fsync mode a partition is not
asked for until its log is durable; in page-cache mode that is not waited for. A partition that takes longer than an
empty Fetch does is left out until it is ready, and the others go on; one that the leader refuses is left out for
``replica.fetch.backoff.ms``, or shorter while the leader has yet to read that it leads; and one whose leader epoch is
over, or whose disk failed, until ``follow`` names it again.

Source: Kafka's AbstractFetcherThread and ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePath

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.fetch import FetchResponse, PartitionData
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background, start_once
from trio_broker.concurrency.side_by_side import SIDE_BY_SIDE
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.network.errors import RequestFailed
from trio_broker.partition.fetch_answers import (
    Append,
    AwaitLeader,
    AwaitMetadata,
    Delay,
    FindRange,
    FollowerPosition,
    Truncate,
    name_of,
    next_step,
    step_into_range,
)
from trio_broker.partition.fetch_rate import FetchRate
from trio_broker.partition.fetch_session_handler import FetchKey
from trio_broker.partition.follower_appends import FollowerAppends, Truncation
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.remote_leader_endpoint import RemoteLeaderEndpoint
from trio_broker.partition.replication_quota_manager import ReplicationQuotaManager
from trio_broker.storage.leader_epochs import UNDEFINED_EPOCH

log = logging.getLogger(__name__)

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""After them the next Fetch begins a new session, at once: the leader has forgotten the one before, nothing more."""

STRAGGLER_SECONDS = 0.5
"""How long the next Fetch waits for partitions whose disk is slow: as an empty one takes by default."""


FIRST_PAUSE_SECONDS = 0.02
"""Before a leader that has yet to read the metadata is asked again; twice as long each time. Brokers read them within
milliseconds of each other, and clients wait for all replicas that are in sync."""


@attrs.frozen
class FollowedPartition:
    """A partition to fetch, and the epoch of its leader."""

    topic_id: bytes
    leader_epoch: int


@attrs.define(eq=False)
class PartitionFetchState:
    """How a fetcher stands with one partition. ``lag`` is how many records that consumers see are missing here, None
    before the first answer. ``pause_seconds`` is the next pause for a leader that has yet to read the metadata. With
    ``is_busy`` something is done to its log."""

    topic_partition: TopicPartition
    followed: FollowedPartition
    lag: int | None = None
    delayed_until: float = -math.inf
    pause_seconds: float = FIRST_PAUSE_SECONDS
    is_busy: bool = False


@attrs.frozen(eq=False)
class AskedPartition:
    """A partition in a Fetch under way, and what was asked for."""

    state: PartitionFetchState
    partition: Partition
    position: FollowerPosition


@attrs.frozen
class ReplicaFetcherStatistics:
    """Counters only grow. ``fetch_rate`` is requests a second, over about a minute."""

    leader_id: int
    fetcher_id: int
    requests: int
    fetched_bytes: int
    fetch_rate: float
    lags: Mapping[TopicPartition, int]


@attrs.define(eq=False)
class FetchRound:
    """What one answer asks for; ``appended`` are the partitions that are to be synced before they are asked for."""

    jobs: deque[Job] = attrs.field(factory=deque)
    unfinished: int = 0
    ended: trio.Event = attrs.field(factory=trio.Event)
    appended: list[Partition] = attrs.field(factory=list)

    def add(self, states: Sequence[PartitionFetchState], run: Callable[[], Awaitable[None]]) -> None:
        """Something is to be done to the logs of these partitions."""
        for state in states:
            state.is_busy = True
        self.jobs.append(Job(states, run))
        self.unfinished += 1

    def finish(self, job: Job) -> None:
        """It has been done."""
        for state in job.states:
            state.is_busy = False
        self.unfinished -= 1
        if not self.unfinished:
            self.ended.set()


@attrs.frozen(eq=False)
class Job:
    """Something that may wait for the disk, and the partitions that it is about."""

    states: Sequence[PartitionFetchState]
    run: Callable[[], Awaitable[None]]


class ReplicaFetcher:
    """See the head of the file. ``run`` is a task of the owner.

    ``find`` returns a partition that this broker has, if its log is open.
    """

    def __init__(
        self,
        leader: RemoteLeaderEndpoint,
        fetcher_id: int,
        *,
        find: Callable[[TopicPartition], Partition | None],
        appends: FollowerAppends,
        quota: ReplicationQuotaManager,
    ) -> None:
        self.leader = leader
        self.fetcher_id = fetcher_id
        self.failed: set[TopicPartition] = set()
        self._find = find
        self._appends = appends
        self._quota = quota
        self._backoff_seconds = leader.settings.replica_fetch_backoff_ms / 1000
        # In the order in which the next Fetch names them: the leader reads the first ones first.
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        # Set when there may be something to ask for that there was not.
        self._changed = trio.Event()
        self._is_asking = False
        self._nursery: trio.Nursery | None = None
        self._throttled_log = LogThrottle(log, appends.clock)
        self._requests = self._fetched_bytes = 0
        self._rate: FetchRate | None = None

    def __str__(self) -> str:
        return f"fetcher {self.fetcher_id} from broker {self.leader.leader_id}"

    # ---- which partitions -----------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to fetch, nor anything to be remembered."""
        return not self._states and not self.failed

    def follow(self, partitions: Mapping[TopicPartition, FollowedPartition]) -> None:
        """Fetch these from now on; one that is fetched in that leader epoch already goes on as it is."""
        for topic_partition, followed in partitions.items():
            self.failed.discard(topic_partition)
            state = self._states.get(topic_partition)
            if state is not None and state.followed == followed:
                continue
            self._states[topic_partition] = PartitionFetchState(topic_partition, followed)
            if state is not None:
                # How far behind it is the leader would not say again.
                self.leader.session.begin_anew()
            self._note_change()

    def _note_change(self) -> None:
        """There may be something to ask for that there was not."""
        self._changed.set()
        if self._is_asking:
            self._is_asking = False
            assert self._nursery is not None
            start_once(self._nursery, f"end of a wait of {self}", self.leader.end_wait)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more; an answer that is under way does not count for them."""
        for topic_partition in partitions:
            self._states.pop(topic_partition, None)
            self.failed.discard(topic_partition)

    def take_all(self) -> dict[TopicPartition, FollowedPartition]:
        """Fetch nothing any more; return what was fetched, for other fetchers."""
        states, self._states = self._states, {}
        return {each: state.followed for each, state in states.items()}

    def _is_current(self, state: PartitionFetchState) -> bool:
        return self._states.get(state.topic_partition) is state

    def _delay(self, state: PartitionFetchState, seconds: float = math.inf) -> None:
        state.delayed_until = trio.current_time() + min(seconds, self._backoff_seconds)

    def _give_up(self, state: PartitionFetchState, reason: object) -> None:
        """Leave a partition alone until ``follow`` names it again."""
        if self._is_current(state):
            del self._states[state.topic_partition]
            self.leader.session.begin_anew()
            self.failed.add(state.topic_partition)
            log.warning("%s: %s fetches it no more: %s", state.topic_partition, self, reason)

    # ---- the task -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until cancelled."""
        self._rate = self._rate or FetchRate(trio.current_time())
        for state in self._states.values():
            state.is_busy = False
        try:
            async with trio.open_nursery() as self._nursery:
                start_background(self._nursery, f"connection of {self}", self.leader.run)
                while True:
                    await self._fetch_once()
        finally:
            self._nursery = None

    async def _fetch_once(self) -> None:
        # Before the look: what comes during it is seen by the next one.
        self._changed = trio.Event()
        asked, next_due = await self._ask_for()
        if not asked:
            await self._until_changed()
            return
        try:
            response = await self._fetch({key: each.position for key, each in asked.items()}, next_due)
        except RequestFailed as error:
            self._not_answered(asked.values(), str(error))
            return
        self._requests += 1
        if self._rate is not None:
            self._rate.mark(trio.current_time())
        if response.error_code in SESSION_ERRORS:
            return
        if response.error_code != ErrorCode.NONE:
            self._not_answered(asked.values(), f"the leader answers {name_of(response.error_code)}")
            return
        await self._carry_out(await self._begin_round(asked, response))

    async def _fetch(self, positions: Mapping[FetchKey, FollowerPosition], next_due: float) -> FetchResponse:
        # What has changed during the look waits for this one otherwise; so does what is due again.
        seconds = 0.0 if self._changed.is_set() else next_due - trio.current_time()
        self._is_asking = True
        try:
            return await self.leader.fetch(positions, max_wait_seconds=max(0.0, seconds))
        finally:
            self._is_asking = False

    async def _ask_for(self) -> tuple[dict[FetchKey, AskedPartition], float]:
        """Return the partitions that may be asked for now, and when the first of the others is due."""
        now, budget = trio.current_time(), YieldBudget()
        asked: dict[FetchKey, AskedPartition] = {}
        next_due = math.inf
        for state in list(self._states.values()):
            await budget.maybe_yield()
            if state.delayed_until > now:
                next_due = min(next_due, state.delayed_until)
                continue
            if state.is_busy or not self._is_current(state):
                continue
            partition = self._find(state.topic_partition)
            if partition is None or not is_followed(partition, state):
                # Its log could not be opened yet, or newer metadata are about to come here.
                self._delay(state)
            elif partition.failure is not None:
                self._give_up(state, partition.failure)
            elif not awaits_disk(partition) and not self._should_throttle(state, partition):
                key = FetchKey(state.followed.topic_id, state.topic_partition.partition)
                asked[key] = AskedPartition(state, partition, position_of(partition))
        return asked, next_due

    def _should_throttle(self, state: PartitionFetchState, partition: Partition) -> bool:
        """Whether nothing of it is to be fetched now. One that has all always is, as in Kafka: it may be in sync."""
        return state.lag != 0 and self._quota.should_throttle(partition)

    async def _until_changed(self) -> None:
        """Wait until a partition may be asked for."""
        now = trio.current_time()
        ends = (
            state.delayed_until if state.delayed_until > now else now + STRAGGLER_SECONDS
            for state in self._states.values()
        )
        with trio.move_on_at(min(ends, default=math.inf)):
            await self._changed.wait()

    def _not_answered(self, asked: Collection[AskedPartition], reason: str) -> None:
        self._throttled_log.warning("unanswered", f"{self}: {reason}; it asks again for {len(asked)} partitions")
        for each in asked:
            self._delay(each.state)

    # ---- what follows from an answer ------------------------------------------------------------------------------

    async def _begin_round(self, asked: Mapping[FetchKey, AskedPartition], response: FetchResponse) -> FetchRound:
        begun, budget = FetchRound(), YieldBudget()
        cuts: dict[PurePath, dict[AskedPartition, Truncate]] = {}
        for topic in response.responses:
            for answer in topic.partitions:
                await budget.maybe_yield()
                each = asked.get(FetchKey(topic.topic_id, answer.partition_index))
                if each is None or not self._is_current(each.state) or each.partition.failure is not None:
                    self.leader.session.begin_anew()
                    continue
                self._begin(begun, cuts, each, answer)
        # Together, since they share a checkpoint of their log directory.
        for together in cuts.values():
            begun.add([each.state for each in together], partial(self._truncate, together))
        return begun

    def _begin(
        self,
        begun: FetchRound,
        cuts: dict[PurePath, dict[AskedPartition, Truncate]],
        each: AskedPartition,
        answer: PartitionData,
    ) -> None:
        partition = each.partition
        match next_step(each.position, position_of(partition), partition.log.epochs, answer):
            case Append() as step:
                begun.add([each.state], partial(self._append, each, step, begun))
            case Truncate() as step:
                cuts.setdefault(partition.log.directory.parent, {})[each] = step
            case FindRange():
                begun.add([each.state], partial(self._find_range, each))
            case Delay() | AwaitLeader() | AwaitMetadata() as step:
                self._leave_out(each.state, step)
            case None:
                self.leader.session.begin_anew()

    def _leave_out(self, state: PartitionFetchState, step: Delay | AwaitLeader | AwaitMetadata) -> None:
        if isinstance(step, AwaitMetadata):
            self._give_up(state, step.reason)
            return
        text = f"{state.topic_partition}: {self} leaves it out for a while: {step.reason}"
        self._throttled_log.info("delayed", text)
        if isinstance(step, AwaitLeader):
            self._delay(state, state.pause_seconds)
            state.pause_seconds *= 2
        else:
            self._delay(state)

    async def _carry_out(self, begun: FetchRound) -> None:
        """Do what follows from an answer, and have it synced; go on without what takes too long."""
        if not begun.unfinished:
            return
        assert self._nursery is not None
        work = partial(self._work_off, begun)
        start_once(self._nursery, f"a worker of {self}", work)
        # Nearly always one is enough, since nothing has to wait.
        await trio.lowlevel.checkpoint()
        for _ in range(min(len(begun.jobs), SIDE_BY_SIDE - 1)):
            start_once(self._nursery, f"a worker of {self}", work)
        with trio.move_on_after(STRAGGLER_SECONDS):
            await begun.ended.wait()
            for partition in begun.appended:
                await self._appends.flusher.wait_idle(partition.writer)

    async def _work_off(self, begun: FetchRound) -> None:
        budget = YieldBudget()
        while begun.jobs:
            job = begun.jobs.popleft()
            try:
                await job.run()
            except Exception as error:
                log.exception("%s: replication failed", job.states[0].topic_partition)
                for state in job.states:
                    self._give_up(state, repr(error))
            finally:
                begun.finish(job)
                self._note_change()
            await budget.maybe_yield()

    async def _append(self, each: AskedPartition, step: Append, begun: FetchRound) -> None:
        state, partition, leader_epoch = each.state, each.partition, each.position.leader_epoch
        try:
            if step.records:
                await self._appends.append(partition, step.records, leader_epoch=leader_epoch)
                self._appended(state, partition, len(step.records), begun)
            await self._appends.adopt_offsets(
                partition,
                leader_epoch=leader_epoch,
                high_watermark=step.high_watermark,
                log_start_offset=step.log_start_offset,
            )
        except KafkaError as error:
            self._refused(each, error)
        else:
            state.lag = max(0, step.high_watermark - partition.log_end_offset)
            state.pause_seconds = FIRST_PAUSE_SECONDS

    def _appended(self, state: PartitionFetchState, partition: Partition, size: int, begun: FetchRound) -> None:
        self._fetched_bytes += size
        self._quota.record(partition, size)
        if partition.durability is Durability.FSYNC:
            begun.appended.append(partition)
        if self._is_current(state):
            # Behind those of which the answer had no room for anything.
            self._states[state.topic_partition] = self._states.pop(state.topic_partition)

    async def _truncate(self, cuts: Mapping[AskedPartition, Truncate]) -> None:
        truncations = {}
        for each, step in cuts.items():
            partition = each.partition
            below = partition.high_watermark - step.offset
            level = logging.WARNING if below > 0 or step.begins_anew else logging.INFO
            what = "begins anew" if step.begins_anew else "is cut"
            log.log(
                level, "%s: %s at %d, as leader epoch %d has it", partition, what, step.offset, partition.leader_epoch
            )
            truncations[partition] = Truncation(step.offset, each.position.leader_epoch, step.begins_anew)
        refusals = await self._appends.truncate(truncations)
        for each in cuts:
            if (refusal := refusals.get(each.partition)) is not None:
                self._refused(each, refusal)
            elif position_of(each.partition) == each.position:
                # The next answer would be the same, and so on without a pause.
                self._leave_out(each.state, Delay("it has nothing that is to be cut"))

    async def _find_range(self, each: AskedPartition) -> None:
        state = each.state
        try:
            found = await self.leader.range_of(state.topic_partition, state.followed.leader_epoch)
        except RequestFailed as error:
            self._leave_out(state, Delay(str(error)))
            return
        except KafkaError as error:
            is_over = error.code is ErrorCode.FENCED_LEADER_EPOCH
            self._leave_out(state, AwaitMetadata(str(error)) if is_over else Delay(str(error)))
            return
        if not self._is_current(state):
            return
        step = step_into_range(position_of(each.partition), found.log_start_offset, found.log_end_offset)
        if isinstance(step, Truncate):
            await self._truncate({each: step})
        elif isinstance(step, Delay):
            self._leave_out(state, step)

    def _refused(self, each: AskedPartition, error: KafkaError) -> None:
        """The log has not taken what was fetched, or the leader is another one by now."""
        if each.partition.failure is not None:
            self._give_up(each.state, error)
            return
        if error.code is not ErrorCode.FENCED_LEADER_EPOCH:
            self._throttled_log.error("refused", f"{each.partition}: what was fetched is refused: {error}")
        self.leader.session.begin_anew()
        self._delay(each.state)

    # ---- figures --------------------------------------------------------------------------------------------------

    def statistics(self) -> ReplicaFetcherStatistics:
        return ReplicaFetcherStatistics(
            leader_id=self.leader.leader_id,
            fetcher_id=self.fetcher_id,
            requests=self._requests,
            fetched_bytes=self._fetched_bytes,
            fetch_rate=0.0 if self._rate is None else self._rate.per_second(trio.current_time()),
            lags={each: state.lag for each, state in self._states.items() if state.lag is not None},
        )


def position_of(partition: Partition) -> FollowerPosition:
    """How far the log of a partition goes."""
    epoch = partition.log.epochs.latest_epoch
    return FollowerPosition(
        partition.leader_epoch,
        partition.log_end_offset,
        UNDEFINED_EPOCH if epoch is None else epoch,
        partition.log_start_offset,
    )


def is_followed(partition: Partition, state: PartitionFetchState) -> bool:
    """Whether this broker follows the leader that is to be asked."""
    return (
        partition.topic_id == state.followed.topic_id
        and not partition.state.is_leader
        and partition.leader_epoch == state.followed.leader_epoch
    )


def awaits_disk(partition: Partition) -> bool:
    """Whether asking for what follows its log would claim more than a power cut leaves of it."""
    return partition.durability is Durability.FSYNC and partition.state.durable_offset < partition.log_end_offset
