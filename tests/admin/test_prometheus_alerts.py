"""Prometheus's rules are those of the verdict, over metrics that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from broker_admin.health_rules import RULES
from broker_admin.prometheus_alerts import EXPRESSIONS, render_rules
from tests.metrics.test_grafana import rendered_labels
from tests.oracles import absent
from trio_broker.metrics.promql import PREFIX, expanded

FILE = Path(__file__).parents[2] / "deploy" / "prometheus-alerts.yml"


def test_the_file_is_up_to_date():
    """Else write it again: ``python -m broker_admin.prometheus_alerts > deploy/prometheus-alerts.yml``."""
    assert FILE.read_text(encoding="utf-8") == render_rules()


def test_every_rule_that_is_an_alert_is_one_of_prometheus():
    assert set(EXPRESSIONS) == {rule for rule in RULES if rule.hold_seconds is not None}


def test_every_metric_is_one_that_the_broker_has():
    names = rendered_labels()
    for by_severity in EXPRESSIONS.values():
        for expression in by_severity.values():
            found = re.findall(rf"{PREFIX}_\w+", expanded(expression))
            assert found
            assert set(found) <= {*names, f"{PREFIX}_unread_wait_seconds", f"{PREFIX}_request_errors_total"}, expression


def test_promtool_takes_the_file():
    if (promtool := shutil.which("promtool")) is None:
        absent("promtool", "promtool is not installed")
    found = subprocess.run([promtool, "check", "rules", str(FILE)], capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stdout + found.stderr
