"""What goes into a coordinator's machine and what comes out.

A machine takes one event at a time (a ``CoordinatorEvent`` with a request, or the passing of time) and returns a
``CoordinatorResult``: records to append, and responses to send once they are appended. It does no I/O, reads no clock
and draws no random numbers: the time and new ids come with the event. So a whole rebalance is a function, and a test is
a conversation.

Source: Kafka's CoordinatorResult and RequestContext.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.runtime.producer import NO_PRODUCER, ProducerIdAndEpoch
from trio_broker.coordinator.runtime.response_future import ResponseFuture

RequestT = TypeVar("RequestT")
RecordT = TypeVar("RecordT")


@attrs.define
class Now:
    """The time of an event: by a clock that never goes back, for timers; by the wall clock, for records; and by the
    ``ExpiryClock``, for what expires.

    Not frozen, which costs more, as little of this module is: each heartbeat and commit has one.
    """

    monotonic_seconds: float
    wall_ms: int
    expiry_ms: int = attrs.Factory(lambda self: self.wall_ms, takes_self=True)


@attrs.frozen
class RequestContext:
    """Who sends a request: its client id, its address as Java writes it (``/127.0.0.1``), and the API version.

    ``may_see`` says of the name of a topic whether the client may describe it; None where everybody may.
    """

    client_id: str
    client_host: str
    version: int
    may_see: Callable[[str], bool] | None = attrs.field(default=None, eq=False)


@attrs.define(eq=False)
class CoordinatorEvent(Generic[RequestT]):
    """A request, and all that its response may depend on. ``image`` is the cluster's metadata at the time.

    ``future`` takes the response. ``new_id`` is for what the event may create, such as a member of a group; a machine
    that needs one draws it before it decides.
    """

    request: RequestT
    context: RequestContext
    future: ResponseFuture
    now: Now
    image: MetadataImage
    new_id: str = ""


@attrs.define
class Completion:
    """A response, and the future of the request that it answers."""

    future: ResponseFuture
    response: Any


@attrs.define
class CoordinatorResult(Generic[RecordT]):
    """What a machine has decided. Nothing of it holds before all of ``records`` are appended.

    Once they are, the machine applies them, and ``completions`` are sent when they are durable. If the log refuses
    them, the result of ``refused``, which has no records, holds in the place of this one; without ``refused`` the
    refusal is the error of the request, and what was due is due again.
    """

    records: list[RecordT] = attrs.Factory(list)
    completions: list[Completion] = attrs.Factory(list)
    replace_with: Any = None
    """The new state of the key, to which the records have been applied: see ``Machine.replace``."""
    refused: Callable[[ErrorCode], CoordinatorResult[RecordT]] | None = None
    """Called with the code for clients."""
    is_atomic: bool = True
    """Whether the records are one batch. Otherwise they are several, and those before a refusal hold."""

    producer: ProducerIdAndEpoch = NO_PRODUCER
    """In whose transaction the records stand, which count when it is committed; see ``Machine.apply_pending``."""

    is_routine: bool = False
    """Whether the key goes on as it was, and its deadline is no nearer, so that neither ``Machine.observe`` nor the
    timer need to know. So are commits, which come thousands of times a second."""

    def complete(self, future: ResponseFuture, response: Any) -> None:
        self.completions.append(Completion(future, response))
