"""From what the rules find at each look to alerts: raised once they have held, resolved once they are gone.

A rule's finding is an alert when it has been there for the rule's ``hold_seconds``; it is resolved when it has been
absent for ``RESOLVE_SECONDS``. Shorter gaps count as if it had been there, for both. What a receiver has to be sent is
the difference between the alerts and what it was sent last (``DeliveredAlerts``): there is no queue of messages, so
none grows while it is away, and an alert that came and went meanwhile is not reported.

Both know no clock and no network: the caller brings the time. Neither is kept over a restart.

Source: docs/decisions/0081-alerts-are-a-state-not-a-queue.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from broker_admin.health_rules import RESOLVE_SECONDS, HealthState, RuleFinding
from broker_admin.node_addresses import at_broker
from broker_admin.texts import capitalized, shown_text
from broker_admin.views.node.alerts import Alert, AlertSeverity

SEVERITIES: Mapping[HealthState, AlertSeverity] = {
    HealthState.ATTENTION: AlertSeverity.WARNING,
    HealthState.FAILING: AlertSeverity.FAILING,
}

ABOUT_CHARACTERS = 200
"""Of a name that a client chose, which may have 32 KiB; group ids that people choose are shorter."""


@attrs.define
class _Watched:
    """One finding over time; times are monotonic seconds."""

    finding: RuleFinding
    first_at: float
    last_at: float
    first_at_ms: int

    @property
    def is_alert(self) -> bool:
        hold = self.finding.rule.hold_seconds
        return hold is not None and self.last_at - self.first_at >= hold


@attrs.define
class AlertBoard:
    """What is found now and has been lately, by its id."""

    _watched: dict[str, _Watched] = attrs.field(factory=dict, init=False)

    def update(self, findings: Iterable[RuleFinding], now: float, now_ms: int) -> None:
        """Take what was found at ``now``."""
        for finding in findings:
            known = self._watched.get(finding.id)
            if known is None:
                self._watched[finding.id] = _Watched(finding, now, now, now_ms)
            else:
                known.finding, known.last_at = finding, now
        gone = [key for key, each in self._watched.items() if now - each.last_at >= RESOLVE_SECONDS]
        for key in gone:
            del self._watched[key]

    def alerts(self, page_address: str, broker_id: int) -> dict[str, Alert]:
        """The alerts by their ids, those that fail first, then the oldest; pages are below ``page_address``."""
        active = [each for each in self._watched.values() if each.is_alert]
        active.sort(key=lambda each: (each.finding.state is not HealthState.FAILING, each.first_at))
        return {each.finding.id: alert_of(each.finding, each.first_at_ms, page_address, broker_id) for each in active}


def alert_of(finding: RuleFinding, since_ms: int, page_address: str, broker_id: int) -> Alert:
    about = shown_text(finding.about, ABOUT_CHARACTERS)
    return Alert(
        id=f"{finding.rule.name}:{about}" if about else finding.rule.name,
        rule=finding.rule.name,
        severity=SEVERITIES[finding.state],
        summary=capitalized(finding.text),
        about=about,
        since_ms=since_ms,
        page=page_address.rstrip("/") + at_broker(finding.page, broker_id),
    )


@attrs.frozen(kw_only=True)
class News:
    """What a receiver has to be sent: alerts that are new or worse, that are still there, and that are no more."""

    raised: Mapping[str, Alert] = attrs.field(factory=dict)
    repeated: Mapping[str, Alert] = attrs.field(factory=dict)
    resolved: Mapping[str, Alert] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.raised or self.repeated or self.resolved)

    def sections(self) -> Sequence[tuple[str, Sequence[Alert]]]:
        """The alerts by what is said of them, the new ones first."""
        parts = {"raised": self.raised, "resolved": self.resolved, "repeated": self.repeated}
        return [(status, tuple(alerts.values())) for status, alerts in parts.items() if alerts]


@attrs.define
class DeliveredAlerts:
    """What a receiver was sent last: each alert that it knows of, and when, in monotonic seconds."""

    _alerts: dict[str, tuple[Alert, float]] = attrs.field(factory=dict, init=False)

    def changes(self, alerts: Mapping[str, Alert]) -> News:
        """What it does not know of ``alerts``, all of those there are."""
        known = self._alerts
        return News(
            raised={key: each for key, each in alerts.items() if key not in known or is_worse(each, known[key][0])},
            resolved={key: each for key, (each, _) in known.items() if key not in alerts},
        )

    def news(self, alerts: Mapping[str, Alert], now: float, repeat_seconds: float) -> News:
        """What it has to be sent now: what it does not know, or what it was sent ``repeat_seconds`` ago.

        When one alert is due to be repeated, all are, so that they stay one message.
        """
        changes = self.changes(alerts)
        is_due = any(now - at >= repeat_seconds for key, (_, at) in self._alerts.items() if key in alerts)
        repeated = {key: each for key, each in alerts.items() if is_due and key not in changes.raised}
        return attrs.evolve(changes, repeated=repeated)

    def take(self, news: News, now: float) -> None:
        """It has been sent ``news``."""
        for key in news.resolved:
            del self._alerts[key]
        self._alerts |= {key: (each, now) for key, each in {**news.raised, **news.repeated}.items()}


def is_worse(alert: Alert, known: Alert) -> bool:
    return alert.severity is AlertSeverity.FAILING and known.severity is AlertSeverity.WARNING
