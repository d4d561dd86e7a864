"""The Grafana dashboard asks for metrics that there are, by labels that they have, and leaves none out.

The file is edited as Grafana exports it, with an indent of 1.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.test_metrics_prometheus import per_partition
from trio_broker.metrics.prometheus import render

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana.json").read_text(encoding="utf-8")
)

SERIES = re.compile(r"\b((?:trio_broker|process)_\w+)(?:\{([^}]*)\})?")

SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""

NOT_SHOWN = {
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "trio_broker_node_info",  # the choice of brokers reads it
}


def rendered_labels() -> dict[str, set[str]]:
    """The labels of each sample's name."""
    text = render(per_partition()).decode()
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_every_series_is_one_that_the_broker_has_and_every_label_one_of_its_labels() -> None:
    labels = rendered_labels()
    for expression in EXPRESSIONS:
        series = SERIES.findall(expression)
        assert series
        assert all('instance=~"$instance"' in chosen for _, chosen in series), expression
        asked = set(re.findall(r"(\w+)\s*[=!]~?\"", expression))
        for group in re.findall(r"\b(?:by|on) \(?([^()]*)\)", expression):
            asked |= {label.strip() for label in group.split(",")}
        known = set().union(*(labels[name] for name, _ in series))
        assert asked <= known | SCRAPED, expression


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {name for expression in EXPRESSIONS for name, _ in SERIES.findall(expression)}
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in rendered_labels()}
    assert families - {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown} - NOT_SHOWN == set()


def test_parentheses_and_brackets_are_balanced_and_every_panel_has_its_own_place() -> None:
    for expression in EXPRESSIONS:
        for opening, closing in ("()", "[]", "{}"):
            assert expression.count(opening) == expression.count(closing), expression
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)


def test_names_keep_to_the_conventions_of_prometheus() -> None:
    """Counters end in ``_total``, and ``_count`` is of histograms only."""
    text = render(per_partition()).decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name), family.name
        if family.type == "counter":
            assert {sample.name for sample in family.samples} <= {f"{family.name}_total", f"{family.name}_created"}
        if family.type == "gauge":
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
        assert not family.name.endswith(("_ms", "_milliseconds", "_kb", "_percent")), family.name
