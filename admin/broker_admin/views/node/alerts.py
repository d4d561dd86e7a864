"""The alerts of a broker: what its rules have found for long enough, and whether a receiver knows."""

from __future__ import annotations

import enum
from typing import Protocol

import attrs


class AlertSeverity(enum.Enum):
    """How soon somebody has to look."""

    WARNING = "warning"
    """Within days, or when the cause is worth it."""
    FAILING = "failing"
    """Now: clients are not served, or soon will not be."""


@attrs.frozen(kw_only=True)
class Alert:
    """One rule that has found one object for as long as the rule says.

    ``id`` is the rule and the object, and stays while the alert does, and in the next one of the same. ``page`` is the
    address of the page that shows more, as seen from outside. ``since_ms`` is when the rule first found it.
    """

    id: str
    rule: str
    severity: AlertSeverity
    summary: str
    about: str
    since_ms: int
    page: str


@attrs.frozen(kw_only=True)
class WebhookReport:
    """The receiver of alerts. ``host`` is all that is said of its URL; empty without one.

    ``error`` is why the last try failed, None if it did not; ``failing_since_ms`` is when the first of those in a row
    was. ``undelivered`` are the alerts of which it has yet to be sent: raised, more severe, or resolved.
    """

    host: str = ""
    format: str = "json"
    last_delivery_at_ms: int | None = None
    last_try_at_ms: int | None = None
    error: str | None = None
    failing_since_ms: int | None = None
    undelivered: int = 0


@attrs.frozen(kw_only=True)
class AlertReport:
    """The first of ``total`` alerts, those that fail before those that warn, and the state of their receiver.

    ``checked_at_ms`` is when the rules were last asked; None before that.
    """

    checked_at_ms: int | None
    alerts: tuple[Alert, ...]
    total: int
    webhook: WebhookReport


class AlertsView(Protocol):
    """The alerts of a broker, as the admin app sees them."""

    def report(self) -> AlertReport:
        """The alerts as of the last look, some seconds ago."""
        ...
