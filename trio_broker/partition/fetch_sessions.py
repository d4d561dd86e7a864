"""Fetch sessions: a consumer of many partitions names them once, and from then on only what changed goes over the wire.

The broker keeps, for each session, the partitions with the parameters they were last asked for with, and what the
consumer was last changed of each. A request of the session changes some of them; its answer lists only partitions that
have records, an error, or another high watermark or log start offset than the consumer knows. Epochs count the
requests, so that one which was lost, repeated or overtaken is noticed: the consumer then starts a new session.

Sessions are a cache. There are ``max_sessions`` of them at most, and a new one takes the place of the one unused
longest once that has been idle for a while; when there is none like that, the consumer is simply served in full.

A session is that of one principal: for others it is not there. In Kafka a client that guesses its id learns which
topics somebody else reads, and may end the session.

Source: KIP-227; Kafka's FetchManager and FetchSession; KIP-516 for topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_OFFSET
from trio_broker.partition.fetch_operation import NO_REPLICA, FetchedPartition, FetchTarget
from trio_broker.runtime.clock import Clock
from trio_broker.runtime.randomness import Random
from trio_broker.security.kafka_principal import KafkaPrincipal

NO_SESSION = 0
"""Session id of a Fetch that stands alone."""

FINAL_EPOCH = -1
"""Session epoch of a Fetch that wants no session, or ends the one it names."""

INITIAL_EPOCH = 0
"""Session epoch of a Fetch that asks for a new session."""

MAX_EPOCH = 2**31 - 1
"""Epochs wrap from here to 1, leaving the two special ones out."""

MAX_SESSION_PARTITIONS = 100_000
"""Over all sessions together, some 200 bytes each: with more, new consumers are served in full."""

IDLE_SECONDS = 120.0
"""A session that was used within this time is not evicted for another (Kafka's
``min.incremental.fetch.session.eviction.ms``)."""


def following_epoch(epoch: int) -> int:
    """The session epoch of the request behind that of ``epoch``."""
    return 1 if epoch == MAX_EPOCH else epoch + 1


class SessionKey(NamedTuple):
    """A partition as the session's requests name it: ``topic`` up to version 12, ``topic_id`` from 13 on.

    A tuple, because each Fetch makes, hashes and compares one per partition, and tuples do that in C.
    """

    topic: str
    topic_id: bytes
    partition: int


@attrs.define
class SessionPartition:
    """What to read for the consumer, and what it was last changed."""

    target: FetchTarget
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET

    def changed_since(self, result: FetchedPartition) -> bool:
        """Whether the response must include ``result``; from then on it counts as sent."""
        has_error = result.error_code is not ErrorCode.NONE or result.diverging_epoch is not None
        incremental_changes = (
            has_error
            or result.size_bytes > 0
            or result.preferred_read_replica != NO_REPLICA
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )
        # After an error the offsets count as unknown, so that the next answer without one is incremental_changes again.
        self.high_watermark = NO_OFFSET if has_error else result.high_watermark
        self.log_start_offset = NO_OFFSET if has_error else result.log_start_offset
        return incremental_changes


SessionRead: TypeAlias = tuple[SessionKey, SessionPartition]
KeyedResult: TypeAlias = tuple[SessionKey, FetchedPartition]


@attrs.define(eq=False)
class FetchSession:
    """One consumer's session. ``next_epoch`` is that of the request to come."""

    session_id: int
    principal: KafkaPrincipal
    by_id: bool
    used_at: float
    next_epoch: int = 1
    partitions: dict[SessionKey, SessionPartition] = attrs.Factory(dict)

    def begin_request(self, now: float) -> None:
        self.used_at = now
        self.next_epoch = following_epoch(self.next_epoch)

    def update(self, asked: Mapping[SessionKey, FetchTarget]) -> None:
        """Read these partitions from now on as they are asked for; known ones keep their place and what was sent."""
        for key, target in asked.items():
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(target)
            else:
                known.target = target

    def forget(self, keys: Iterable[SessionKey]) -> None:
        for key in keys:
            self.partitions.pop(key, None)

    def incremental_changes(
        self, reads: Iterable[SessionRead], results: Iterable[FetchedPartition]
    ) -> list[KeyedResult]:
        """The ``results`` that the response must include; ``reads`` names their partitions, in their order.

        Partitions that gave records go to the end: the byte limit shall hit others next time.
        """
        changed: list[KeyedResult] = []
        for (key, partition), result in zip(reads, results, strict=True):
            if partition.changed_since(result):
                changed.append((key, result))
        for key, result in changed:
            if result.size_bytes and (moved := self.partitions.pop(key, None)):
                self.partitions[key] = moved
        return changed


