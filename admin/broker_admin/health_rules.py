"""The rules of the verdict, each with the page that shows more, and whether what it finds is an alert.

The one table of them: the overview's line, the alerts that leave the broker, and the rules for Prometheus
(``prometheus_alerts``) are made of it. When a rule finds something is ``health``'s.

Source: docs/metrics.md, which has the rules in a table.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence

import attrs

from broker_admin.node_addresses import NODE_PAGES
from broker_admin.texts import counted

AT_ONCE = 0.0
"""What is broken, or has been watched for minutes by its own rule, needs no second look."""

SOME_SECONDS = 60.0
"""Long enough for a start of a consumer or a large deletion to pass."""

SOME_MINUTES = 120.0
"""Longer than what clients and retention cause by themselves: a restart of a consumer, a burst of records."""

MANY_MINUTES = 300.0
"""Of what slows clients down and may be a nightly job."""

RESOLVE_SECONDS = 60.0
"""How long nothing is found before an alert is resolved, so that readings about a threshold make one alert."""

FULL_DISK_RATIO = 0.9
"""The share of a disk that is taken from which on it is worth a look, whatever the forecast."""

NEARLY_FULL_DISK_RATIO = 0.98

FULL_SOON_SECONDS = 86_400

FORECAST_SECONDS = 3600
"""A forecast from a shorter time may be of one large copy of a file: it is worth a look, and no alarm."""

BUSY_SECONDS = 30
"""An event loop that is busy for less may have had one large piece of work, such as the load of a group."""

UNREAD_SECONDS = 1.0
"""A shorter wait is what a producer that is as fast as the broker has all the time."""

RECENT_MS = 5 * 60_000
"""What failed once longer ago needs no attention now."""

BROKER_ERRORS = ("UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR")
"""Answers for which the client has done nothing: a bug of the broker, or a disk that failed."""


class HealthState(enum.Enum):
    """How a broker is, the worst last."""

    HEALTHY = "healthy"
    ATTENTION = "attention"
    """Something has to be looked at."""
    FAILING = "failing"
    """Clients are not served, or soon will not be."""


@attrs.frozen(eq=False, kw_only=True)
class HealthRule:
    """What is looked at. ``name`` is part of the id of its alerts, and stays.

    What it finds for ``hold_seconds`` is an alert, with None never. ``together`` says in one clause what it found of
    several objects, of which ``page`` shows more, of this broker or of the cluster; without, the first finding speaks
    for all.
    """

    name: str
    hold_seconds: float | None
    page: str
    together: Callable[[Sequence[str]], str] | None = None


@attrs.frozen
class RuleFinding:
    """What a rule found of one object, ``about``, which is empty if there is only one thing it could be about."""

    rule: HealthRule
    state: HealthState
    text: str
    page: str
    about: str = ""

    @property
    def id(self) -> str:
        return f"{self.rule.name}:{self.about}" if self.about else self.rule.name


NOT_SERVING = HealthRule(name="clients-not-served", hold_seconds=AT_ONCE, page=NODE_PAGES + "/storage")
FAILED_DIRECTORY = HealthRule(
    name="data-directory-failed",
    hold_seconds=AT_ONCE,
    page=NODE_PAGES + "/storage",
    together=lambda paths: f"{len(paths)} data directories out of use",
)
UNREADABLE_PARTITIONS = HealthRule(name="partitions-unreadable", hold_seconds=AT_ONCE, page="/topics")
DAMAGED_SEGMENTS = HealthRule(name="segments-damaged", hold_seconds=AT_ONCE, page=NODE_PAGES + "/storage")
UNCLEANABLE_PARTITIONS = HealthRule(name="partitions-uncleanable", hold_seconds=AT_ONCE, page=NODE_PAGES + "/storage")
BROKER_ERROR = HealthRule(
    name="requests-fail",
    hold_seconds=AT_ONCE,
    page="/#errors-title",
    together=lambda errors: f"requests are answered with {' and '.join(sorted(errors))}",
)
NO_CONTROLLER = HealthRule(name="no-controller", hold_seconds=SOME_SECONDS, page="/brokers")
METADATA_AWAY = HealthRule(name="metadata-not-reached", hold_seconds=SOME_SECONDS, page="/brokers")
OFFLINE_PARTITIONS = HealthRule(name="partitions-offline", hold_seconds=AT_ONCE, page="/brokers#out-title")
UNDER_MIN_ISR = HealthRule(name="partitions-under-min-isr", hold_seconds=SOME_SECONDS, page="/brokers#out-title")
# A restart of a broker takes as long as its recovery.
UNDER_REPLICATED = HealthRule(name="partitions-under-replicated", hold_seconds=MANY_MINUTES, page="/brokers#out-title")
GROUP_FALLS_BEHIND = HealthRule(
    name="group-falls-behind",
    hold_seconds=SOME_MINUTES,
    page="/groups?order=-lag_seconds",
    together=lambda groups: f"{counted(len(groups), 'group')} fall behind",
)
RESTLESS_GROUP = HealthRule(
    name="group-keeps-rebalancing",
    hold_seconds=AT_ONCE,
    page="/groups?order=-last_rebalance",
    together=lambda groups: f"{counted(len(groups), 'group')} keep rebalancing",
)
HANGING_TRANSACTION = HealthRule(name="transaction-hangs", hold_seconds=SOME_SECONDS, page="/transactions#held-title")
OVERDUE_TRANSACTION = HealthRule(name="transaction-overdue", hold_seconds=SOME_SECONDS, page="/transactions")
FULL_DISK = HealthRule(name="disk-full", hold_seconds=SOME_SECONDS, page=NODE_PAGES + "/storage")
BUSY_LOOP = HealthRule(name="event-loop-busy", hold_seconds=MANY_MINUTES, page=NODE_PAGES + "/tuning")
CLIENT_WAITS = HealthRule(name="client-waits-unread", hold_seconds=SOME_MINUTES, page=NODE_PAGES + "/clients")
# Nothing is broken: the broker could do more with another setting.
SETTING_WOULD_HELP = HealthRule(name="setting-would-help", hold_seconds=None, page=NODE_PAGES + "/tuning")
# A scan of ports would raise it.
FAILED_HANDSHAKE = HealthRule(
    name="clients-cannot-connect",
    hold_seconds=None,
    page=NODE_PAGES + "/connection-diagnosis",
    together=lambda hosts: f"clients on {len(hosts)} hosts cannot connect",
)

RULES = (
    NOT_SERVING,
    FAILED_DIRECTORY,
    UNREADABLE_PARTITIONS,
    DAMAGED_SEGMENTS,
    UNCLEANABLE_PARTITIONS,
    BROKER_ERROR,
    NO_CONTROLLER,
    METADATA_AWAY,
    OFFLINE_PARTITIONS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    GROUP_FALLS_BEHIND,
    RESTLESS_GROUP,
    HANGING_TRANSACTION,
    OVERDUE_TRANSACTION,
    FULL_DISK,
    BUSY_LOOP,
    CLIENT_WAITS,
    SETTING_WOULD_HELP,
    FAILED_HANDSHAKE,
)
"""In the order in which the overview's line has them, behind what fails."""
