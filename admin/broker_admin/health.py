"""Whether a broker is healthy, in one line: what rules find in its readings, each with the page that shows more.

A rule speaks of what somebody has to look at, now or within days. What is only slow is left to the page of tuning,
unless a setting would help. Everything here is a pure function.
The table of rules is in ``health_rules``.

Source: docs/metrics.md, which has the rules in a table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import attrs

from broker_admin.group_actions import LINKED_CHARACTERS, group_address
from broker_admin.group_diagnosis import causes_of, often_text
from broker_admin.health_rules import (
    BROKER_ERROR,
    BROKER_ERRORS,
    BUSY_LOOP,
    BUSY_SECONDS,
    CLIENT_WAITS,
    DAMAGED_SEGMENTS,
    FAILED_DIRECTORY,
    FAILED_HANDSHAKE,
    FORECAST_SECONDS,
    FULL_DISK,
    FULL_DISK_RATIO,
    FULL_SOON_SECONDS,
    GROUP_FALLS_BEHIND,
    HANGING_TRANSACTION,
    METADATA_AWAY,
    NEARLY_FULL_DISK_RATIO,
    NO_CONTROLLER,
    NOT_SERVING,
    OFFLINE_PARTITIONS,
    OVERDUE_TRANSACTION,
    RECENT_MS,
    RESTLESS_GROUP,
    SETTING_WOULD_HELP,
    UNCLEANABLE_PARTITIONS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    UNREAD_SECONDS,
    UNREADABLE_PARTITIONS,
    HealthRule,
    HealthState,
    RuleFinding,
)
from broker_admin.node_addresses import NODE_PAGES, at_broker
from broker_admin.storage_texts import growth_text
from broker_admin.texts import capitalized, counted, shown_text
from broker_admin.views.cluster.replication import ClusterReport
from broker_admin.views.node.identity import Readiness
from broker_admin.views.node.overview import OverviewReadings
from broker_admin.views.node.storage import DirectoryReport
from trio_broker.metrics.bottleneck import BUSY_LOOP_RATIO, READINGS_SECONDS, Bottleneck, lacks_cpu, readings_of
from trio_broker.metrics.history import HistorySample
from trio_broker.network.statistics import FailedHandshake

FULL_WITHIN_SECONDS = 7 * 86_400
"""A week is time to order a disk, or to shorten a retention."""

NAMED_BROKERS = 3
"""Those of a cluster that are away, in the line."""

NAMED_CHARACTERS = 40
"""Of a group's id in the line."""


@attrs.frozen
class HealthFinding:
    """What one ``rule`` found that is not as it should be, in a few words, and the ``page`` that shows more."""

    rule: str
    state: HealthState
    text: str
    page: str


@attrs.frozen
class Health:
    """How a broker is: ``summary`` is all ``findings`` in one line, the worst first, or ``Healthy.``."""

    state: HealthState
    summary: str
    findings: tuple[HealthFinding, ...]


def health(findings: Sequence[RuleFinding], broker_id: int) -> Health:
    """The verdict on the broker of which the rules have found ``findings``."""
    by_rule = itertools.groupby(findings, key=lambda each: each.rule)
    together = [finding_of(rule, tuple(found), broker_id) for rule, found in by_rule]
    worst_first = tuple(sorted(together, key=lambda each: each.state is not HealthState.FAILING))
    if not worst_first:
        return Health(HealthState.HEALTHY, "Healthy.", ())
    summary = "; ".join(finding.text for finding in worst_first)
    return Health(worst_first[0].state, f"{capitalized(summary)}.", worst_first)


def finding_of(rule: HealthRule, found: Sequence[RuleFinding], broker_id: int) -> HealthFinding:
    """What one rule found, of however many objects, in one clause."""
    first = found[0]
    failing = HealthState.FAILING
    state = failing if any(each.state is failing for each in found) else first.state
    if len(found) == 1 or rule.together is None:
        return HealthFinding(rule.name, state, first.text, at_broker(first.page, broker_id))
    text = rule.together([each.about for each in found])
    return HealthFinding(rule.name, state, text, at_broker(rule.page, broker_id))


