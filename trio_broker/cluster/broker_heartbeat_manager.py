"""The sessions of the brokers: when each was in contact last, and how far it has read the metadata.

A session is kept by the active controller, in memory only: a new controller gives every broker a whole session. It is
counted by the monotonic clock. What state a broker is in, the image says; here it is decided which comes next.

Source: Kafka's BrokerHeartbeatManager and BrokerHeartbeatTracker.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Set
from typing import Final

import attrs

from trio_broker.cluster.metadata_image import BrokerImage, MetadataImage

NOTHING_READ: Final = -1
"""The metadata offset of a broker that has not said how far it is."""


class BrokerControlState(enum.Enum):
    """What the controller has a broker do."""

    FENCED = enum.auto()
    UNFENCED = enum.auto()
    CONTROLLED_SHUTDOWN = enum.auto()
    """Its leaderships have moved, and it goes on until all active brokers have read so."""
    SHUTDOWN_NOW = enum.auto()


@attrs.frozen(kw_only=True)
class BrokerHeartbeat:
    """A broker that is alive, and says what it wants, and which of its data directories have failed."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: Set[bytes] = frozenset()


@attrs.define
class _Session:
    broker_epoch: int
    last_contact_seconds: float
    metadata_offset: int = NOTHING_READ
    controlled_shutdown_offset: int | None = None
    was_heard: bool = True
    """Whether the broker was in contact with this controller."""


class BrokerHeartbeatManager:
    """The sessions of all brokers, by id. ``now`` is the monotonic clock, in seconds."""

    def __init__(self, session_timeout_seconds: float) -> None:
        self.session_timeout_seconds = session_timeout_seconds
        self._sessions: dict[int, _Session] = {}

    def begin(self, image: MetadataImage, now: float) -> None:
        """Give every broker that is not fenced a whole session: nobody knows when it was heard last."""
        self._sessions = {
            broker.broker_id: _Session(broker.broker_epoch, now, was_heard=False)
            for broker in image.brokers.values()
            if not broker.fenced
        }

    def register(self, broker_id: int, broker_epoch: int, now: float) -> None:
        """Begin the session of a broker that has registered; an earlier one of its id ends."""
        self._sessions[broker_id] = _Session(broker_epoch, now)

    def note_contact(self, broker_id: int, broker_epoch: int, now: float) -> None:
        """Note that a heartbeat has arrived, before it is its turn: one change may keep all others waiting."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.last_contact_seconds, session.was_heard = now, True

    def touch(self, heartbeat: BrokerHeartbeat, now: float) -> None:
        """Note that a broker is in contact. To be called when what its heartbeat has changed is written."""
        session = self._sessions.get(heartbeat.broker_id)
        if session is None or session.broker_epoch != heartbeat.broker_epoch:
            session = self._sessions[heartbeat.broker_id] = _Session(heartbeat.broker_epoch, now)
        session.last_contact_seconds, session.was_heard = now, True
        session.metadata_offset = heartbeat.current_metadata_offset

    def begin_controlled_shutdown(self, broker_id: int, offset: int) -> None:
        """Note that the leaderships of a broker have moved away by the record at ``offset``, unless it is known."""
        session = self._sessions[broker_id]
        if session.controlled_shutdown_offset is None:
            session.controlled_shutdown_offset = offset

    def end(self, broker_id: int) -> None:
        """End the session of a broker that is fenced, gone, or asked to stop."""
        self._sessions.pop(broker_id, None)

    # --- questions ---

    def has_valid_session(self, broker_id: int, now: float) -> bool:
        """Whether a broker of this id is in contact, or was given a session that lasts."""
        session = self._sessions.get(broker_id)
        return session is not None and now <= session.last_contact_seconds + self.session_timeout_seconds

    def keeps_place(self, broker: BrokerImage, log_dirs: Collection[bytes], now: float) -> bool:
        """Whether ``broker`` may be alive, so that no other process, which has ``log_dirs``, may take its place.

        Of one that was not heard yet a directory tells: two processes do not have it at a time. So a cluster that was
        killed as a whole does not wait for the sessions of its earlier life.
        """
        session = self._sessions.get(broker.broker_id)
        has_ended = session is not None and not session.was_heard and not set(broker.log_dirs).isdisjoint(log_dirs)
        return not has_ended and self.has_valid_session(broker.broker_id, now)

    def stale_broker(self, image: MetadataImage, now: float) -> int | None:
        """Return a broker whose session has ended and that is not fenced yet, the longest silent first.

        They are fenced one after the other, so that none is elected that is about to be fenced as well.
        """
        unfenced = (broker.broker_id for broker in image.brokers.values() if not broker.fenced)
        stale = [broker_id for broker_id in unfenced if not self.has_valid_session(broker_id, now)]
        return min(stale, key=self._last_contact, default=None)

    def is_alone(self, node_id: int, image: MetadataImage, now: float) -> bool:
        """Return whether others than ``node_id`` are unfenced, and none of them was heard for half a session, which is
        longer than a heartbeat takes."""
        latest = [
            self._last_contact(broker.broker_id)[0]
            for broker in image.brokers.values()
            if not broker.fenced and broker.broker_id != node_id
        ]
        return bool(latest) and max(latest) + self.session_timeout_seconds / 2 < now

    def _last_contact(self, broker_id: int) -> tuple[float, int]:
        session = self._sessions.get(broker_id)
        return (session.last_contact_seconds if session is not None else 0.0, broker_id)

    def read_ends(self) -> dict[int, int]:
        """Return up to where each broker in contact has read the metadata, by its last heartbeat."""
        return {broker_id: session.metadata_offset + 1 for broker_id, session in self._sessions.items()}

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """Return how far every active broker has read the metadata; None if none is active."""
        offsets = (
            session.metadata_offset if (session := self._sessions.get(broker_id)) is not None else NOTHING_READ
            for broker_id in image.active_brokers
        )
        return min(offsets, default=None)

    def next_state(
        self, image: MetadataImage, broker: BrokerImage, heartbeat: BrokerHeartbeat, *, leads: bool
    ) -> BrokerControlState:
        """Return the state that follows from a heartbeat; ``leads`` says whether the broker leads any partition."""
        if broker.fenced:
            return self._next_state_of_fenced(broker, heartbeat)
        if broker.in_controlled_shutdown:
            is_followed = not leads and self._is_shutdown_followed(image, broker.broker_id)
            return BrokerControlState.SHUTDOWN_NOW if is_followed else BrokerControlState.CONTROLLED_SHUTDOWN
        if heartbeat.want_shut_down:
            is_controlled = leads and not heartbeat.want_fence
            return BrokerControlState.CONTROLLED_SHUTDOWN if is_controlled else BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.FENCED if heartbeat.want_fence else BrokerControlState.UNFENCED

    def _next_state_of_fenced(self, broker: BrokerImage, heartbeat: BrokerHeartbeat) -> BrokerControlState:
        if heartbeat.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        # Before, it would lead by an image in which it is not what it registered as.
        has_read_registration = heartbeat.current_metadata_offset >= broker.broker_epoch
        is_ready = has_read_registration and not heartbeat.want_fence
        return BrokerControlState.UNFENCED if is_ready else BrokerControlState.FENCED

    def _is_shutdown_followed(self, image: MetadataImage, broker_id: int) -> bool:
        """Whether every active broker has read that the leaderships of this one have moved."""
        session = self._sessions.get(broker_id)
        if session is None or session.controlled_shutdown_offset is None:
            return False
        lowest = self.lowest_active_offset(image)
        return lowest is None or session.controlled_shutdown_offset <= lowest
