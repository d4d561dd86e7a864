"""What goes into a group and what comes out: the vocabulary between the pure state machines and their runner.

A group is told of one event at a time (a request, or that time has passed) and returns ``Effects``: records to append,
answers to give, events for the timeline. It does no I/O, reads no clock and draws no random numbers: the moment and new
ids come with the event. So a whole rebalance is a function, and a test is a conversation.

The runner appends ``records`` in one batch before anything else happens to the group. Answers go out when the batch is
safe, at once if there is none. Requests that have to wait are kept by the group as tickets, and answered by a later
event.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from typing import Any

import attrs

from kafka_wire.stored.groups import GroupRecord

Ticket = Hashable
"""One request that wants an answer. Opaque to the groups; each is answered exactly once."""


@attrs.frozen
class Moment:
    """When something happens: ``seconds`` by a clock that never goes back, for timers; ``ms`` of the wall clock."""

    seconds: float
    ms: int


@attrs.frozen
class Asker:
    """Who sends a request: its client id, its address as Java writes it (``/127.0.0.1``), and the version it speaks."""

    client_id: str
    client_host: str
    version: int


@attrs.frozen
class Answer:
    """The response to one request."""

    ticket: Ticket
    response: Any


class GroupEventKind(enum.Enum):
    """What can happen to a group; the values are the words that people see."""

    MEMBER_JOINED = "member joined"
    MEMBER_REJOINED = "member joined again"
    MEMBER_REPLACED = "static member replaced"
    MEMBER_LEFT = "member left"
    MEMBER_TIMED_OUT = "member timed out"
    MEMBER_FENCED = "member fenced"
    SUBSCRIPTION_CHANGED = "subscription changed"
    PARTITIONS_CHANGED = "partitions of subscribed topics changed"
    ASSIGNMENT_LOST = "the assignment could not be written down"
    PROTOCOL_CHANGED = "group changed between classic and consumer protocol"
    REBALANCE_STARTED = "rebalance started"
    REBALANCE_COMPLETED = "rebalance completed"


@attrs.frozen(kw_only=True)
class GroupEvent:
    """Something that happened to a group. ``generation`` is its generation id or group epoch right after it."""

    kind: GroupEventKind
    at_ms: int
    generation: int
    member_id: str | None = None
    group_instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    reason: str = ""
    """More, in words: the member's own reason (KIP-800), or which timeout passed."""


@attrs.define
class Effects:
    """What is to be done because of an event, in the order of the fields."""

    records: list[GroupRecord] = attrs.Factory(list)
    answers: list[Answer] = attrs.Factory(list)
    events: list[GroupEvent] = attrs.Factory(list)

    def answer(self, ticket: Ticket, response: Any) -> None:
        self.answers.append(Answer(ticket, response))

    def extend(self, other: Effects) -> None:
        """Do ``other`` after this."""
        self.records.extend(other.records)
        self.answers.extend(other.answers)
        self.events.extend(other.events)
