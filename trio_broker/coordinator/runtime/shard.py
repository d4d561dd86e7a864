"""A shard: one partition of a coordinator's internal topic, and the machine whose records it holds.

The one place where a result of a machine takes effect: its records are appended, then applied, then the responses are
sent, and the timer of the key follows. All of it runs between two checkpoints, so no event comes between.

Source: Kafka's CoordinatorRuntime.CoordinatorContext.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing
from typing import Any, Generic, TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import NO_PRODUCER_ID
from kafka_wire.records.record import NewRecord
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.concurrency.barrier import Backoff, Barrier
from trio_broker.concurrency.yield_budget import YieldBudget, at_once
from trio_broker.coordinator.runtime.log import CoordinatorLog, EncodedRecord, LogBatch, coordinator_code
from trio_broker.coordinator.runtime.machine import Machine
from trio_broker.coordinator.runtime.producer import NO_PRODUCER
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import (
    Completion,
    CoordinatorEvent,
    CoordinatorResult,
    Now,
    RequestContext,
)
from trio_broker.coordinator.runtime.timer import CoordinatorTimer
from trio_broker.partition.transaction_end import TransactionEnd

log = logging.getLogger(__name__)

MachineT = TypeVar("MachineT", bound=Machine[Any])

LOAD_TURN_SECONDS = 0.002
"""Of the event loop at a time while records are folded; longer than for a request, because a start waits for it."""

RECORDS_PER_BATCH = 1000
"""Of a result that need not be one batch: about 100 KB of tombstones, well below the smallest ``message.max.bytes`` in
use."""

TIMEOUT_RETRY_SECONDS = 0.5
"""After which what is due is tried again when the log refused it."""

NO_COMPLETIONS: Sequence[Completion] = ()


class ShardState(enum.Enum):
    """A shard that has failed is loaded again after a while; one that is closed, never."""

    LOADING = enum.auto()
    ACTIVE = enum.auto()
    FAILED = enum.auto()
    CLOSED = enum.auto()


@attrs.define(eq=False)
class Shard(Generic[MachineT]):
    """One partition in one leader epoch, with the machine that its records have made so far.

    The time (``now``) and the cluster's metadata go to the machine with each event.
    """

    log: CoordinatorLog
    new_machine: Callable[[], MachineT]
    timer: CoordinatorTimer[str]
    now: Callable[[], Now]
    metadata_cache: MetadataCache
    throttled_log: LogThrottle
    """For what clients can cause at any rate."""
    replace: Callable[[Shard[MachineT]], None]
    """Called when a bug has closed the shard: another one has to read the log anew."""
    backoff: Backoff = attrs.field(factory=Backoff)
    machine: MachineT = attrs.field(init=False)
    state: ShardState = attrs.field(default=ShardState.LOADING, init=False)
    was_tried: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set once its log has been read, or could not be at the first time."""
    is_settled: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set once the shard is active or closed."""
    _loading: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self.machine = self.new_machine()

    @property
    def is_active(self) -> bool:
        return self.state is ShardState.ACTIVE

    @property
    def is_closed(self) -> bool:
        return self.state is ShardState.CLOSED

    @property
    def is_available(self) -> bool:
        """Whether it answers, or will as soon as it is loaded."""
        is_open = self.state in (ShardState.LOADING, ShardState.ACTIVE)
        return is_open and self.log.is_led and self.log.partition.failure is None

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that all its appends are made in."""
        return self.log.leader_epoch

    def require_active(self) -> None:
        """Refuse while the shard cannot answer.

        Raises:
            KafkaError: ``COORDINATOR_LOAD_IN_PROGRESS``, ``NOT_COORDINATOR``.
        """
        # In place, without the calls of ``is_available``: every request asks.
        log, state = self.log, self.log.partition.state
        is_led = state.is_leader and state.leader_epoch == log.leader_epoch
        if self.state is ShardState.ACTIVE and is_led and state.failure is None:
            return
        if self.state is ShardState.LOADING:
            text = f"{self.log.partition.topic_partition} is being loaded"
            raise KafkaError(text, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise self._not_coordinator("it is closed, could not be loaded, or is not led here")

    def _not_coordinator(self, reason: str) -> KafkaError:
        return KafkaError(f"{self.log.partition.topic_partition}: {reason}", code=ErrorCode.NOT_COORDINATOR)

    # ---- loading and closing --------------------------------------------------------------------------------------

    async def load(self, limiter: trio.CapacityLimiter, pause_seconds: float = 0.0) -> None:
        """Read all records after a pause, however often that must be tried: compaction may move segments meanwhile,
        descriptors may be short. The shard is active then; or closed, by ``close`` or since its partition has failed.
        """
        barrier = Barrier(f"loading of {self.log.partition.topic_partition}", "it is tried again")
        with self._loading:
            # It may have been closed before this task has begun.
            while not self.is_closed and self.log.partition.failure is None:
                if pause_seconds:
                    self.state = ShardState.FAILED
                    await trio.sleep(pause_seconds)
                self.state = ShardState.LOADING
                with barrier:
                    async with limiter:
                        await self._load()
                    if self.state is not ShardState.LOADING:
                        return
                pause_seconds = self.backoff.next_pause()
                self.was_tried.set()
            if not self.is_closed:
                self.close(ErrorCode.NOT_COORDINATOR)

    async def _load(self) -> None:
        machine, budget = self.new_machine(), YieldBudget(LOAD_TURN_SECONDS)
        async with aclosing(self.log.slices()) as slices:
            async for part in slices:
                for batch in part.batches:
                    self._replay_end(batch, machine)
                    for record in batch.records:
                        self._replay(record, batch.producer_id, machine)
                        # Not maybe_yield: a coroutine for each of a million records would take as long as they.
                        if budget.is_spent:
                            await budget.renewed()
        if self.log.is_led:
            await self.log.ready_to_append()
        # The shard may have been closed while it was read, or is about to be, since another epoch has begun.
        if self.state is ShardState.LOADING and self.log.is_led:
            # No checkpoint comes before the end of this, so no request meets a shard that is half loaded.
            self._begin(machine)

    def _replay(self, record: EncodedRecord, producer_id: int, machine: MachineT) -> None:
        try:
            if producer_id == NO_PRODUCER_ID:
                machine.replay(record)
            else:
                machine.replay_pending(producer_id, record)
        except WireError as error:
            self._pass_over(error)

    def _replay_end(self, batch: LogBatch, machine: MachineT) -> None:
        if (marker := batch.marker) is None:
            return
        try:
            machine.end_transaction(marker.producer_id, committed=not marker.aborted)
        except WireError as error:
            self._pass_over(error)

    def _pass_over(self, error: WireError) -> None:
        log.error("%s: a record is passed over: %s", self.log.partition.topic_partition, error)

    def _begin(self, machine: MachineT) -> None:
        self.machine = machine
        now = self.now()
        for key, result in machine.loaded(now, self.metadata_cache.image).items():
            self.commit(key, result, now)
        for key in machine.timed_keys():
            self.timer.schedule(key, machine.next_deadline(key))
        self.state = ShardState.ACTIVE
        self._settle()

    def close(self, code: ErrorCode) -> None:
        """Complete all requests that wait with ``code``, and answer no more."""
        at_once(self.closing(code))

    def closing(self, code: ErrorCode) -> Generator[None, None, None]:
        """As ``close``: answers no more from now on, and completes the requests key by key, yielding after each."""
        self.state = ShardState.CLOSED
        self._settle()
        self._loading.cancel()
        return self._abandon(code)

    def _abandon(self, code: ErrorCode) -> Generator[None, None, None]:
        for key in list(self.machine.timed_keys()):
            self.timer.schedule(key, None)
            self._complete(self.machine.abandon(key, code))
            yield

    def _settle(self) -> None:
        self.was_tried.set()
        self.is_settled.set()

    # ---- events ---------------------------------------------------------------------------------------------------

    def handle(self, key: str, request: Any, context: RequestContext) -> ResponseFuture:
        """Let the machine decide about a request for ``key``, and return the future of the response.

        Raises:
            KafkaError: the request had no effect.
        """
        now = self.now()
        event = CoordinatorEvent(request, context, ResponseFuture(), now, self.metadata_cache.image)
        if (result := self.machine.decide(event)) is not None:
            self.commit(key, result, now)
        return event.future

    def on_timeout(self, key: str) -> None:
        """The timer of ``key`` has run."""
        now = self.now()
        try:
            result = self.machine.on_timeout(key, now, self.metadata_cache.image)
            if result is None:
                self.timer.schedule(key, self.machine.next_deadline(key))
            else:
                self.commit(key, result, now)
            return
        except KafkaError as error:
            self.throttled_log.warning(error.code.name, f"{key!r:.200}: what is due is not written: {error}")
        except Exception as bug:
            # Nothing is appended, so the records still say what the machine has of them, and other keys go on.
            text = f"{key!r:.200}: what is due failed, and is tried again in {TIMEOUT_RETRY_SECONDS} s"
            self.throttled_log.error("what is due", text, bug)
        if self.is_active:
            self.timer.schedule(key, now.monotonic_seconds + TIMEOUT_RETRY_SECONDS)

    def commit(self, key: str, result: CoordinatorResult[Any], now: Now) -> None:
        """Let ``result`` take effect: append, apply, complete, observe, reschedule.

        Raises:
            KafkaError: the log refused the records, and the result has nothing for that case; or a bug came between
                the records and their effect.
        """
        end_offset = self.log.partition.log_end_offset
        try:
            is_refused = self._commit(key, result, now)
        except KafkaError:
            self._close_if_lost()
            raise
        except Exception as bug:
            if not self._differs_from_log(end_offset):
                raise
            raise self._give_up(bug, result.completions) from bug
        if is_refused:
            self._close_if_lost()

    def _close_if_lost(self) -> None:
        """The log has refused what was to be appended; if as one that is led by others, it will refuse all else, and
        what waits need not wait for the metadata."""
        if self.is_active and not self.log.is_led:
            self.close(ErrorCode.NOT_COORDINATOR)

    def _commit(self, key: str, result: CoordinatorResult[Any], now: Now) -> bool:
        """As ``commit``; whether the log refused the records, and what the result has for that case holds."""
        machine, records, replaced, is_refused = self.machine, result.records, NO_COMPLETIONS, False
        if records:
            try:
                if not result.is_routine:
                    self._require_room(records)
                if result.is_atomic:
                    self._append(records, result, now)
                else:
                    for start in range(0, len(records), RECORDS_PER_BATCH):
                        self._append(records[start : start + RECORDS_PER_BATCH], result, now)
            except KafkaError as error:
                result, is_refused = self._refused(key, result, error), True
            else:
                if result.replace_with is not None:
                    replaced = machine.replace(key, result.replace_with)
        if result.completions:
            self._complete(result.completions)
        if replaced:
            self._complete(replaced)
        if not result.is_routine:
            machine.observe(key, result)
            self.timer.schedule(key, machine.next_deadline(key))
        return is_refused

    def end_transaction(self, end: TransactionEnd) -> int:
        """Put the marker into the log, and let what was pending count or not. Returns the offset after the marker.

        Raises:
            KafkaError: nothing was appended; or a bug came between the marker and its effect.
        """
        self.require_active()
        self.log.end_transaction(end)
        try:
            self.machine.end_transaction(end.producer_id, committed=end.committed)
        except Exception as bug:
            raise self._give_up(bug, NO_COMPLETIONS) from bug
        return self.log.partition.log_end_offset

    def _differs_from_log(self, end_offset: int) -> bool:
        """Whether a bug has left something appended from ``end_offset`` on that the machine may not have applied."""
        return self.is_active and self.log.partition.log_end_offset != end_offset

    def _give_up(self, bug: Exception, completions: Sequence[Completion]) -> KafkaError:
        """Close this shard, whose state may differ from its log since ``bug``, for another one in its place; return
        the error for the requests that are concerned."""
        name = self.log.partition.topic_partition
        log.error("%s: its state may differ from its log, which is loaded anew", name, exc_info=bug)
        error = self._not_coordinator("it is loaded anew")
        with Barrier(f"closing of {name}", "it is loaded anew all the same"):
            for completion in completions:
                if not completion.future.is_done:
                    completion.future.set_error(error)
            self.close(ErrorCode.NOT_COORDINATOR)
        self.replace(self)
        return error

    def _require_room(self, records: Sequence[Any]) -> None:
        """Refuse records that no batch can hold before they are encoded, which takes 0.1 s for an assignment of 90 MB.

        Raises:
            KafkaError: RECORD_LIST_TOO_LARGE.
        """
        largest = max(map(self.machine.least_bytes, records))
        if largest > self.log.max_batch_bytes:
            text = f"{self.log.partition.topic_partition}: a record of {largest} bytes or more"
            raise KafkaError(text, code=ErrorCode.RECORD_LIST_TOO_LARGE)

    def _append(self, records: Sequence[Any], result: CoordinatorResult[Any], now: Now) -> None:
        """Append one batch, and apply it unless the result has done so.

        Raises:
            KafkaError: nothing of the batch was appended.
        """
        machine = self.machine
        try:
            encoded = [NewRecord(now.wall_ms, *machine.encode(record)) for record in records]
        except ValueError as error:
            raise KafkaError(f"no record can hold this: {error}", code=ErrorCode.UNKNOWN_SERVER_ERROR) from error
        producer = result.producer
        self.log.append(encoded, producer)
        if producer is not NO_PRODUCER:
            for record in records:
                machine.apply_pending(producer.producer_id, record)
        elif result.replace_with is None:
            for record in records:
                machine.apply(record)

    def _refused(self, key: str, result: CoordinatorResult[Any], error: KafkaError) -> CoordinatorResult[Any]:
        """What holds in the place of ``result``, whose records the log refuses."""
        code = coordinator_code(error.code)
        if result.refused is None:
            raise KafkaError(str(error), code=code) from error
        # Clients can cause this at any rate, by what is too large for a record.
        self.throttled_log.warning(error.code.name, f"{key!r:.200}: a change is not written: {error}")
        instead = result.refused(code)
        assert not instead.records, f"{key}: {instead.records}"
        return instead

    def _complete(self, completions: Sequence[Completion]) -> None:
        """Set responses, which are sent once all that is appended so far is durable."""
        required_offset = self.log.required_offset
        for completion in completions:
            completion.future.set_result(completion.response, required_offset)
