"""Whether a broker is healthy, in one line: what rules find in its readings, each with the page that shows more.

A rule speaks of what somebody has to look at, now or within days. What is only slow is left to the page of tuning,
unless a setting would help. Everything here is a pure function.

Source: docs/metrics.md, which has the rules in a table.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import attrs

from broker_admin.group_actions import group_address
from broker_admin.group_diagnosis import causes_of, often_text
from broker_admin.pages import LINKED_CHARACTERS
from broker_admin.storage_texts import growth_text
from broker_admin.texts import shown_text
from broker_admin.views.node import Readiness
from broker_admin.views.overview import OverviewReadings
from broker_admin.views.storage import DirectoryReport
from trio_broker.metrics.bottleneck import BUSY_LOOP_RATIO, READINGS_SECONDS, Bottleneck, lacks_cpu, readings_of
from trio_broker.metrics.history import HistorySample
from trio_broker.network.statistics import FailedHandshake

RECENT_MS = 5 * 60_000
"""What failed once longer ago needs no attention now."""

BUSY_SECONDS = 30
"""An event loop that is busy for less may have had one large piece of work, such as the load of a group."""

UNREAD_SECONDS = 1.0
"""A shorter wait is what a producer that is as fast as the broker has all the time."""

FULL_DISK_RATIO = 0.9
"""The share of a disk that is taken from which on it is worth a look, whatever the forecast."""

NEARLY_FULL_DISK_RATIO = 0.98

FULL_WITHIN_SECONDS = 7 * 86_400
"""A week is time to order a disk, or to shorten a retention."""

FULL_SOON_SECONDS = 86_400

FORECAST_SECONDS = 3600
"""A forecast from a shorter time may be of one large copy of a file: it is worth a look, and no alarm."""

BROKER_ERRORS = ("UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR")
"""Answers for which the client has done nothing: a bug of the broker, or a disk that failed."""

NAMED_CHARACTERS = 40
"""Of a group's id in the line."""


class HealthState(enum.Enum):
    """How a broker is, the worst last."""

    HEALTHY = "healthy"
    ATTENTION = "attention"
    """Something has to be looked at."""
    FAILING = "failing"
    """Clients are not served, or soon will not be."""


@attrs.frozen
class HealthFinding:
    """One thing that is not as it should be, in a few words, and the ``page`` that shows more."""

    state: HealthState
    text: str
    page: str


@attrs.frozen
class Health:
    """How a broker is: ``summary`` is all ``findings`` in one line, the worst first, or ``Healthy.``."""

    state: HealthState
    summary: str
    findings: tuple[HealthFinding, ...]


def health(
    readiness: Readiness,
    readings: OverviewReadings,
    samples: Sequence[HistorySample],
    limit: Bottleneck,
    handshakes: Sequence[FailedHandshake],
) -> Health:
    """The verdict on a broker with these readings."""
    found = [
        *readiness_findings(readiness),
        *storage_findings(readings),
        *error_findings(readings),
        *group_findings(readings),
        *restless_findings(readings),
        *transaction_findings(readings),
        *disk_findings(readings.directories),
        *loop_findings(samples),
        *backlog_findings(samples),
        *limit_findings(limit),
        *handshake_findings(handshakes, readings.read_at_ms),
    ]
    findings = tuple(sorted(found, key=lambda each: each.state is not HealthState.FAILING))
    if not findings:
        return Health(HealthState.HEALTHY, "Healthy.", ())
    summary = "; ".join(finding.text for finding in findings)
    return Health(findings[0].state, f"{summary[0].upper()}{summary[1:]}.", findings)


def readiness_findings(readiness: Readiness) -> Iterator[HealthFinding]:
    if not readiness.ready:
        yield HealthFinding(HealthState.FAILING, f"clients are not served: {readiness.reason}", "/storage")


