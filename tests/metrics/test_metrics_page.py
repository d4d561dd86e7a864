"""``docs/metrics.md`` names every metric with its labels, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.test_metrics_prometheus import per_partition
from trio_broker.metrics.prometheus import render
from trio_broker.metrics.promql import PREFIX

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"

OF_THE_NODE = {"cluster_id", "durability", "node_id", "version"}
"""The labels of the info metric, which the page tells in words."""

PARTS_OF_HISTOGRAMS = re.compile(r"_(bucket|count|sum)$")


def rendered_names() -> set[str]:
    """Each metric of ours, without its prefix and with its labels as the page writes them."""
    text = render(per_partition()).decode()
    names = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith(f"{PREFIX}_"):
                continue
            name = sample.name.removeprefix(f"{PREFIX}_")
            labels = sorted(set(sample.labels) - {"le"} - OF_THE_NODE)
            if family.type == "histogram":
                name = PARTS_OF_HISTOGRAMS.sub("", name)
            names.add(f"{name}{{{','.join(labels)}}}" if labels else name)
    return names


def test_the_page_names_every_metric_with_its_labels() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text[: text.index("\n## ")]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == rendered_names()
