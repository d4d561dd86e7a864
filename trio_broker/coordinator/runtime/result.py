"""What goes into a group and what comes out: the values between the pure state machines and the shard that runs them.

A group takes one event at a time (a ``CoordinatorEvent`` with a request, or the passing of time) and returns a
``CoordinatorResult``: records to append, responses to send, events for the timeline. It does no I/O, reads no clock and
draws no random numbers: the time and new ids come with the event. So a whole rebalance is a function, and a test is a
conversation.

An event that needs records decides, and changes the group only when they are appended: the shard appends ``records`` in
one batch and calls ``on_append``, before the group sees another event. Responses are sent when the batch is durable, at
once if there is none. The group keeps the futures of requests that have to wait, and completes them in a later event.

Source: Kafka's CoordinatorResult and RequestContext.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.stored.groups import GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.runtime.response_future import ResponseFuture

RequestT = TypeVar("RequestT")


@attrs.frozen
class Now:
    """The time of an event: by a clock that never goes back, for timers, and by the wall clock, for records."""

    monotonic_seconds: float
    wall_ms: int


@attrs.frozen
class RequestContext:
    """Who sends a request: its client id, its address as Java writes it (``/127.0.0.1``), and the API version."""

    client_id: str
    client_host: str
    version: int


@attrs.define(eq=False)
class CoordinatorEvent(Generic[RequestT]):
    """A request, and all that its response may depend on. ``image`` is the cluster's metadata at the time.

    ``new_member_id`` is for a member that needs one; ``future`` takes the response. Not frozen, which costs more: one
    is made for each heartbeat and commit.
    """

    request: RequestT
    context: RequestContext
    future: ResponseFuture
    now: Now
    image: MetadataImage
    new_member_id: str = ""


@attrs.frozen
class Completion:
    """A response, and the future of the request that it answers."""

    future: ResponseFuture
    response: Any


def group_event(
    kind: GroupEventKind, now: Now, generation: int, member: Any = None, reason: str | None = ""
) -> GroupEvent:
    """Something that happened to ``member``, of either protocol, or to the whole group."""
    event = GroupEvent(kind=kind, at_ms=now.wall_ms, generation=generation, reason=reason or "")
    if member is None:
        return event
    return attrs.evolve(
        event,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


@attrs.define
class CoordinatorResult:
    """What follows from an event; ``records``, ``completions`` and ``events`` take effect in this order.

    ``completions`` and ``events`` hold even if the log refuses the records. What depends on them is the result of
    ``on_append``, which is called with NONE once they are appended (or if there are none), and with the reason if they
    are refused: the appendFuture of Kafka's CoordinatorResult. ``successor`` takes the place of the group once they are
    appended: the group in the other protocol.
    """

    records: list[GroupRecord] = attrs.Factory(list)
    completions: list[Completion] = attrs.Factory(list)
    events: list[GroupEvent] = attrs.Factory(list)
    successor: Any = None
    on_append: Callable[[ErrorCode], CoordinatorResult] | None = None

    def complete(self, future: ResponseFuture, response: Any) -> None:
        self.completions.append(Completion(future, response))

    def extend(self, other: CoordinatorResult) -> None:
        """Do ``other``, which waits for no records of its own, after this."""
        assert other.on_append is None, other.records
        self.records.extend(other.records)
        self.completions.extend(other.completions)
        self.events.extend(other.events)