def storage_findings(readings: OverviewReadings) -> Iterator[HealthFinding]:
    """What cannot be read, is damaged, or cannot be compacted."""
    directories = readings.directories
    if failed := sum(each.failure is not None for each in directories):
        text = f"{failed} of {counted(len(directories), 'data directory', 'data directories')} out of use"
        yield HealthFinding(HealthState.FAILING, text, "/storage")
    if count := readings.unreadable_partitions:
        yield HealthFinding(HealthState.FAILING, f"{counted(count, 'partition')} cannot be read", "/topics")
    if count := readings.damaged_segments:
        yield HealthFinding(HealthState.FAILING, f"{counted(count, 'segment')} damaged on disk", "/storage")
    if count := readings.uncleanable_partitions:
        yield HealthFinding(HealthState.ATTENTION, f"{counted(count, 'partition')} cannot be compacted", "/storage")


def error_findings(readings: OverviewReadings) -> Iterator[HealthFinding]:
    """Requests that failed through no fault of their clients."""
    recent = [each for each in readings.errors if each.last_at_ms > readings.read_at_ms - RECENT_MS]
    if names := sorted({each.error for each in recent}.intersection(BROKER_ERRORS)):
        yield HealthFinding(HealthState.FAILING, f"requests are answered with {' and '.join(names)}", "/#errors-title")


def group_findings(readings: OverviewReadings) -> Iterator[HealthFinding]:
    count = readings.groups_falling_behind
    if count == 1 and readings.lagging_groups and readings.lagging_groups[0].falls_behind:
        group_id = readings.lagging_groups[0].group_id
        text = f"group {shown_text(group_id, NAMED_CHARACTERS)} falls behind"
        yield HealthFinding(HealthState.ATTENTION, text, page_of_group(group_id))
    elif count:
        text = f"{counted(count, 'group')} {'fall' if count > 1 else 'falls'} behind"
        yield HealthFinding(HealthState.ATTENTION, text, "/groups?order=-lag_seconds")


def restless_findings(readings: OverviewReadings) -> Iterator[HealthFinding]:
    """Groups that keep rebalancing: their members read nothing meanwhile."""
    restless = readings.restless_groups
    if len(restless) == 1:
        [group] = restless
        causes = ", ".join(causes_of(group.rebalances))
        name = shown_text(group.group_id, NAMED_CHARACTERS)
        text = f"group {name} rebalances {often_text(group.rebalances)} ({causes})"
        yield HealthFinding(HealthState.ATTENTION, text, page_of_group(group.group_id))
    elif restless:
        text = f"{counted(len(restless), 'group')} keep rebalancing"
        yield HealthFinding(HealthState.ATTENTION, text, "/groups?order=-last_rebalance")


def transaction_findings(readings: OverviewReadings) -> Iterator[HealthFinding]:
    """Transactions that nothing ends, so that read_committed consumers wait behind them."""
    if count := readings.hanging_transactions:
        text = f"a transaction hangs in {counted(count, 'partition')}"
        yield HealthFinding(HealthState.ATTENTION, text, "/transactions#held-title")
    if count := readings.overdue_transactions:
        text = f"{counted(count, 'transaction')} open beyond {'its' if count == 1 else 'their'} timeout"
        yield HealthFinding(HealthState.ATTENTION, text, "/transactions")


def page_of_group(group_id: str) -> str:
    return group_address(group_id) if len(group_id) <= LINKED_CHARACTERS else "/groups?order=-lag_seconds"


def disk_findings(directories: Sequence[DirectoryReport]) -> Iterator[HealthFinding]:
    """The fullest disk, if it is full or will be soon."""
    readable = [each for each in directories if each.failure is None and each.total_bytes]
    worst = max(readable, key=fullness, default=None)
    if worst is None:
        return
    ratio, full_in_seconds = used_ratio(worst), worst.full_in_seconds
    fills = full_in_seconds is not None and full_in_seconds <= FULL_WITHIN_SECONDS
    if ratio < FULL_DISK_RATIO and not fills:
        return
    is_soon = fills and (full_in_seconds or 0.0) <= FULL_SOON_SECONDS and worst.sampled_seconds >= FORECAST_SECONDS
    is_urgent = ratio >= NEARLY_FULL_DISK_RATIO or is_soon
    name = "disk" if len(directories) == 1 else f"disk of {worst.path}"
    when = ""
    if fills and full_in_seconds is not None:
        when = f", full in about {about_text(full_in_seconds)}: {growth_text(worst)}"
    state = HealthState.FAILING if is_urgent else HealthState.ATTENTION
    yield HealthFinding(state, f"{name} at {percent_text(ratio)}{when}", "/storage")


