"""``docs/grafana.json``: a Grafana dashboard over the broker's metrics, made from one table of panels.

``python -m trio_broker.metrics.grafana`` prints it. It asks for a Prometheus data source and takes the broker from the
label ``instance``. Panels that need ``metrics.per.partition=true`` are in the last row.

Source: Grafana's dashboard JSON model, schema version 39.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs

from trio_broker.metrics.promql import PREFIX, expanded

BROKER = 'instance=~"$instance"'
"""The label of the chosen broker."""
"""As in ``prometheus.py``, which takes long to import."""

PANEL_WIDTH, PANEL_HEIGHT = 8, 7
"""In units of Grafana's grid, which is 24 wide."""

PANELS_IN_A_ROW = 3


@attrs.frozen
class Query:
    """One line or set of lines: an expression of PromQL and the legend of what it gives.

    ``expression`` is in the notation of ``promql.expanded``, and gets the broker's label.
    """

    expression: str
    legend: str


@attrs.frozen
class Panel:
    """A chart. ``unit`` is Grafana's name for one."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    description: str = ""


@attrs.frozen
class PanelRow:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def rate(name: str, legend: str) -> Query:
    return Query(f"rate([{name}][$__rate_interval])", legend)


def value(name: str, legend: str) -> Query:
    return Query(f"[{name}]", legend)


def quantile(share: float, name: str, by: str, legend: str) -> Query:
    """A quantile of a histogram; ``name`` may carry labels."""
    metric, _, labels = name.partition("|")
    series = f"[{metric}_bucket|{labels}]" if labels else f"[{metric}_bucket]"
    groups = f"le, {by}" if by else "le"
    return Query(f"histogram_quantile({share}, sum by ({groups}) (rate({series}[$__rate_interval])))", legend)


BUSY = "Share of the time; an event loop near 1 is what limits the broker, and no number of threads divides it."

ROWS = (
    PanelRow(
        "Traffic",
        (
            Panel("Bytes", "Bps", (rate("bytes_in_total", "in"), rate("bytes_out_total", "out"))),
            Panel("Records in", "rowsps", (rate("records_in_total", "records"),)),
            Panel(
                "Requests by API",
                "reqps",
                (rate("api_requests_total", "{{api}}"), rate("requests_total", "all")),
            ),
            Panel(
                "Connections",
                "short",
                (value("connections", "open"), rate("connections_accepted_total", "accepted per second")),
            ),
            Panel("Errors", "eps", (rate("request_errors_total", "{{api}} {{error}}"),)),
            Panel(
                "Size",
                "bytes",
                (
                    value("log_size_bytes", "logs"),
                    value("data_directory_usable_bytes", "usable, {{directory}}"),
                    value("data_directory_total_bytes", "volume, {{directory}}"),
                ),
            ),
            Panel(
                "What needs attention",
                "short",
                (
                    value("data_directory_failed", "failed, {{directory}}"),
                    value("partitions_unreadable", "unreadable partitions"),
                    value("groups_falling_behind", "groups that fall behind"),
                    value("groups_rebalancing_often", "groups that keep rebalancing"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Where the time goes",
        (
            Panel(
                "Requests, p99 without waiting for records",
                "s",
                (quantile(0.99, 'request_seconds|phase="active"', "api", "{{api}}"),),
            ),
            Panel(
                "Mean time of produce by phase",
                "s",
                (
                    Query(
                        'rate([request_seconds_sum|api="produce",phase!~"total|active"][$__rate_interval])'
                        " / on(api, instance) group_left"
                        ' rate([request_seconds_count|api="produce",phase="total"][$__rate_interval])',
                        "{{phase}}",
                    ),
                ),
            ),
            Panel(
                "Syncs, p99",
                "s",
                (
                    quantile(0.99, "sync_seconds", "", "sync"),
                    quantile(0.99, "sync_wait_seconds", "", "wait for a thread"),
                ),
            ),
        ),
    ),
    PanelRow(
        "What limits it",
        (
            Panel(
                "Event loop",
                "percentunit",
                (
                    rate("event_loop_busy_seconds_total", "busy"),
                    value("event_loop_busy_ratio", "busy, last second"),
                    rate("event_loop_cpu_seconds_total", "on a CPU"),
                    rate("cpu_pressure_seconds_total", "some task of the machine waits for a CPU"),
                ),
                BUSY,
            ),
            Panel(
                "Sync threads",
                "percentunit",
                (
                    rate("sync_all_busy_seconds_total", "all busy"),
                    Query("rate([sync_busy_seconds_total][$__rate_interval]) / [sync_threads]", "busy, mean"),
                ),
                "While all are busy, what is written next has to wait: num.io.threads.",
            ),
            Panel(
                "Syncs waiting and failed",
                "short",
                (
                    value("syncs_waiting", "waiting"),
                    Query("increase([sync_failures_total][$__rate_interval])", "failed"),
                ),
            ),
            Panel(
                "Handler slots",
                "percentunit",
                (
                    value("request_handler_avg_idle_ratio", "idle, mean"),
                    Query("min([request_handler_idle_ratio])", "idle, least"),
                    Query(
                        "1 - sum(rate([request_handler_busy_seconds_total][$__rate_interval]))"
                        " / sum([request_handlers])",
                        "idle, over the interval",
                    ),
                ),
            ),
            Panel(
                "Network threads",
                "percentunit",
                (
                    value("network_processor_avg_idle_ratio", "idle, mean"),
                    Query("min([network_processor_idle_ratio])", "idle, least"),
                    Query(
                        "1 - sum(rate([network_processor_busy_seconds_total][$__rate_interval]))"
                        " / sum([network_processors])",
                        "idle, over the interval",
                    ),
                    rate("cold_send_busy_seconds_total", "cold sends, {{network_processor}}"),
                ),
            ),
            Panel(
                "Unread",
                "bytes",
                (value("unread_bytes", "sent by clients and not read"),),
                "Requests that wait in sockets, behind others of their connection; no time of a request counts that.",
            ),
            Panel(
                "Wait to be read",
                "s",
                (value("unread_wait_seconds", "of the client with the largest backlog"),),
            ),
            Panel(
                "Request queue",
                "short",
                (
                    value("request_queue_size", "waiting"),
                    value("request_queue_capacity", "room"),
                    value("purgatory_size", "in purgatory"),
                    Query("sum(rate([cold_sends_total][$__rate_interval]))", "cold sends per second"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Groups, topics and compaction",
        (
            Panel("Groups", "short", (value("groups", "{{type}} {{state}}"), value("group_members", "members"))),
            Panel(
                "Offsets and rebalances",
                "ops",
                (
                    rate("group_offset_commits_total", "commits"),
                    rate("group_rebalances_total", "rebalances"),
                    value("group_committed_offsets", "offsets kept"),
                    value("group_loading_partitions", "partitions being loaded"),
                ),
            ),
            Panel(
                "Topics",
                "short",
                (value("topics", "topics"), value("partitions", "partitions")),
            ),
            Panel(
                "Compaction",
                "Bps",
                (rate("log_cleaner_bytes_read_total", "read"), rate("log_cleaner_bytes_written_total", "written")),
            ),
            Panel(
                "Compaction, busy and dirty",
                "percentunit",
                (
                    rate("log_cleaner_busy_seconds_total", "busy"),
                    value("log_cleaner_max_dirty_ratio", "dirtiest log"),
                ),
            ),
            Panel(
                "Compaction, rounds and failures",
                "short",
                (
                    Query("increase([log_cleaner_rounds_total][$__rate_interval])", "rounds"),
                    value("log_cleaner_uncleanable_partitions", "partitions it left alone"),
                ),
            ),
            Panel(
                "Scrubber",
                "short",
                (
                    value("log_scrubber_damaged_segments", "damaged segments"),
                    value("log_scrubber_passes_total", "passes"),
                    rate("log_scrubber_segments_total", "segments per second"),
                    rate("log_scrubber_bytes_read_total", "bytes per second"),
                ),
            ),
            Panel(
                "What a start has yet to load",
                "short",
                (
                    value("recovery_remaining_logs", "logs in {{directory}}"),
                    value("recovery_remaining_segments", "segments in {{directory}}"),
                    value("recovery_remaining_bytes", "bytes in {{directory}}"),
                    value("recovery_seconds", "seconds so far"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Transactions",
        (
            Panel(
                "Transactions",
                "ops",
                (
                    rate("transactions_committed_total", "committed"),
                    rate("transactions_aborted_total", "aborted"),
                    rate("transactions_timed_out_total", "timed out"),
                ),
            ),
            Panel(
                "Transactional ids",
                "short",
                (
                    value("transactional_ids", "{{state}}"),
                    value("transactions_overdue", "overdue"),
                    value("transaction_markers_pending", "markers pending"),
                    value("transaction_loading_partitions", "partitions being loaded"),
                ),
            ),
            Panel(
                "What committed readers wait for",
                "short",
                (
                    value("partitions_held_back", "partitions held back"),
                    value("partitions_with_hanging_transactions", "of them by one that hangs"),
                    value("transaction_oldest_seconds", "oldest open transaction, seconds"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Process",
        (
            Panel("Memory", "bytes", (Query("[process_resident_memory_bytes]", "resident"),)),
            Panel("CPU", "percentunit", (Query("rate([process_cpu_seconds_total][$__rate_interval])", "of one CPU"),)),
            Panel(
                "Descriptors",
                "short",
                (Query("[process_open_fds]", "open"), Query("[process_max_fds]", "allowed")),
            ),
            Panel("Uptime", "s", (value("uptime_seconds", "{{instance}}"),)),
        ),
    ),
    PanelRow(
        "Partitions: needs metrics.per.partition=true",
        (
            Panel(
                "Lag in records, largest ten",
                "short",
                (Query("topk(10, sum by (group, topic) ([group_lag_records]))", "{{group}} {{topic}}"),),
            ),
            Panel(
                "Lag in seconds, largest ten",
                "s",
                (Query("topk(10, max by (group, topic) ([group_lag_seconds]))", "{{group}} {{topic}}"),),
            ),
            Panel(
                "Records per second, busiest ten topics",
                "rowsps",
                (Query("topk(10, sum by (topic) (rate([partition_log_end_offset][$__rate_interval])))", "{{topic}}"),),
            ),
            Panel(
                "Size, largest ten topics",
                "bytes",
                (Query("topk(10, sum by (topic) ([partition_size_bytes]))", "{{topic}}"),),
            ),
            Panel(
                "Records kept, largest ten topics",
                "short",
                (
                    Query(
                        "topk(10, sum by (topic) ([partition_log_end_offset] - [partition_log_start_offset]))",
                        "{{topic}}",
                    ),
                ),
            ),
            Panel(
                "Records that consumers may not read yet",
                "short",
                (
                    Query(
                        "topk(10, sum by (topic) ([partition_high_watermark] - [partition_last_stable_offset]))",
                        "{{topic}}, of what is committed",
                    ),
                    Query(
                        "topk(10, sum by (topic) ([partition_log_end_offset] - [partition_high_watermark]))",
                        "{{topic}}",
                    ),
                ),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": grid(0, y, 24, 1)})
        y += 1
        for number, panel in enumerate(row.panels):
            x = number % PANELS_IN_A_ROW * PANEL_WIDTH
            top = y + number // PANELS_IN_A_ROW * PANEL_HEIGHT
            panels.append(chart(len(panels) + 1, panel, grid(x, top, PANEL_WIDTH, PANEL_HEIGHT)))
        y += -(-len(row.panels) // PANELS_IN_A_ROW) * PANEL_HEIGHT
    return {
        "title": "trio-broker",
        "uid": "trio-broker",
        "description": "A broker's traffic, where the time of its requests goes, and what limits it.",
        "tags": ["kafka", "trio-broker"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables()},
        "panels": panels,
    }


def variables() -> list[dict[str, Any]]:
    """What is chosen at the top of the dashboard: the data source, and the brokers."""
    brokers = f"label_values({PREFIX}_node_info, instance)"
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Broker",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": brokers, "refId": "brokers"},
            "definition": brokers,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def chart(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets(panel.queries),
    }


def targets(queries: Sequence[Query]) -> list[dict[str, Any]]:
    return [
        {
            "refId": chr(ord("A") + at),
            "datasource": SOURCE,
            "expr": expanded(query.expression, BROKER),
            "legendFormat": query.legend,
        }
        for at, query in enumerate(queries)
    ]


def grid(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def render_dashboard() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    print(render_dashboard(), end="")
