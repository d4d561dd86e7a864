"""Expressions of PromQL about our metrics, for rules that raise alerts."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "trio_broker"
"""Of the name of each metric of ours."""

METRIC: Final = re.compile(r"\[([a-z_]+)(?:\|([^\]]*))?\]")


def expanded(expression: str) -> str:
    """``expression`` as Prometheus takes it.

    A metric stands in it without our prefix, as ``[name]`` or ``[name|labels]``. The brackets of a range begin with a
    digit, and stay.
    """
    return METRIC.sub(lambda found: f"{PREFIX}_{found[1]}" + (f"{{{found[2]}}}" if found[2] else ""), expression)
