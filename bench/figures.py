"""Numbers to people: percentiles, repeats, tables, goals. Pure functions over plain values.

A machine that others use too makes single numbers worthless, so everything is measured several times. ``Repeats`` keeps
all values; its *best* is the one that was disturbed least (the smallest cost or the largest rate), and its spread says
how much to believe it. Floor and broker take turns, and a ratio is the median of the ratios of neighbours: what slowed
down one of the two slowed down the other.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence

import attrs

SIGNIFICANT_DIGITS = 3
"""What a measurement on a shared machine can bear."""


def percentile(sorted_values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least ``fraction`` (0 to 1) of the values do not exceed (nearest rank).

    Raises:
        ValueError: no values, or a fraction outside 0 to 1.
    """
    if not sorted_values:
        raise ValueError("no values have no percentile")
    if not 0 <= fraction <= 1:
        raise ValueError(f"a fraction from 0 to 1, not {fraction}")
    # A product like 0.55 * 20 may come out a hair above its true value; the next rank would be wrong then.
    rank = math.ceil(round(fraction * len(sorted_values), 9))
    return sorted_values[max(rank, 1) - 1]


@attrs.frozen
class Latencies:
    """How long requests took, in milliseconds."""

    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    @classmethod
    def of_ns(cls, values_ns: Sequence[int]) -> Latencies:
        """Sum up durations in nanoseconds, in any order. Raises ValueError when there are none."""
        values = sorted(values_ns)
        p50, p95, p99, p999 = (percentile(values, fraction) / 1e6 for fraction in (0.5, 0.95, 0.99, 0.999))
        return cls(len(values), p50, p95, p99, p999, values[-1] / 1e6)


class Better(enum.Enum):
    """Which way a number should move."""

    LESS = "≤"
    MORE = "≥"


@attrs.frozen
class Repeats:
    """The same thing measured several times."""

    values: Sequence[float] = attrs.field(validator=attrs.validators.min_len(1))
    better: Better = Better.LESS

    @property
    def best(self) -> float:
        return min(self.values) if self.better is Better.LESS else max(self.values)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The distance from the smallest to the largest value, as a share of the median; 0 where that is 0."""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def __str__(self) -> str:
        return f"{shown(self.best)} (median {shown(self.median)}, ±{self.spread / 2:.0%})"


def ratio(ours: Repeats, floor: Repeats) -> float:
    """Return the median of the ratios of values that were measured in the same round.

    Raises:
        ValueError: they have not the same number of rounds.
    """
    return statistics.median(mine / bare for mine, bare in zip(ours.values, floor.values, strict=True))


def shown(value: float | int | str) -> str:
    """Write a number with three significant digits and no exponent; text as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    # Of the rounded value: 99.95 becomes 100, which needs a decimal less.
    decimals = SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(decimals, 0)}f}"


@attrs.define
class Table:
    """Rows of numbers and words under a title. Cells keep their full value; rounding is for the eyes alone."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[float | int | str]] = attrs.field(factory=list)

    def add(self, *cells: float | int | str) -> None:
        """Append a row. Raises ValueError when it has another number of cells than there are columns."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns: {cells}")
        self.rows.append(cells)


def rendered(table: Table) -> str:
    """Return the table as Markdown that is also aligned for a terminal: words to the left, numbers to the right."""
    texts = [list(table.columns), *([shown(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(table.columns))]
    numeric = [
        bool(table.rows) and all(not isinstance(row[column], str) for row in table.rows)
        for column in range(len(table.columns))
    ]
    lines = [
        "| "
        + " | ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        + " |"
        for row in texts
    ]
    ruler = "|" + "|".join(
        "-" * (width + 1) + (":" if right else "-") for width, right in zip(widths, numeric, strict=True)
    )
    return "\n".join([table.title, "", lines[0], ruler + "|", *lines[1:]])


@attrs.frozen
class Goal:
    """What the project set out to reach with one measure."""

    measure: str
    better: Better
    limit: float
    unit: str = ""

    def verdict(self, value: float) -> str:
        """Say whether ``value`` reaches the goal."""
        reached = value <= self.limit if self.better is Better.LESS else value >= self.limit
        return "reached" if reached else "missed"

    def __str__(self) -> str:
        return f"{self.better.value} {self.limit:g}{self.unit and ' ' + self.unit}"
