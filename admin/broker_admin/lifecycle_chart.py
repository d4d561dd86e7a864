"""The life of requests as stacked bars: for each API its p50 and p99, divided into the phases. Pure functions.

A quantile of a sum is not the sum of the quantiles: a bar is as long as the total's quantile, and its phases share it
in the proportion of their own quantiles. Purgatory is left out, where a long poll waits for records and nothing is
slow; but for Produce, which waits for other replicas there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from trio_broker.common.request_phase import RequestPhase
from trio_broker.metrics.latency import ApiLatency, LatencySummary

BAR_WIDTH = 560.0
"""Of the longest bar, in the units of the chart; the page scales it."""

SHOWN_APIS = 8
"""Bars for the APIs whose requests took most time of all; a broker under load has two or three that matter."""

SHOWN_PHASES = tuple(phase for phase in RequestPhase if phase is not RequestPhase.PURGATORY)

PRODUCE = "produce"


@attrs.frozen
class BarPart:
    """One phase of a bar; ``ms`` is its own quantile."""

    phase: str
    x: float
    width: float
    ms: float


@attrs.frozen
class LifecycleBar:
    """One quantile of one API: ``ms`` in all, in parts that lie side by side."""

    quantile: str
    ms: float
    width: float
    parts: tuple[BarPart, ...]


@attrs.frozen
class ApiBars:
    """The bars of one API, of the last minute."""

    api: str
    per_second: float
    bars: tuple[LifecycleBar, ...]


QUANTILES: tuple[tuple[str, Callable[[LatencySummary], float]], ...] = (
    ("p50", lambda latency: latency.p50_ms),
    ("p99", lambda latency: latency.p99_ms),
)


def lifecycle_bars(apis: Sequence[ApiLatency]) -> list[ApiBars]:
    """The bars of the APIs that were requested in the last minute, those that took most time first.

    All are drawn to one scale, so that their lengths can be compared.
    """
    busy = [api for api in apis if api.last_minute.count]
    busy.sort(key=lambda api: api.last_minute.count * whole_times(api).mean_ms, reverse=True)
    shown = busy[:SHOWN_APIS]
    longest_ms = max((whole_times(api).p99_ms for api in shown), default=0.0)
    return [
        ApiBars(
            api.api,
            api.last_minute.per_second,
            tuple(lifecycle_bar(api, quantile, of, longest_ms) for quantile, of in QUANTILES),
        )
        for api in shown
    ]


def phases_of(api: str) -> tuple[RequestPhase, ...]:
    """The phases that are shown of an API."""
    return tuple(RequestPhase) if api == PRODUCE else SHOWN_PHASES


def whole_times(api: ApiLatency) -> LatencySummary:
    """The times of requests of the last minute with all phases that are shown."""
    return api.last_minute.total if api.api == PRODUCE else api.last_minute.active


def lifecycle_bar(
    api: ApiLatency, quantile: str, of: Callable[[LatencySummary], float], longest_ms: float
) -> LifecycleBar:
    times, shown = api.last_minute, phases_of(api.api)
    total_ms = of(whole_times(api))
    width = BAR_WIDTH * total_ms / longest_ms if longest_ms else 0.0
    phases = {each.phase: of(each.latency) for each in times.phases if each.phase in shown}
    sum_ms = sum(phases.values())
    parts, x = [], 0.0
    for phase, ms in phases.items():
        part = width * ms / sum_ms if sum_ms else 0.0
        if part:
            parts.append(BarPart(phase.value.replace("_", " "), round(x, 1), round(part, 1), ms))
        x += part
    return LifecycleBar(quantile, total_ms, round(width, 1), tuple(parts))
