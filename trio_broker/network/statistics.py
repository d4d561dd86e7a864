"""The statistics of the network, each as of one moment.

Counters only grow; readers take differences. Ratios are of the last whole second (``SAMPLE_SECONDS``), sampled once
centrally, so that the admin page, the metrics and a test see the same figures. For another interval, divide the
difference of two ``busy_ns`` by the difference of their ``measured_ns``.
"""

from __future__ import annotations

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
    receivers_waiting: int
    requests: int


@attrs.frozen
class HandlerSlotStatistics:
    """Of one of the ``num.io.threads``: busy while a request holds it; delayed requests hold none."""

    slot: int
    idle_ratio: float
    busy_ns: int
    requests: int


@attrs.frozen
class HandlerPoolStatistics:
    """Of all handlers. ``parked`` requests wait without a slot."""

    size: int
    slots: tuple[HandlerSlotStatistics, ...]
    parked: int
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


@attrs.frozen
class SocketServerStatistics:
    """Of the socket server as a whole.

    ``measured_ns`` is ``time.perf_counter_ns`` of this reading.
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

    @property
    def network_idle_ratio(self) -> float:
        """The mean over the Processors, Kafka's NetworkProcessorAvgIdlePercent."""
        return mean_idle_ratio([processor.idle_ratio for processor in self.processors])

    @property
    def handler_idle_ratio(self) -> float:
        """The mean over the handler slots, Kafka's RequestHandlerAvgIdlePercent."""
        return mean_idle_ratio([slot.idle_ratio for slot in self.handlers.slots])


def mean_idle_ratio(ratios: list[float]) -> float:
    """The mean of ``ratios``; nothing at all is wholly idle."""
    return sum(ratios) / len(ratios) if ratios else 1.0
