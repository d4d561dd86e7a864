"""The report of ``stats`` as one HTML page without scripts or other files: ``page.html`` over the JSON document.

The template decides what the page shows, and in which order; here are the filters that format its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from importlib import resources
from typing import Any, Final

from trio_broker.common.amounts import bytes_text, short_duration_text, short_number_text
from trio_broker.spark.pipelines.stats.report import damage_count

TEMPLATE: Final = "page.html"

UNKNOWN: Final = "–"


def html_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters.update(
        number=number, size=size, short=short, percent=percent, time=time, duration=duration, seconds=seconds
    )
    template = resources.files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(template).render(document, is_damaged=damage_count(document) > 0)


def number(value: float | None) -> str:
    """Return a number with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def percent(value: float | None) -> str:
    """Return a share as a percentage."""
    return UNKNOWN if value is None else f"{value:.1%}"


def size(count: float | None) -> str:
    """Return a size in powers of 1024, without a fraction of zero: ``16 KiB``."""
    return UNKNOWN if count is None else bytes_text(count).replace(".0 ", " ")


def short(count: float) -> str:
    """Return a rounded number, without a fraction of zero: ``24 k``."""
    return short_number_text(count).replace(".0 ", " ")


def time(text: str | None) -> str:
    """Return a time of the report without its fraction and zone."""
    return UNKNOWN if text is None else text.partition(".")[0].replace("T", " ")


def duration(milliseconds: float | None) -> str:
    """Return a duration by its largest units: ``250 ms``, ``1 h 30 min``."""
    return UNKNOWN if milliseconds is None else short_duration_text(milliseconds / 1000)


def seconds(text: str) -> float | None:
    """Return a time of the report in seconds since 1970; None where no calendar has that day."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