def findings_in(
    readiness: Readiness,
    readings: OverviewReadings,
    samples: Sequence[HistorySample],
    limit: Bottleneck,
    handshakes: Sequence[FailedHandshake],
) -> tuple[RuleFinding, ...]:
    """What the rules find in a broker's readings, in their order."""
    return (
        *readiness_findings(readiness),
        *storage_findings(readings),
        *error_findings(readings),
        *cluster_findings(readings.cluster),
        *group_findings(readings),
        *restless_findings(readings),
        *transaction_findings(readings),
        *disk_findings(readings.directories),
        *loop_findings(samples),
        *backlog_findings(samples),
        *limit_findings(limit),
        *handshake_findings(handshakes, readings.read_at_ms),
    )


def failing(rule: HealthRule, text: str, *, about: str = "", page: str | None = None) -> RuleFinding:
    return RuleFinding(rule, HealthState.FAILING, text, rule.page if page is None else page, about)


def attention(rule: HealthRule, text: str, *, about: str = "", page: str | None = None) -> RuleFinding:
    return RuleFinding(rule, HealthState.ATTENTION, text, rule.page if page is None else page, about)


def readiness_findings(readiness: Readiness) -> Iterator[RuleFinding]:
    if not readiness.ready:
        yield failing(NOT_SERVING, f"clients are not served: {readiness.reason}")


def storage_findings(readings: OverviewReadings) -> Iterator[RuleFinding]:
    """What cannot be read, is damaged, or cannot be compacted."""
    for directory in readings.directories:
        if directory.failure is not None:
            text = f"data directory {directory.path} out of use"
            yield failing(FAILED_DIRECTORY, text, about=directory.path)
    if count := readings.unreadable_partitions:
        yield failing(UNREADABLE_PARTITIONS, f"{counted(count, 'partition')} cannot be read")
    if count := readings.damaged_segments:
        yield failing(DAMAGED_SEGMENTS, f"{counted(count, 'segment')} damaged on disk")
    if count := readings.uncleanable_partitions:
        yield attention(UNCLEANABLE_PARTITIONS, f"{counted(count, 'partition')} cannot be compacted")


def error_findings(readings: OverviewReadings) -> Iterator[RuleFinding]:
    """Requests that failed through no fault of their clients."""
    recent = {each.error for each in readings.errors if each.last_at_ms > readings.read_at_ms - RECENT_MS}
    for name in sorted(recent.intersection(BROKER_ERRORS)):
        yield failing(BROKER_ERROR, f"requests are answered with {name}", about=name)


def cluster_findings(cluster: ClusterReport) -> Iterator[RuleFinding]:
    """What the cluster lacks: a controller, leaders, replicas in sync."""
    if cluster.metadata_problem:
        yield failing(METADATA_AWAY, "the metadata store is not reached, so that changes are refused")
    elif cluster.controller_id is None:
        yield failing(NO_CONTROLLER, "no broker is the controller, so that changes are refused")
    if count := cluster.offline_count:
        yield failing(OFFLINE_PARTITIONS, f"nobody leads {counted(count, 'partition')}")
    if count := cluster.under_min_isr_count:
        text = (
            f"{counted(count, 'partition')} {'takes' if count == 1 else 'take'} no acks=all: too few replicas in sync"
        )
        yield failing(UNDER_MIN_ISR, text)
    if count := cluster.under_replicated_count:
        away = [f"broker {each.node_id} is {each.state.value}" for each in cluster.brokers if each.is_away]
        reason = f" ({', '.join(away[:NAMED_BROKERS])})" if away else ""
        yield attention(UNDER_REPLICATED, f"{counted(count, 'partition')} under-replicated{reason}")


def group_findings(readings: OverviewReadings) -> Iterator[RuleFinding]:
    for group_id in readings.groups_falling_behind:
        text = f"group {shown_text(group_id, NAMED_CHARACTERS)} falls behind"
        yield attention(GROUP_FALLS_BEHIND, text, about=group_id, page=page_of_group(group_id))


def restless_findings(readings: OverviewReadings) -> Iterator[RuleFinding]:
    """Groups that keep rebalancing: their members read nothing meanwhile."""
    for group in readings.restless_groups:
        causes = ", ".join(causes_of(group.rebalances))
        name = shown_text(group.group_id, NAMED_CHARACTERS)
        text = f"group {name} rebalances {often_text(group.rebalances)} ({causes})"
        yield attention(RESTLESS_GROUP, text, about=group.group_id, page=page_of_group(group.group_id))


def transaction_findings(readings: OverviewReadings) -> Iterator[RuleFinding]:
    """Transactions that nothing ends, so that read_committed consumers wait behind them."""
    if count := readings.hanging_transactions:
        yield attention(HANGING_TRANSACTION, f"a transaction hangs in {counted(count, 'partition')}")
    if count := readings.overdue_transactions:
        text = f"{counted(count, 'transaction')} open beyond {'its' if count == 1 else 'their'} timeout"
        yield attention(OVERDUE_TRANSACTION, text)


