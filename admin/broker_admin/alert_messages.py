"""The body of an alert's POST: JSON of our own, or Slack's form of an incoming webhook.

One message is all that is new, however many alerts that is: of each kind the first ``NAMED`` are named, the others are
counted. Names that clients chose are in it, so Slack's three control characters are escaped.

Source: docs/alerts.md, which has our form; Slack's "Sending messages using incoming webhooks" (text, blocks, the
limits of a section), and "Formatting text for app surfaces" (escaping, links).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from broker_admin.alerts import News
from broker_admin.encoding import converter
from broker_admin.texts import counted
from broker_admin.views.node.alerts import Alert, AlertSeverity

NAMED = 10
"""Alerts of a kind that a message names: what can be read on a telephone."""

FORM_VERSION = 1
"""Of our own form; a field that is added does not change it."""

MAX_SECTION_CHARACTERS = 3000
"""Slack refuses a section's text that is longer."""

SLACK_MARKS = {
    "raised": ":rotating_light:",
    "repeated": ":hourglass_flowing_sand:",
    "resolved": ":white_check_mark:",
}

SLACK_WORDS = {"raised": "New", "repeated": "Still there", "resolved": "Resolved"}


@attrs.frozen(kw_only=True)
class AlertSender:
    """Which broker says it, where its page is, and how often it repeats what stays."""

    node_id: int
    cluster_id: str
    page: str
    repeat_interval_ms: int


def json_form(news: News, sender: AlertSender, at_ms: int, active: int) -> Any:
    """Our own form; ``active`` counts all alerts that there are."""
    return {
        "version": FORM_VERSION,
        "broker": converter.unstructure(sender),
        "sent_at_ms": at_ms,
        "summary": summary_of(news),
        "active": active,
        "alerts": [
            {"status": status, **converter.unstructure(each)}
            for status, alerts in news.sections()
            for each in alerts[:NAMED]
        ],
        "not_named": {status: len(alerts) - NAMED for status, alerts in news.sections() if len(alerts) > NAMED},
    }


def slack_form(news: News, sender: AlertSender, at_ms: int, active: int) -> Any:
    """A message with blocks; ``text`` is what notifications show."""
    name = f"trio-broker node {sender.node_id}"
    blocks = [section(slack_lines(status, alerts)) for status, alerts in news.sections()]
    footer = f"<{escaped(sender.page)}|{name}>, {counted(active, 'alert')} now"
    return {
        "text": f"{name}: {escaped(summary_of(news))}",
        "blocks": [*blocks, {"type": "context", "elements": [{"type": "mrkdwn", "text": footer}]}],
    }


def slack_lines(status: str, alerts: Sequence[Alert]) -> Sequence[str]:
    """What is said of ``alerts`` in Slack's marks, a line for each."""
    lines = [f"{SLACK_MARKS[status]} *{SLACK_WORDS[status]}*"]
    for each in alerts[:NAMED]:
        severity = " (failing)" if each.severity is AlertSeverity.FAILING else ""
        since = f"<!date^{each.since_ms // 1000}^since {{date_short_pretty}} {{time}}|since {each.since_ms}>"
        lines.append(f"• <{escaped(each.page)}|{escaped(each.summary)}>{severity}, {since}")
    if len(alerts) > NAMED:
        lines.append(f"• and {len(alerts) - NAMED} more")
    return lines


def section(lines: Sequence[str]) -> Mapping[str, Any]:
    """The first of ``lines`` that fit into a section, whole ones, so that no link is cut."""
    text = lines[0]
    for line in lines[1:]:
        if len(text) + 1 + len(line) > MAX_SECTION_CHARACTERS:
            break
        text = f"{text}\n{line}"
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


def escaped(text: str) -> str:
    """Text as Slack takes it: nothing in it is a link, a mention or the end of either."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\u00a6")


def summary_of(news: News) -> str:
    """All of it in one line: the alert if it is one, else how many."""
    sections = news.sections()
    if len(sections) == 1 and len(sections[0][1]) == 1:
        [(status, [alert])] = sections
        return f"{alert.summary}: resolved" if status == "resolved" else alert.summary
    return ", ".join(f"{counted(len(alerts), 'alert')} {status}" for status, alerts in sections)


FORMS: Mapping[str, Callable[[News, AlertSender, int, int], Any]] = {"json": json_form, "slack": slack_form}
"""By the value of ``alerts.webhook.format``."""


def message(form: str, news: News, sender: AlertSender, at_ms: int, active: int) -> bytes:
    """The body of the POST."""
    return json.dumps(FORMS[form](news, sender, at_ms, active)).encode()