def used_ratio(directory: DirectoryReport) -> float:
    """The share of its volume that is taken; 0 where that is not known."""
    total, usable = directory.total_bytes, directory.usable_bytes
    return 0.0 if not total or usable is None else 1 - usable / total


def fullness(directory: DirectoryReport) -> tuple[bool, float]:
    """The sort key that puts last what is full first."""
    fills = directory.full_in_seconds is not None and directory.full_in_seconds <= FULL_WITHIN_SECONDS
    return fills, -(directory.full_in_seconds or 0.0) if fills else used_ratio(directory)


def loop_findings(samples: Sequence[HistorySample]) -> Iterator[HealthFinding]:
    """An event loop that has been busy for long, by means over some seconds, up to now."""
    busy: list[float] = []
    for end in range(len(samples), READINGS_SECONDS - 1, -READINGS_SECONDS):
        ratios = [each.event_loop_busy_ratio for each in samples[end - READINGS_SECONDS : end]]
        if sum(ratios) / len(ratios) < BUSY_LOOP_RATIO:
            break
        busy += ratios
    if len(busy) < BUSY_SECONDS:
        return
    seconds = (samples[-1].sampled_at_ms - samples[-len(busy)].sampled_at_ms) / 1000
    found = "other processes have the CPUs, event loop" if lacks_cpu(readings_of(samples)) else "event loop"
    text = f"{found} busy {percent_text(sum(busy) / len(busy))} for {about_text(seconds)}"
    yield HealthFinding(HealthState.ATTENTION, text, "/tuning")


def backlog_findings(samples: Sequence[HistorySample]) -> Iterator[HealthFinding]:
    """The client whose requests wait unread for so long that it notices."""
    backlog = samples[-1].backlog if samples else None
    if backlog is None or (backlog.wait_seconds is not None and backlog.wait_seconds < UNREAD_SECONDS):
        return
    whose = f"of {shown_text(backlog.client_id, NAMED_CHARACTERS)}" if backlog.client_id else "without a client id"
    wait = "wait unread" if backlog.wait_seconds is None else f"wait at least {about_text(backlog.wait_seconds)} unread"
    is_linked = len(backlog.client_id) <= LINKED_CHARACTERS
    page = f"/clients/client?client_id={quote(backlog.client_id, safe='')}" if is_linked else "/clients"
    yield HealthFinding(HealthState.ATTENTION, f"requests {whose} {wait} in its socket", page)


def limit_findings(limit: Bottleneck) -> Iterator[HealthFinding]:
    """What limits the broker, where a setting would help."""
    if limit.setting is not None:
        reason = limit.summary[0].lower() + limit.summary[1:].rstrip(".")
        text = f"{reason}, and {limit.setting.key}={limit.setting.value} would help"
        yield HealthFinding(HealthState.ATTENTION, text, f"/tuning#knob-{limit.setting.key}")


def handshake_findings(handshakes: Sequence[FailedHandshake], now_ms: int) -> Iterator[HealthFinding]:
    """Clients that try to connect now and cannot."""
    hosts = sorted({each.peer_host for each in handshakes if each.last_at_ms > now_ms - RECENT_MS})
    if hosts:
        where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
        yield HealthFinding(HealthState.ATTENTION, f"clients on {where} cannot connect", "/clients/doctor")


# --- in words


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}".replace(",", "\u202f")


def percent_text(ratio: float) -> str:
    # Rounded down: a disk that is not full is not shown as if it were.
    return f"{int(100 * ratio + 1e-9)}\u00a0%"


def about_text(seconds: float) -> str:
    """A duration by one unit of which there are some."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{round(seconds / size)}\u00a0{unit}"
    return f"{round(seconds)}\u00a0s"
