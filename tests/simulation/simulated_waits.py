"""Readers of a simulation that wait, and what watches that none of them waits in vain.

A reader asks for all partitions of a topic, mostly in a session, and lets the broker wait as long as a client may.
Several of them read the same partitions. Whenever the broker shows more of one than a reader has, the reader is
answered soon: a Fetch that misses what it waits for would be answered at the end of its wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafka_wire.records.batch import read_batches
from tests.checking.history import Violation
from tests.simulation.simulated_clients import RETRIABLE, RETRY_SECONDS
from tests.simulation.simulated_machine import Life
from tests.simulation.simulated_world import Connection, ConnectionLost, World
from trio_broker.partition.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION

MAX_WAIT_SECONDS = 30.0
"""How long a reader lets the broker wait: far longer than anything else takes."""

PROMPT_SECONDS = 1.0
"""A Fetch for which there is something is answered within this: many times what threads and disks take for it."""

PROCESSING_SECONDS = 0.02
"""The most that a reader takes for what it got: about as long as a sync that goes on meanwhile."""

NOBODY_WAITS_IN_VAIN = "a waiting Fetch is answered when there is something"

NO_SUCH_SESSION = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
"""Codes after which a client begins another session: the broker was started again, or a request got lost."""


@attrs.frozen(eq=False)
class OutstandingFetch:
    """One request, sent to the broker of ``life``, with the offsets that it asks for."""

    life: Life
    offsets: dict[int, int]


@attrs.define(eq=False)
class WaitingReader:
    """Reads all partitions of ``topic`` from the beginning on, until cancelled."""

    world: World
    name: str
    topic: str
    partitions: int
    isolation_level: IsolationLevel
    has_session: bool
    outstanding: OutstandingFetch | None = None
    answered_waits: int = 0
    """Answers with records to requests that had to wait for them."""
    positions: dict[int, int] = attrs.field(init=False)
    _connection: Connection = attrs.field(init=False)
    _session_id: int = NO_SESSION
    _session_epoch: int = INITIAL_EPOCH
    _changed: set[int] = attrs.field(factory=set)
    """The partitions whose positions the session does not know."""

    def __attrs_post_init__(self) -> None:
        self.positions = dict.fromkeys(range(self.partitions), 0)
        self._connection = self.world.connection(self.name)
        self._begin_session()

    async def run(self) -> None:
        while True:
            try:
                has_failed = self._take(await self._ask())
            except ConnectionLost:
                self._begin_session()
                has_failed = True
            await trio.sleep(RETRY_SECONDS if has_failed else self.world.random.uniform(0, PROCESSING_SECONDS))

    def _begin_session(self) -> None:
        self._session_id, self._session_epoch = NO_SESSION, INITIAL_EPOCH if self.has_session else FINAL_EPOCH
        self._changed = set(self.positions)

    async def _ask(self) -> FetchResponse:
        wanted = self._changed if self._session_id else self.positions
        partitions = [
            FetchPartition(partition=each, fetch_offset=self.positions[each], partition_max_bytes=1_000_000)
            for each in sorted(wanted)
        ]
        request = FetchRequest(
            max_wait_ms=round(MAX_WAIT_SECONDS * 1000),
            min_bytes=1,
            max_bytes=1_000_000,
            isolation_level=self.isolation_level,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchTopic(topic=self.topic, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[],
        )
        life = self.world.machine.life
        assert life is not None, "the broker was started"
        self.outstanding = OutstandingFetch(life, dict(self.positions))
        began = trio.current_time()
        try:
            response: FetchResponse = await self._connection.ask(request, 11)
        finally:
            self.outstanding = None
        has_records = any(each.records for topic in response.responses for each in topic.partitions)
        self.answered_waits += has_records and trio.current_time() - began > PROMPT_SECONDS
        return response

    def _take(self, response: FetchResponse) -> bool:
        """Move on behind what came; return whether something has failed."""
        code = ErrorCode(response.error_code)
        if code:
            assert code in NO_SUCH_SESSION, code.name
            self._begin_session()
            return True
        self._session_id = response.session_id
        self._session_epoch = self._session_epoch + 1 if self._session_id else self._session_epoch
        self._changed, has_failed = set(), False
        for each in (each for topic in response.responses for each in topic.partitions):
            code = ErrorCode(each.error_code)
            assert not code or code in RETRIABLE, f"{each.partition_index}: {code.name}"
            has_failed = has_failed or bool(code)
            for batch in read_batches(memoryview(each.records or b"")):
                self.positions[each.partition_index] = batch.header.next_offset
                self._changed.add(each.partition_index)
        return has_failed


@attrs.define(eq=False)
class WaitWatch:
    """Looks every now and then whether there is something for a reader that was waiting at the last look already."""

    world: World
    readers: Sequence[WaitingReader]
    due: dict[tuple[OutstandingFetch, int], float] = attrs.field(factory=dict)
    """Since when there is something for a Fetch in a partition."""

    async def run(self, violations: list[Violation]) -> None:
        """Add to ``violations`` whatever is found, until cancelled."""
        while True:
            await trio.sleep(PROMPT_SECONDS)
            seen = {(fetch, index): text for fetch, index, text in self._something_to_read()}
            for key in seen.keys() & self.due.keys():
                text = f"{seen[key]} since {self.due[key]:.2f} at the latest, now {trio.current_time():.2f}"
                violations.append(Violation(NOBODY_WAITS_IN_VAIN, text))
            self.due = {key: self.due.get(key, trio.current_time()) for key in seen}

    def _something_to_read(self) -> Iterator[tuple[OutstandingFetch, int, str]]:
        """Each waiting Fetch and partition where the broker shows more than the reader has."""
        for reader in self.readers:
            fetch = reader.outstanding
            if fetch is None or fetch.life.nursery is None or fetch.life.killed:
                continue
            local = fetch.life.broker.services.replicas.topics[reader.topic]
            for index, offset in fetch.offsets.items():
                partition = local.partitions[index]
                is_committed = reader.isolation_level is IsolationLevel.READ_COMMITTED
                end = partition.state.last_stable_offset if is_committed else partition.state.high_watermark
                if end > offset:
                    yield (
                        fetch,
                        index,
                        f"{reader.name} waits at {offset} of {reader.topic}-{index}, visible up to {end}",
                    )


def jump_in_grains(clock: trio.testing.MockClock, grain_seconds: float) -> None:
    """Let ``clock`` jump to whole grains of time: what is due within one happens at once.

    Otherwise no two requests arrive, no request arrives and no sync is reported at the same moment, and the event loop
    is idle between any two of them: nothing could come between a look and the wait that follows in a later turn.
    """
    jump = clock.jump

    def to_next_grain(seconds: float) -> None:
        due = clock.current_time() + seconds
        jump(max(math.ceil(due / grain_seconds) * grain_seconds - clock.current_time(), seconds))

    setattr(clock, "jump", to_next_grain)  # noqa: B010