class FetchSessionCache:
    """The sessions of all consumers. ``max_sessions`` is ``max.incremental.fetch.session.cache.slots``; 0: none."""

    def __init__(self, clock: Clock, random: Random, max_sessions: int) -> None:
        self.clock = clock
        self.random = random
        self.max_sessions = max_sessions
        self._sessions: dict[int, FetchSession] = {}  # the one unused longest first

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self, asked: Mapping[SessionKey, FetchTarget], principal: KafkaPrincipal, *, by_id: bool
    ) -> FetchSession | None:
        """A new session of these partitions, or None when there is no room for one."""
        if not asked or not self._make_room(len(asked)):
            return None
        session = FetchSession(self._new_id(), principal, by_id, self.clock.monotonic())
        session.update(asked)
        self._sessions[session.session_id] = session
        return session

    def extend(self, session: FetchSession, asked: Mapping[SessionKey, FetchTarget]) -> None:
        """Take over what a request of ``session`` asks for.

        Raises:
            KafkaError: ``FETCH_SESSION_ID_NOT_FOUND``: it outgrew the cache and is closed.
        """
        new = len(asked.keys() - session.partitions.keys())
        if new and self._partitions_held() + new > MAX_SESSION_PARTITIONS:
            del self._sessions[session.session_id]
            text = f"fetch session {session.session_id} grew too large"
            raise KafkaError(text, code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(asked)

    def resume(self, session_id: int, epoch: int, principal: KafkaPrincipal, *, by_id: bool) -> FetchSession:
        """The session that a request of ``principal`` continues.

        Raises:
            KafkaError: ``FETCH_SESSION_ID_NOT_FOUND``, also of another principal's; ``INVALID_FETCH_SESSION_EPOCH``
                when a request was lost or came twice; ``FETCH_SESSION_TOPIC_ID_ERROR`` when the client changed between
                names and ids.
        """
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            raise KafkaError(f"no fetch session {session_id}", code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.next_epoch:
            text = f"fetch session {session_id}: epoch {epoch}, expected {session.next_epoch}"
            raise KafkaError(text, code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != session.by_id:
            text = f"fetch session {session_id} goes by {'ids' if session.by_id else 'names'}"
            raise KafkaError(text, code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.begin_request(self.clock.monotonic())
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session_id: int, principal: KafkaPrincipal) -> None:
        """End a session of ``principal``, if it is there."""
        session = self._sessions.get(session_id)
        if session is not None and session.principal == principal:
            del self._sessions[session_id]

    def _make_room(self, partitions: int) -> bool:
        """Evict sessions that have long been idle until one more fits; tell whether it does."""
        stale_before = self.clock.monotonic() - IDLE_SECONDS
        while self._is_full(partitions):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or oldest.used_at > stale_before:
                return False
            del self._sessions[oldest.session_id]
        return True

    def _is_full(self, partitions: int) -> bool:
        return len(self._sessions) >= self.max_sessions or self._partitions_held() + partitions > MAX_SESSION_PARTITIONS

    def _partitions_held(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def _new_id(self) -> int:
        """An id that no session has: random, so that a client of before a restart does not continue another's."""
        while True:
            session_id = self.random.randint(1, MAX_EPOCH)
            if session_id not in self._sessions:
                return session_id