def page_of_group(group_id: str) -> str:
    return group_address(group_id) if len(group_id) <= LINKED_CHARACTERS else GROUP_FALLS_BEHIND.page


def disk_findings(directories: Sequence[DirectoryReport]) -> Iterator[RuleFinding]:
    """The disks that are full or will be soon, the fullest first."""
    readable = [each for each in directories if each.failure is None and each.total_bytes]
    for directory in sorted(readable, key=fullness, reverse=True):
        ratio, full_in_seconds = used_ratio(directory), directory.full_in_seconds
        fills = full_in_seconds is not None and full_in_seconds <= FULL_WITHIN_SECONDS
        if ratio < FULL_DISK_RATIO and not fills:
            continue
        is_watched = directory.sampled_seconds >= FORECAST_SECONDS
        is_soon = fills and (full_in_seconds or 0.0) <= FULL_SOON_SECONDS and is_watched
        name = "disk" if len(directories) == 1 else f"disk of {directory.path}"
        when = ""
        if fills and full_in_seconds is not None:
            when = f", full in about {about_text(full_in_seconds)}: {growth_text(directory)}"
        found = failing if ratio >= NEARLY_FULL_DISK_RATIO or is_soon else attention
        yield found(FULL_DISK, f"{name} at {percent_text(ratio)}{when}", about=directory.path)


def used_ratio(directory: DirectoryReport) -> float:
    """The share of its volume that is taken; 0 where that is not known."""
    total, usable = directory.total_bytes, directory.usable_bytes
    return 0.0 if not total or usable is None else 1 - usable / total


def fullness(directory: DirectoryReport) -> tuple[bool, float]:
    """The sort key that puts last what is full first."""
    fills = directory.full_in_seconds is not None and directory.full_in_seconds <= FULL_WITHIN_SECONDS
    return fills, -(directory.full_in_seconds or 0.0) if fills else used_ratio(directory)


def loop_findings(samples: Sequence[HistorySample]) -> Iterator[RuleFinding]:
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
    yield attention(BUSY_LOOP, f"{found} busy {percent_text(sum(busy) / len(busy))} for {about_text(seconds)}")


def backlog_findings(samples: Sequence[HistorySample]) -> Iterator[RuleFinding]:
    """The client whose requests wait unread for so long that it notices."""
    backlog = samples[-1].backlog if samples else None
    if backlog is None or (backlog.wait_seconds is not None and backlog.wait_seconds < UNREAD_SECONDS):
        return
    client_id = backlog.client_id
    whose = f"of {shown_text(client_id, NAMED_CHARACTERS)}" if client_id else "without a client id"
    wait = "wait unread" if backlog.wait_seconds is None else f"wait at least {about_text(backlog.wait_seconds)} unread"
    is_linked = len(client_id) <= LINKED_CHARACTERS
    page = f"{NODE_PAGES}/clients/client?client_id={quote(client_id, safe='')}" if is_linked else CLIENT_WAITS.page
    yield attention(CLIENT_WAITS, f"requests {whose} {wait} in its socket", about=client_id, page=page)


def limit_findings(limit: Bottleneck) -> Iterator[RuleFinding]:
    """What limits the broker, where a setting would help."""
    if limit.setting is not None:
        reason = limit.summary[0].lower() + limit.summary[1:].rstrip(".")
        text = f"{reason}, and {limit.setting.key}={limit.setting.value} would help"
        yield attention(SETTING_WOULD_HELP, text, page=f"{SETTING_WOULD_HELP.page}#tunable-{limit.setting.key}")


def handshake_findings(handshakes: Sequence[FailedHandshake], now_ms: int) -> Iterator[RuleFinding]:
    """Clients that try to connect now and cannot."""
    for host in sorted({each.peer_host for each in handshakes if each.last_at_ms > now_ms - RECENT_MS}):
        yield attention(FAILED_HANDSHAKE, f"clients on {host} cannot connect", about=host)


# --- in words


def percent_text(ratio: float) -> str:
    # Rounded down: a disk that is not full is not shown as if it were.
    return f"{int(100 * ratio + 1e-9)}\u00a0%"


def about_text(seconds: float) -> str:
    """A duration by one unit of which there are some."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{round(seconds / size)}\u00a0{unit}"
    return f"{round(seconds)}\u00a0s"
