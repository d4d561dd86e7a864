"""The fetch session of a follower with one leader: each Fetch says only what has changed since the last one.

The first names all partitions; if the leader keeps a session of them, the next ones name those that are asked for at
another offset or epoch, and those that are not asked for any more. The leader answers alike: a partition without news
is not in the answer. Until a Fetch is answered, and after any error, the next one begins a new session, in which the
leader ends the one before.

Source: Kafka's FetchSessionHandler; KIP-227.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.fetch import FetchResponse
from trio_broker.partition.fetch_answers import FollowerPosition
from trio_broker.partition.fetch_sessions import INITIAL_EPOCH, NO_SESSION, following_epoch


class FetchKey(NamedTuple):
    """A partition as a Fetch names it. A tuple, because thousands are hashed and compared for each Fetch."""

    topic_id: bytes
    partition: int


@attrs.frozen
class SessionRequest:
    """What a Fetch says of its session: partitions to ask for as they are now, and those that leave it."""

    session_id: int
    epoch: int
    to_send: Collection[FetchKey]
    to_forget: Collection[FetchKey] = ()


class FetchSessionHandler:
    """See the head of the file. ``build``, and then ``answered`` with what came of it, if anything."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION
        self._next_epoch = self._sent_epoch = INITIAL_EPOCH
        # What the leader knows, if there is a session.
        self._positions: Mapping[FetchKey, FollowerPosition] = {}

    def build(self, positions: Mapping[FetchKey, FollowerPosition]) -> SessionRequest:
        """Return what the next Fetch says, in order to ask for just these ``positions``."""
        known, self._positions = self._positions, positions
        self._sent_epoch, self._next_epoch = self._next_epoch, INITIAL_EPOCH
        if self._sent_epoch == INITIAL_EPOCH:
            return SessionRequest(self._session_id, INITIAL_EPOCH, positions.keys())
        changed = [key for key, position in positions.items() if known.get(key) != position]
        gone = [key for key in known if key not in positions]
        return SessionRequest(self._session_id, self._sent_epoch, changed, gone)

    def answered(self, response: FetchResponse) -> None:
        """Go on in the session that the leader keeps, if it does."""
        if response.error_code == ErrorCode.NONE:
            self._session_id = response.session_id
            if self._session_id != NO_SESSION:
                self._next_epoch = following_epoch(self._sent_epoch)

    def begin_anew(self) -> None:
        """Have the next answer say all there is to say: a part of the last one was not followed, and the leader will
        not say it again."""
        self._next_epoch = INITIAL_EPOCH
