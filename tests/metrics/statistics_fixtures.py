"""Statistics of parts that do not run, out of defaults."""

from __future__ import annotations

from typing import Any

import attrs

from trio_broker.common.histogram import NOTHING_COUNTED, HistogramSnapshot
from trio_broker.metrics.history import BrokerReadings
from trio_broker.network.statistics import (
    ClientBacklog,
    HandlerPoolStatistics,
    HandlerSlotStatistics,
    ProcessorStatistics,
    RequestChannelStatistics,
    SocketServerStatistics,
)
from trio_broker.partition.flusher import FlusherStatistics
from trio_broker.partition.log_cleaner import LogCleanerStatistics
from trio_broker.partition.thread_occupancy import ThreadOccupancyStatistics
from trio_broker.runtime.cpu_clock import CpuTimes

NEVER_BUSY = ThreadOccupancyStatistics(busy=0, waiting=0, busy_ns={}, all_busy_ns=0, waiting_ns=0)


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
        "request_bytes_held": 0,
        "unread_bytes": 0,
        "backlog": None,
    }
    return SocketServerStatistics(**(values | changes))


def client_backlog(**changes: Any) -> ClientBacklog:
    """A megabyte and a half of a producer that has one connection, but for ``changes``."""
    values: dict[str, Any] = {
        "client_id": "payments",
        "connections": 1,
        "unread_bytes": 1_500_000,
        "wait_seconds": 60.0,
        "is_producer": True,
    }
    return ClientBacklog(**(values | changes))


def channel_statistics(recent_peak_depth: int = 0, capacity: int = 500) -> RequestChannelStatistics:
    return RequestChannelStatistics(0, capacity, recent_peak_depth, recent_peak_depth, 0)


def handler_statistics(*slots: HandlerSlotStatistics, delayed: int = 0) -> HandlerPoolStatistics:
    return HandlerPoolStatistics(len(slots), 0, slots, delayed, 0, 0, 0)


def processor_statistics(number: int, idle_ratio: float, busy_seconds: float = 0.0) -> ProcessorStatistics:
    return ProcessorStatistics(number, False, 0, idle_ratio, int(busy_seconds * 1e9), 0, 0, 0, 0, 0, 0)


def slot_statistics(number: int, idle_ratio: float, busy_seconds: float = 0.0) -> HandlerSlotStatistics:
    return HandlerSlotStatistics(number, idle_ratio, int(busy_seconds * 1e9), 0)


def broker_readings(at_seconds: float = 0.0, **changes: Any) -> BrokerReadings:
    """A broker that has done nothing for ``at_seconds``, but for ``changes`` of the readings or of the server's."""
    parts = {field.name for field in attrs.fields(BrokerReadings)}
    given = {name: value for name, value in changes.items() if name in parts}
    rest = {name: value for name, value in changes.items() if name not in parts}
    values: dict[str, Any] = {
        "server": server_statistics(at_seconds, **rest),
        "flusher": flusher_statistics(),
        "cleaner": cleaner_statistics(),
        "cpu": CpuTimes(),
        "appended_records": 0,
    }
    return BrokerReadings(**(values | given))


def flusher_statistics(
    threads: int = 8,
    occupancy: ThreadOccupancyStatistics = NEVER_BUSY,
    sync_times: HistogramSnapshot = NOTHING_COUNTED,
    wait_times: HistogramSnapshot = NOTHING_COUNTED,
) -> FlusherStatistics:
    return FlusherStatistics(threads, 0, 0, occupancy, sync_times, wait_times)


def cleaner_statistics(**changes: Any) -> LogCleanerStatistics:
    values: dict[str, Any] = {
        "rounds": 0,
        "bytes_read": 0,
        "bytes_written": 0,
        "records_read": 0,
        "records_kept": 0,
        "under_way": (),
        "uncleanable": (),
        "max_dirty_ratio": 0.0,
        "dirtiest": (),
        "busy_ns": 0,
    }
    return LogCleanerStatistics(**(values | changes))
