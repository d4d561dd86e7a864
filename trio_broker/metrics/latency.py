"""How long requests take, by API and phase, as the admin page and its API show it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kafka_wire.apis import ApiKey, api_name
from kafka_wire.error_codes import ErrorCode
from trio_broker.common.histogram import HistogramSnapshot
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestTimes


@attrs.frozen
class LatencySummary:
    """Some durations in milliseconds; a quantile may be wrong by a tenth, ``max_ms`` by a quarter upwards."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@attrs.frozen
class PhaseLatency:
    """The time that requests spent in one ``phase``, those included that were never in it."""

    phase: RequestPhase
    latency: LatencySummary


@attrs.frozen
class RequestLatency:
    """The answered requests of one API in some stretch of time.

    ``phases`` are in the order in which a request goes through them; their means add up to that of ``total``, which is
    from a request's last byte to its answer's last byte. ``active`` is the total without the time in purgatory: a long
    poll waits there for records. ``errors`` counts the error codes of answers by name; one answer may hold many.
    """

    seconds: float
    count: int
    per_second: float
    error_count: int
    errors: Mapping[str, int]
    total: LatencySummary
    active: LatencySummary
    phases: tuple[PhaseLatency, ...]


@attrs.frozen
class ApiLatency:
    """The requests of one API, such as ``OffsetCommit``: of the last minute, and since the broker started."""

    api: str
    last_minute: RequestLatency
    since_start: RequestLatency


@attrs.frozen
class LatencyReport:
    """The APIs that were requested, by name. ``syncs`` are those of partitions since the start, ``sync_waits`` the
    times that they waited for a thread."""

    apis: tuple[ApiLatency, ...]
    sync_count: int
    syncs: LatencySummary
    sync_waits: LatencySummary


def api_latencies(metrics: RequestChannelMetrics, uptime_seconds: float) -> tuple[ApiLatency, ...]:
    """What ``metrics`` has counted."""
    return tuple(
        sorted(
            (
                ApiLatency(
                    api_name(api_key),
                    request_latency(each.last_minute(), metrics.recent_seconds),
                    request_latency(each.since_start(), uptime_seconds),
                )
                for api_key, each in metrics.by_api.items()
            ),
            key=lambda each: each.api,
        )
    )


def api_label(api_key: int) -> str:
    """An API as a label of Prometheus' metrics: ``offset_commit``."""
    return ApiKey(api_key).name.lower()


def error_name(code: int) -> str:
    """The name of an error code as in the protocol."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"{code}"


def request_latency(times: RequestTimes, seconds: float) -> RequestLatency:
    count = times.count
    return RequestLatency(
        seconds=seconds,
        count=count,
        per_second=count / seconds if seconds else 0.0,
        error_count=sum(times.errors.values()),
        errors={error_name(code): number for code, number in sorted(times.errors.items())},
        total=latency_summary(times.total),
        active=latency_summary(times.active),
        phases=tuple(PhaseLatency(phase, latency_summary(times.phase(phase))) for phase in RequestPhase),
    )


NO_LATENCY = LatencySummary(0.0, 0.0, 0.0, 0.0, 0.0)


def latency_summary(times: HistogramSnapshot) -> LatencySummary:
    if not times.sum_ns:
        # None, or none that was ever in the phase: the shortest bucket would say half a microsecond.
        return NO_LATENCY
    return LatencySummary(
        mean_ms=times.sum_ns / times.count / 1e6,
        p50_ms=times.quantile_ms(0.5),
        p95_ms=times.quantile_ms(0.95),
        p99_ms=times.quantile_ms(0.99),
        max_ms=times.max_ms,
    )
