"""Expressions of PromQL about our metrics: for the dashboard, and for rules that raise alerts."""

from __future__ import annotations

import re
from typing import Final

PREFIX: Final = "trio_broker"
"""Of the name of each metric of ours."""

METRIC: Final = re.compile(r"\[([a-z_]+)(?:\|([^\]]*))?\]")


def expanded(expression: str, labels: str = "") -> str:
    """``expression`` as Prometheus takes it.

    A metric stands in it without our prefix, as ``[name]``, and gets ``labels``; ``[name|labels]`` adds more. The
    brackets of a range begin with a digit or a dollar sign, and stay.
    """

    def series(found: re.Match[str]) -> str:
        name, own = found.groups()
        prefix = "" if name.startswith("process_") else f"{PREFIX}_"
        chosen = ",".join(filter(None, (labels, own)))
        return f"{prefix}{name}{{{chosen}}}" if chosen else f"{prefix}{name}"

    return METRIC.sub(series, expression)
