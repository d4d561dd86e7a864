"""Reading many partitions for one Fetch, within one byte limit, and waiting when there is too little.

Limits are soft (KIP-74): as long as nothing was read, the next partition that has anything yields at least one
whole batch, however large; after that both the partition's and the request's limit hold. Partitions are read in the
order of the request, so a client that rotates them starves none.

A request is answered as soon as it has ``min_bytes``, or an error anywhere, or its time is over. Otherwise it
waits at all its partitions and reads again when enough bytes have become visible. It registers with them before any
other task runs, also in the middle of reading: whatever happens after its look at a partition wakes it.

A consumer that may reads from followers too, up to their high watermark, and a leader names the replica it had better
ask (KIP-392). A follower is also answered when its leader has news for it without records: another log start, which a
deletion waits for, and, where consumers may be sent to it, another high watermark.

Source: Kafka's ReplicaManager.readFromLog and DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from typing import Protocol, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.primitives import NO_OFFSET
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.partition.delayed_operations import DelayedFetch
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.partition import Partition
from trio_broker.partition.state import NO_EPOCH
from trio_broker.runtime.disk import FileRegion
from trio_broker.storage.leader_epochs import EpochEndOffset
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.transaction_index import AbortedTransaction

T = TypeVar("T")

NO_REPLICA = -1
"""In place of a broker, where the consumer is to stay."""


@attrs.define
class FetchTarget:
    """One partition to read, as the request names it and as it was ``found``: itself, or why it is not here.

    Never changed, but not frozen, which would take twice as long to make; so with ``FetchLimits``.

    ``last_fetched_epoch`` is the leader epoch of the last record that the reader holds, -1 if it does not say;
    ``log_start_offset`` where the log of a replica begins.
    """

    index: int
    fetch_offset: int
    max_bytes: int
    found: Partition | KafkaError
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = NO_OFFSET


@attrs.frozen
class FetchingReplica:
    """The broker that follows, and the epoch of its registration, -1 if it does not say it (KIP-903)."""

    broker_id: int
    broker_epoch: int


@attrs.define
class FetchLimits:
    """When a Fetch has enough, and how much it may hold. A ``replica`` reads up to the end of the log, and by its
    fetches tells how far its own log is; everybody else is a consumer.

    One that ``reads_followers`` is also served by them, and is sent to one of ``nearer_brokers`` if that has what it
    asks for.
    """

    max_wait_seconds: float
    min_bytes: int
    max_bytes: int
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    replica: FetchingReplica | None = None
    reads_followers: bool = False
    nearer_brokers: Collection[int] = ()


@attrs.define
class FetchedPartition:
    """The read of one partition. With an error all offsets are -1 and there are no records.

    ``records`` is a region of a segment's file, or zero bytes, never None. ``record_count`` counts the offsets from the
    one asked for on, of which compaction may have left fewer records. ``diverging_epoch`` is set when the reader's log
    and this one parted ways. With a ``preferred_read_replica`` nothing was read, since the consumer is to ask that.
    """

    index: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    records: FileRegion | bytes = b""
    size_bytes: int = 0
    record_count: int = 0
    aborted_transactions: Sequence[AbortedTransaction] = ()
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = NO_REPLICA


class FetchedReplicas(Protocol):
    """The replicas of this broker, as far as a Fetch asks them and tells them; see ``ReplicaManager``."""

    failures: LogDirFailures
    delayed_fetches: dict[DelayedFetch, None]
    """All waiting fetches, so that they can be woken."""
    stops_waiting: bool
    """Whether the broker stops."""
    sends_high_watermarks: bool
    """Whether a follower is answered as soon as it has to learn of a high watermark."""

    async def run_in_thread(self, partition: Partition, work: Callable[[LogReader], T]) -> T:
        """Read the log of a partition in a worker thread."""
        ...

    def follower_fetched(
        self, partition: Partition, replica: FetchingReplica, target: FetchTarget, leader_end: int
    ) -> None:
        """Take note of the progress of a replica."""
        ...

    def should_leader_throttle(self, partition: Partition, replica: FetchingReplica) -> bool:
        """Whether a replica is to get nothing of a partition now."""
        ...


READS_PER_LOOK = 25
"""Partitions read between two looks at the budget, of which the first begins it."""


@attrs.define
class ReadAttempt:
    """One walk over all targets: what it found so far, and whether that ends the waiting."""

    operation: FetchOperation
    limits: FetchLimits
    replicas: FetchedReplicas
    release_handler: ReleaseHandler
    results: list[FetchedPartition] = attrs.Factory(list)
    with_records: list[tuple[Partition, FetchedPartition]] = attrs.Factory(list)
    size_bytes: int = 0
    must_answer: bool = False

    @property
    def is_enough(self) -> bool:
        """Whether it ends the waiting."""
        return self.must_answer or self.size_bytes >= self.limits.min_bytes

    def read_all(self, targets: Sequence[FetchTarget]) -> Steps[None]:
        self.must_answer = not targets  # nothing could ever wake it
        budget: YieldBudget | None = None
        for number, target in enumerate(targets, 1):
            self.results.append((yield from self._read(target)))
            if number % READS_PER_LOOK == 0:
                budget = budget or YieldBudget()
                if budget.is_spent:
                    self._watch_if_needed()
                    yield budget.renewed

    def _watch_if_needed(self) -> None:
        """Note what moves in the partitions from now on, if the walk may end in a wait: other tasks are about to run,
        since a read waits for the disk, or the walk is long."""
        if not self.is_enough:
            self.operation.watch()

    def _read(self, target: FetchTarget) -> Steps[FetchedPartition]:
        """Read one partition; an error there is its own, and ends the waiting."""
        try:
            partition = target.found
            if isinstance(partition, KafkaError):
                # A new one each time: an exception that is raised twice drags all its tracebacks along.
                raise KafkaError(str(partition), code=partition.code)
            result = self._examine(target, partition)
            replica = self.limits.replica
            read_committed = replica is None and self.limits.isolation_level is IsolationLevel.READ_COMMITTED
            fetch_upper_bound = result.last_stable_offset if read_committed else result.high_watermark
            if replica is not None:
                # In one turn with the look at it: what is appended from now on was not there for this fetch.
                fetch_upper_bound = partition.log_end_offset
                if self.operation.notes_progress and result.diverging_epoch is None:
                    self.replicas.follower_fetched(partition, replica, target, fetch_upper_bound)
                    result.high_watermark = partition.high_watermark
                if self._has_news(target, result, partition, replica.broker_id):
                    self.must_answer = True
                if self.replicas.should_leader_throttle(partition, replica):
                    return result
            elif self.limits.nearer_brokers:
                preferred = partition.preferred_read_replica(self.limits.nearer_brokers, target.fetch_offset)
                if preferred is not None:
                    self.must_answer, result.preferred_read_replica = True, preferred
                    return result
            bytes_left = max(self.limits.max_bytes - self.size_bytes, 0)
            # Only the first partition with records may exceed the limits (KIP-74).
            minimum_one = self.size_bytes == 0
            if target.fetch_offset >= fetch_upper_bound or result.diverging_epoch or not (bytes_left or minimum_one):
                return result
            max_bytes = max(min(target.max_bytes, bytes_left), 0)
            try:
                fetched = partition.log.read(
                    target.fetch_offset, max_bytes, end_offset=fetch_upper_bound, minimum_one=minimum_one, nowait=True
                )
            except BlockingIOError:
                # The place to read from is not in memory. A disk that hangs must not take the handlers' slots.
                self._watch_if_needed()
                self.release_handler(RequestPhase.DISK)
                read = methodcaller(
                    "read", target.fetch_offset, max_bytes, end_offset=fetch_upper_bound, minimum_one=minimum_one
                )
                fetched = yield partial(self.replicas.run_in_thread, partition, read)
            except OSError as error:
                raise self.replicas.failures.storage_failed(partition, error) from error
            if not fetched.size:
                return result
            result.records = fetched.records
            result.size_bytes = fetched.size
            result.record_count = fetched.next_offset - target.fetch_offset
            self.size_bytes += fetched.size
            self.with_records.append((partition, result))
            if read_committed:
                result.aborted_transactions = partition.log.aborted_transactions(
                    target.fetch_offset, fetched.next_offset, fetched.row
                )
        except KafkaError as error:
            self.must_answer = True
            return FetchedPartition(target.index, error.code)
        return result

    def _has_news(self, target: FetchTarget, result: FetchedPartition, partition: Partition, replica_id: int) -> bool:
        """Whether a follower is to know of something that is not in records."""
        # It asks for what is behind that, so it can follow at once; otherwise it would ask without end.
        if NO_OFFSET < target.log_start_offset < result.log_start_offset:
            return True
        return self.replicas.sends_high_watermarks and partition.high_watermark_sent(replica_id) < result.high_watermark

    def _examine(self, target: FetchTarget, partition: Partition) -> FetchedPartition:
        """How the partition stands, before any records.

        Raises:
            KafkaError: it cannot be used, or not from that offset or by a client of that leader epoch.
        """
        if self.limits.reads_followers:
            partition.require_epoch(target.current_leader_epoch)
        else:
            partition.require_leader(target.current_leader_epoch)
        if self.limits.replica is not None:
            partition.require_replica(self.limits.replica.broker_id, target.current_leader_epoch)
        state = partition.state
        result = FetchedPartition(
            target.index,
            high_watermark=state.high_watermark,
            last_stable_offset=state.last_stable_offset,
            log_start_offset=state.log_start_offset,
        )
        # Consumers do not say which epoch they hold.
        if target.last_fetched_epoch != NO_EPOCH and target.fetch_offset >= state.log_start_offset:
            result.diverging_epoch = diverging_epoch(target, partition)
        if result.diverging_epoch is not None:
            self.must_answer = True
        elif not state.log_start_offset <= target.fetch_offset <= state.log_end_offset:
            raise offset_out_of_range(target.fetch_offset, partition)
        return result


def offset_out_of_range(offset: int, partition: Partition) -> KafkaError:
    """The error for an offset that the log does not reach; the consumer then resets its position.

    Between high watermark and log end it is merely empty. A follower may be behind its leader: the consumer keeps its
    position then, and asks the leader.
    """
    log = partition.log
    is_behind = offset > log.log_end_offset and not partition.state.is_leader
    return KafkaError(
        f"{partition.topic_partition}: {offset} is not in {log.log_start_offset}..{log.log_end_offset}",
        code=ErrorCode.OFFSET_NOT_AVAILABLE if is_behind else ErrorCode.OFFSET_OUT_OF_RANGE,
    )


def diverging_epoch(target: FetchTarget, partition: Partition) -> EpochEndOffset | None:
    """Where the log of a reader that says what it holds and this one part ways, None if they do not (KIP-595).

    Raises:
        KafkaError: ``OFFSET_OUT_OF_RANGE``: the epoch is one that this log has never seen.
    """
    end = partition.log.end_offset_for_epoch(target.last_fetched_epoch)
    if end.end_offset == NO_OFFSET:
        text = f"{partition.topic_partition}: nothing is known of leader epoch {target.last_fetched_epoch}"
        raise KafkaError(text, code=ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < target.last_fetched_epoch or end.end_offset < target.fetch_offset:
        return end
    return None


@attrs.define
class FetchOperation:
    """One Fetch from beginning to end.

    Each of ``when_unawaited`` is given, before the first wait, what to call if the client does not want to wait any
    more.
    """

    targets: Sequence[FetchTarget]
    limits: FetchLimits
    replicas: FetchedReplicas
    when_unawaited: Iterable[Callable[[Callable[[], None]], None]] = ()
    notes_progress: bool = True
    """Whether the progress of a replica has yet to be noted: it has said it once."""
    _delayed: DelayedFetch | None = None
    _may_wait_no_more: bool = False

    def end_wait(self) -> None:
        """Wait no longer: nobody takes the answer any more, or a follower has something else to ask."""
        self._may_wait_no_more = True
        if self._delayed is not None:
            self._delayed.wake()

    def run(self, release_handler: ReleaseHandler) -> Steps[ReadAttempt]:
        """Read; wait for more if that is too little; return the last attempt.

        ``release_handler`` gives the handler slot back; it is called before each wait.
        """
        deadline: float | None = None
        try:
            while True:
                if self._delayed is not None:
                    self._delayed.begin_to_read()
                attempt = ReadAttempt(self, self.limits, self.replicas, release_handler)
                yield from attempt.read_all(self.targets)
                self.notes_progress = False
                if attempt.is_enough or self._may_wait_no_more or self.replicas.stops_waiting:
                    return attempt
                now = trio.current_time()
                # The wait counts from the end of the first read, as in Kafka.
                deadline = now + self.limits.max_wait_seconds if deadline is None else deadline
                if now >= deadline:
                    return attempt
                delayed = self.watch()
                delayed.found(attempt.size_bytes)
                # What was found would hold files open, and memory, as long as thousands of idle consumers wait.
                del attempt
                if not delayed.is_woken:
                    release_handler(RequestPhase.PURGATORY)
                    yield partial(delayed.wait, deadline - now)
        finally:
            self._unwatch()

    def watch(self) -> DelayedFetch:
        """Register with every partition, from this turn on and for as long as this runs."""
        if self._delayed is None:
            reads_committed = self.limits.isolation_level is IsolationLevel.READ_COMMITTED
            is_of_replica = self.limits.replica is not None
            self._delayed = DelayedFetch(
                self.limits.min_bytes,
                reads_committed=reads_committed,
                is_of_replica=is_of_replica,
                awaits_high_watermark=is_of_replica and self.replicas.sends_high_watermarks,
            )
            self.replicas.delayed_fetches[self._delayed] = None
            for partition in self._partitions():
                partition.delayed.add_fetch(self._delayed)
            # They belong to the request, which refers to this from now on: kept, they would be a cycle with its bytes.
            registers, self.when_unawaited = self.when_unawaited, ()
            for register in registers:
                register(self.end_wait)
        return self._delayed

    def _unwatch(self) -> None:
        if self._delayed is not None:
            self.replicas.delayed_fetches.pop(self._delayed, None)
            for partition in self._partitions():
                partition.delayed.remove_fetch(self._delayed)

    def _partitions(self) -> Iterator[Partition]:
        return (target.found for target in self.targets if isinstance(target.found, Partition))
