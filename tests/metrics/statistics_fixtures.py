"""Statistics of parts that do not run, out of defaults."""

from __future__ import annotations

from typing import Any

from trio_broker.network.statistics import (
    HandlerPoolStatistics,
    HandlerSlotStatistics,
    ProcessorStatistics,
    RequestChannelStatistics,
    SocketServerStatistics,
)


def server_statistics(at_seconds: float = 0.0, **changes: Any) -> SocketServerStatistics:
    """A socket server that has done nothing for ``at_seconds``, but for ``changes``."""
    values: dict[str, Any] = {
        "measured_ns": int(at_seconds * 1e9),
        "loop_busy_ratio": 0.0,
        "loop_busy_ns": 0,
        "loop_passes": 0,
        "channel": channel_statistics(),
        "handlers": handler_statistics(),
        "processors": (),
        "connections": 0,
        "connections_accepted": 0,
        "connections_rejected": {},
        "connections_closed": {},
        "requests": 0,
        "bytes_in": 0,
        "bytes_out": 0,
        "send_seconds": 0.0,
        "request_bytes_held": 0,
    }
    return SocketServerStatistics(**(values | changes))


def channel_statistics(recent_peak_depth: int = 0, capacity: int = 500) -> RequestChannelStatistics:
    return RequestChannelStatistics(0, capacity, recent_peak_depth, recent_peak_depth, 0, 0, 0)


def handler_statistics(*slots: HandlerSlotStatistics, parked: int = 0) -> HandlerPoolStatistics:
    return HandlerPoolStatistics(len(slots), slots, parked, 0, 0, 0, 0.0, 0.0, 0.0)


def processor_statistics(number: int, idle_ratio: float, busy_seconds: float = 0.0) -> ProcessorStatistics:
    return ProcessorStatistics(number, False, 0, idle_ratio, int(busy_seconds * 1e9), 0, 0, 0, 0, 0)


def slot_statistics(number: int, idle_ratio: float, busy_seconds: float = 0.0) -> HandlerSlotStatistics:
    return HandlerSlotStatistics(number, idle_ratio, int(busy_seconds * 1e9), 0)
