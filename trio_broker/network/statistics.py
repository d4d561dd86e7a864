"""The statistics of the network, each as of one moment.

Counters only grow; readers take differences. Ratios are of the last whole second (``SAMPLE_SECONDS``), sampled once
centrally, so that the admin page, the metrics and a test see the same figures. For another interval, divide the
difference of two ``busy_ns`` by the difference of their ``measured_ns``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs


@attrs.frozen
class RequestChannelStatistics:
    """Of the queue between Processors and handlers. ``recent_peak_depth`` is of the last second or so."""

    depth: int
    capacity: int
    peak_depth: int
    recent_peak_depth: int
    senders_waiting: int


@attrs.frozen
class HandlerSlotStatistics:
    """Of one of the ``num.io.threads``: busy while a request holds it; delayed requests hold none."""

    slot: int
    idle_ratio: float
    busy_ns: int
    requests: int


@attrs.frozen
class HandlerPoolStatistics:
    """Of all handlers. ``idle`` slots have no request; ``delayed`` requests wait without a slot."""

    size: int
    idle: int
    slots: tuple[HandlerSlotStatistics, ...]
    delayed: int
    in_flight: int
    answered: int
    failed: int


@attrs.frozen
class ProcessorStatistics:
    """Of one of the ``num.network.threads``.

    ``cold_sends`` went through its worker thread, which was busy for ``cold_send_ns``.
    """

    processor_id: int
    is_retiring: bool
    connections: int
    idle_ratio: float
    busy_ns: int
    requests: int
    bytes_in: int
    bytes_out: int
    cold_sends: int
    cold_send_ns: int
    new_connections_waiting: int


@attrs.frozen(kw_only=True)
class ClientBacklog:
    """Requests of one client that wait unread on ``connections`` of its connections, behind those in flight there.

    ``wait_seconds`` is how long a request that is sent now will wait at least before it is read, on the slowest of
    them; None while nothing is read.
    """

    client_id: str
    connections: int
    unread_bytes: int
    wait_seconds: float | None
    is_producer: bool


@attrs.frozen
class SocketServerStatistics:
    """Of the socket server as a whole.

    ``measured_ns`` is ``time.perf_counter_ns`` of this reading. ``unread_bytes`` are those that clients had sent and
    nobody had read at the last sample; ``backlog`` is the largest of a client then, None when none had one.
    """

    measured_ns: int
    loop_busy_ratio: float
    loop_busy_ns: int
    loop_passes: int
    channel: RequestChannelStatistics
    handlers: HandlerPoolStatistics
    processors: tuple[ProcessorStatistics, ...]
    connections: int
    connections_accepted: int
    connections_rejected: Mapping[str, int]
    connections_closed: Mapping[str, int]
    requests: int
    bytes_in: int
    bytes_out: int
    request_bytes_held: int
    unread_bytes: int
    backlog: ClientBacklog | None

    @property
    def network_idle_ratio(self) -> float:
        """The mean over the Processors, Kafka's NetworkProcessorAvgIdlePercent."""
        return mean_idle_ratio([processor.idle_ratio for processor in self.processors])

    @property
    def handler_idle_ratio(self) -> float:
        """The mean over the handler slots, Kafka's RequestHandlerAvgIdlePercent."""
        return mean_idle_ratio([slot.idle_ratio for slot in self.handlers.slots])


class ConnectionStage(enum.Enum):
    """Where a connection stands on the way of a request through the broker, in the order of that way."""

    HANDSHAKING = "handshaking"
    """Agreeing on keys, before the first request."""
    IDLE = "idle"
    """Between two requests."""
    UNREAD = "unread"
    """The next requests wait unread behind those in flight, and have done so for seconds."""
    RECEIVING = "receiving"
    """In the middle of a request's bytes."""
    WAITING_FOR_MEMORY = "waiting_for_memory"
    """A large request waits for ``queued.max.request.bytes``."""
    WAITING_FOR_QUEUE = "waiting_for_queue"
    """A request waits for room in the request queue."""
    QUEUED = "queued"
    """In the request queue."""
    HANDLED = "handled"
    """A handler works on the request."""
    SYNCING = "syncing"
    """The request waits until its records are on the disk."""
    DELAYED = "delayed"
    """The request waits for others: a long poll, a rebalance, replicas."""
    SENDING = "sending"
    """The response leaves."""
    WAITING_FOR_READER = "waiting_for_reader"
    """The response waits for a client that does not read it."""
    THROTTLED = "throttled"
    """Not read for a time, since its client is above a quota."""


@attrs.frozen
class ApiUse:
    """Requests of one version of one API."""

    api: str
    version: int
    requests: int


@attrs.frozen
class ApiErrors:
    """How often answers of one API carried one error code."""

    api: str
    error: str
    count: int


@attrs.frozen
class ProducedBatches:
    """The batches appended for a client. ``acks`` is that of the latest Produce, None where several differ."""

    acks: int | None
    batches: int
    idempotent_batches: int
    records: int
    bytes: int
    batches_by_codec: dict[str, int]


@attrs.frozen
class ConnectionStatistics:
    """One connection. ``software_name`` and ``_version`` are empty until the client names them (KIP-511).

    ``local_host`` and ``local_port`` are the address that the client has dialled.

    ``requests_per_second`` are those of the last whole second. ``request`` is the API of the one in flight, which has
    been under way for ``request_seconds``.

    ``unread_bytes`` were sent and not read at the last sample. When they are requests that wait behind others for
    seconds, the next one will wait for ``unread_wait_seconds`` at least; None otherwise, and while nothing is read.
    """

    connection_id: int
    client_id: str
    software_name: str
    software_version: str
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    connected_at_ms: int
    idle_seconds: float
    stage: ConnectionStage
    muted_because: str | None
    bytes_in: int
    bytes_out: int
    requests: int
    requests_per_second: int
    unread_bytes: int
    unread_wait_seconds: float | None
    apis: tuple[ApiUse, ...]
    request: str | None
    request_seconds: float | None
    errors: int
    errors_by_api: tuple[ApiErrors, ...]
    produced: ProducedBatches | None


@attrs.frozen
class DepartedConnection:
    """A connection that ended at ``left_at_ms`` for ``reason``, as it was then."""

    statistics: ConnectionStatistics
    left_at_ms: int
    reason: str


@attrs.frozen
class FailedHandshake:
    """The connections from ``peer_host`` to one listener that ended for ``cause``; ``reason`` is the latest one's."""

    listener_name: str
    peer_host: str
    cause: str
    reason: str
    client_id: str | None
    software: str | None
    count: int
    first_at_ms: int
    last_at_ms: int


@attrs.frozen(kw_only=True)
class RecentError:
    """How often one client was answered with one error code by one API, since ``first_at_ms``.

    ``software_name`` and ``software_version`` are empty for a client that does not name them (KIP-511).
    """

    api: str
    error: str
    client_id: str | None
    software_name: str
    software_version: str
    count: int
    first_at_ms: int
    last_at_ms: int


def mean_idle_ratio(ratios: list[float]) -> float:
    """The mean of ``ratios``; nothing at all is wholly idle."""
    return sum(ratios) / len(ratios) if ratios else 1.0
