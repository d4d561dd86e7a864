"""``deploy/prometheus-alerts.yml``: the rules of the verdict as alerts of Prometheus, with the same thresholds.

``python -m broker_admin.prometheus_alerts`` prints it. Rules that are no alerts have none here.

Source: Prometheus's "Alerting rules"; docs/alerts.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from broker_admin import health_rules as rules
from broker_admin.health_rules import HealthRule
from broker_admin.node_addresses import NODE_PAGES
from trio_broker.metrics.bottleneck import BUSY_LOOP_RATIO
from trio_broker.metrics.promql import expanded

USED = "1 - [data_directory_usable_bytes] / [data_directory_total_bytes]"

ERRORS = "|".join(rules.BROKER_ERRORS)

FAILING, WARNING = "failing", "warning"

NEARLY_FULL = (
    f"{USED} >= {rules.NEARLY_FULL_DISK_RATIO} or predict_linear([data_directory_usable_bytes]"
    f"[{rules.FORECAST_SECONDS}s], {rules.FULL_SOON_SECONDS}) < 0"
)

EXPRESSIONS: Mapping[HealthRule, Mapping[str, str]] = {
    rules.NOT_SERVING: {FAILING: "absent([uptime_seconds])"},
    rules.FAILED_DIRECTORY: {FAILING: "[data_directory_failed] > 0"},
    rules.UNREADABLE_PARTITIONS: {FAILING: "[partitions_unreadable] > 0"},
    rules.DAMAGED_SEGMENTS: {FAILING: "[log_scrubber_damaged_segments] > 0"},
    rules.UNCLEANABLE_PARTITIONS: {WARNING: "[log_cleaner_uncleanable_partitions] > 0"},
    rules.BROKER_ERROR: {
        FAILING: f'increase([request_errors_total]{{error=~"{ERRORS}"}}[{rules.RECENT_MS // 1000}s]) > 0'
    },
    rules.NO_CONTROLLER: {FAILING: "max([controller_known]) == 0"},
    rules.METADATA_AWAY: {FAILING: "[metadata_reached] == 0"},
    rules.OFFLINE_PARTITIONS: {FAILING: "[partitions_offline] > 0"},
    rules.UNDER_MIN_ISR: {FAILING: "[partitions_under_min_isr] > 0"},
    rules.UNDER_REPLICATED: {WARNING: "[partitions_under_replicated] > 0"},
    rules.GROUP_FALLS_BEHIND: {WARNING: "[groups_falling_behind] > 0"},
    rules.RESTLESS_GROUP: {WARNING: "[groups_rebalancing_often] > 0"},
    rules.HANGING_TRANSACTION: {WARNING: "[partitions_with_hanging_transactions] > 0"},
    rules.OVERDUE_TRANSACTION: {WARNING: "[transactions_overdue] > 0"},
    rules.FULL_DISK: {WARNING: f"{USED} >= {rules.FULL_DISK_RATIO}", FAILING: NEARLY_FULL},
    rules.BUSY_LOOP: {WARNING: f"avg_over_time([event_loop_busy_ratio][{rules.BUSY_SECONDS}s]) >= {BUSY_LOOP_RATIO}"},
    rules.CLIENT_WAITS: {WARNING: f"[unread_wait_seconds] >= {rules.UNREAD_SECONDS}"},
}
"""By rule and severity, in the notation of ``promql.expanded``."""


def page_of(rule: HealthRule) -> str:
    """The page that shows more: the overview, which leads to those of one broker, of which no rule knows the id."""
    return "/" if rule.page.startswith(NODE_PAGES) else rule.page


def render_rules() -> str:
    """The file. Values are quoted as JSON, which YAML takes."""
    lines = [
        "# Written by python -m broker_admin.prometheus_alerts from the rules of the admin page's verdict.",
        "groups:",
        "  - name: trio-broker",
        "    rules:",
    ]
    for rule, by_severity in EXPRESSIONS.items():
        assert rule.hold_seconds is not None, rule.name
        for severity, expression in by_severity.items():
            lines += [
                f"      - alert: {''.join(map(str.title, ('trio', 'broker', *rule.name.split('-'))))}",
                f"        expr: {json.dumps(expanded(expression))}",
                f"        for: {rule.hold_seconds:.0f}s",
                "        labels:",
                f"          severity: {severity}",
                "        annotations:",
                f"          summary: {json.dumps(rule.name.replace('-', ' '))}",
                f"          page: {json.dumps(page_of(rule))}",
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render_rules(), end="")
